package shm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// version is the version of the messages and of the layout of rings. Both sides must have
// the same.
const version = 5

const magic = "nexarshm"

// Kinds of the messages of a handshake.
const (
	kindHello   = 1 // of the dialing node, with an eventfd and possibly areas
	kindWelcome = 2 // the same, of the accepting node
	kindRefusal = 3
)

// Codes of refusals.
const (
	refusedIdentity = 1
	refusedOther    = 2
)

var errNoHello = errors.New("its message is not a hello of this protocol")

// A hello identifies its sender and the node that it dials.
//
//	magic 8, version 2, kind 1, then
//	  hello, welcome: areas 4, area 8, cluster, from, to
//	  refusal:        code 1, text
//
// Integers are big-endian, and a string is preceded by its length in one byte. The fields up
// to the kind, and a refusal, are the same in all versions.
type hello struct {
	kind              byte
	areas             uint32 // number of areas
	area              uint64 // size of an area in bytes
	cluster, from, to string
	code              byte
	text              string
}

func (h hello) append(b []byte) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, version)
	b = append(b, h.kind)
	if h.kind == kindRefusal {
		return appendString(append(b, h.code), h.text)
	}
	b = binary.BigEndian.AppendUint32(b, h.areas)
	b = binary.BigEndian.AppendUint64(b, h.area)
	b = appendString(b, h.cluster)
	b = appendString(b, h.from)
	return appendString(b, h.to)
}

func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), nameBytesMax)]
	return append(append(b, byte(len(s))), s...)
}

// parseHello is the inverse of append. It rejects everything else.
func parseHello(b []byte) (h hello, err error) {
	if len(b) < len(magic)+3 || string(b[:len(magic)]) != magic {
		return hello{}, errNoHello
	}
	b = b[len(magic):]
	theirs := binary.BigEndian.Uint16(b)
	h.kind, b = b[2], b[3:]
	if h.kind == kindRefusal {
		if len(b) < 1 {
			return hello{}, errNoHello
		}
		h.code = b[0]
		return h, parseStrings(b[1:], &h.text)
	}
	if theirs != version {
		return hello{}, fmt.Errorf("the peer has version %d of this protocol, this node %d", theirs, version)
	}
	if h.kind != kindHello && h.kind != kindWelcome || len(b) < 12 {
		return hello{}, errNoHello
	}
	h.areas, h.area, b = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:]), b[12:]
	return h, parseStrings(b, &h.cluster, &h.from, &h.to)
}

// parseStrings decodes strings up to the end of b.
func parseStrings(b []byte, fields ...*string) error {
	for _, f := range fields {
		if len(b) < 1 || len(b)-1 < int(b[0]) {
			return errNoHello
		}
		n := 1 + int(b[0])
		*f, b = string(b[1:n]), b[n:]
	}
	if len(b) > 0 {
		return errNoHello
	}
	return nil
}

// check compares a hello or welcome with the expected kind, the cluster and name of this node,
// and the peer that it has dialed, if it has.
func (h hello) check(kind byte, cluster, node, dialed string) error {
	switch {
	case h.kind == kindRefusal && kind == kindWelcome:
		return h.refusal()
	case h.kind != kind:
		return errNoHello
	case h.cluster != cluster:
		return fmt.Errorf("%w: it belongs to cluster %q, want %q", transport.ErrIdentity, h.cluster, cluster)
	case h.to != node:
		return fmt.Errorf("%w: it dials %q, but this is %q", transport.ErrIdentity, h.to, node)
	case h.from == "" || dialed != "" && h.from != dialed:
		return fmt.Errorf("%w: it is %q, want %q", transport.ErrIdentity, h.from, dialed)
	}
	return nil
}

// refusal returns the error that a refusal describes.
func (h hello) refusal() error {
	if h.code == refusedIdentity {
		return fmt.Errorf("%w: the peer refuses: %s", transport.ErrIdentity, wire.Escape(h.text))
	}
	return fmt.Errorf("the peer refuses: %s", wire.Escape(h.text))
}

// refuse returns the refusal that describes an error.
func refuse(err error) hello {
	h := hello{kind: kindRefusal, code: refusedOther, text: err.Error()}
	if errors.Is(err, transport.ErrIdentity) {
		h.code = refusedIdentity
	}
	return h
}

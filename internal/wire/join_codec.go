package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of single fields, in bytes. They bind encoder and decoder alike.
const (
	proofBytes          = 32
	textBytesMax        = 2048
	nameBytesMax        = 255
	addrBytesMax        = 300 // a DNS name of 253 bytes, a colon and a port
	addrsMax            = 16
	endpointsMax        = 16
	transportBytesMax   = 32
	certificateBytesMax = 8192
)

var (
	errNotText  = errors.New("wire: text is not printable UTF-8")
	errBadField = errors.New("wire: field has a forbidden value")
)

// A joinCodec encodes fields to the end of decoder.b, or decodes them from its
// beginning. After the first error the fields are worth nothing.
type joinCodec struct {
	decoder
	encoding bool
}

func (c *joinCodec) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *joinCodec) u8(v *uint8) {
	if c.encoding {
		c.b = append(c.b, *v)
	} else {
		*v = c.decoder.u8()
	}
}

func (c *joinCodec) u16(v *uint16) {
	if c.encoding {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	} else {
		*v = c.decoder.u16()
	}
}

func (c *joinCodec) u32(v *uint32) {
	if c.encoding {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else {
		*v = c.decoder.u32()
	}
}

func (c *joinCodec) u64(v *uint64) {
	if c.encoding {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else {
		*v = c.decoder.u64()
	}
}

func (c *joinCodec) flag(v *bool) {
	if c.encoding {
		c.b = append(c.b, bit(*v))
	} else {
		*v = c.decoder.flag()
	}
}

func (c *joinCodec) id(v *[16]byte) {
	if c.encoding {
		c.b = append(c.b, v[:]...)
	} else {
		copy(v[:], c.take(len(v)))
	}
}

// rank is a rank or AnyRank.
func (c *joinCodec) rank(v *int32) {
	u := uint32(*v)
	c.u32(&u)
	if *v = int32(u); *v < AnyRank {
		c.fail(errBadField)
	}
}

// bytes is a field of at most limit bytes. A decoded one aliases the message.
func (c *joinCodec) bytes(v *[]byte, limit int) {
	switch {
	case !c.encoding:
		*v = c.decoder.bytes(limit)
	case len(*v) > limit:
		c.fail(fmt.Errorf("%w: %d bytes, at most %d", errTooLong, len(*v), limit))
	default:
		c.b = appendBytes(c.b, *v)
	}
}

// name is a printable text, which is refused if it is too long.
func (c *joinCodec) name(v *string, limit int) {
	p := []byte(*v)
	if c.bytes(&p, limit); !c.encoding {
		*v = string(p)
	}
	if !printable(*v) {
		c.fail(fmt.Errorf("%w: %q", errNotText, *v))
	}
}

// text is a printable text for people. The encoder cuts it off at textBytesMax
// and replaces characters that a terminal would not print by spaces.
func (c *joinCodec) text(v *string) {
	if c.encoding {
		*v = strings.Map(func(r rune) rune {
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, *v)
		for len(*v) > textBytesMax {
			_, n := utf8.DecodeLastRuneInString(*v)
			*v = (*v)[:len(*v)-n]
		}
	}
	c.name(v, textBytesMax)
}

// addrs is a list of at most addrsMax addresses.
func (c *joinCodec) addrs(v *[]string) {
	n := uint8(min(len(*v), addrsMax+1))
	if c.u8(&n); n > addrsMax {
		c.fail(fmt.Errorf("%w: more than %d addresses", errTooLong, addrsMax))
	}
	if c.err != nil {
		return
	}
	if !c.encoding && n > 0 {
		*v = make([]string, n)
	}
	for i := range *v {
		c.name(&(*v)[i], addrBytesMax)
	}
}

// proof is a proof of the token, or empty.
func (c *joinCodec) proof(v *[]byte) {
	if len(*v) > proofBytes {
		c.fail(errBadField)
	}
	if c.bytes(v, proofBytes); len(*v) == 0 {
		*v = nil
	} else if len(*v) != proofBytes {
		c.fail(errBadField)
	}
}

// nodes is a list of nodes. The count is checked against the bytes that are
// left before the list is allocated.
func (c *joinCodec) nodes(v *[]JoinNode) {
	n := uint32(len(*v))
	c.u32(&n)
	if !c.encoding {
		if uint64(n)*joinNodeBytesMin > uint64(len(c.b)) {
			c.fail(errShort)
		}
		if c.err != nil || n == 0 {
			return
		}
		*v = make([]JoinNode, n)
	}
	for i := range *v {
		node := &(*v)[i]
		c.id(&node.ID)
		c.addrs(&node.Addrs)
		c.name(&node.Host, nameBytesMax)
		c.name(&node.Name, nameBytesMax)
		c.endpoints(&node.Endpoints)
	}
}

// endpoints is a list of at most endpointsMax endpoints.
func (c *joinCodec) endpoints(v *[]JoinEndpoint) {
	n := uint8(min(len(*v), endpointsMax+1))
	if c.u8(&n); n > endpointsMax {
		c.fail(fmt.Errorf("%w: more than %d transports", errTooLong, endpointsMax))
	}
	if c.err != nil {
		return
	}
	if !c.encoding && n > 0 {
		*v = make([]JoinEndpoint, n)
	}
	for i := range *v {
		c.name(&(*v)[i].Transport, transportBytesMax)
		c.name(&(*v)[i].Addr, addrBytesMax)
	}
}

// printable reports whether s contains no character that could control a
// terminal or break a line of a log.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r)
	}) < 0
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
)

// A joining message travels as its type (8 bits), the length of its fields
// (32 bits) and its fields. These five bytes, the beginning of a JoinHello and
// the whole of a JoinRefusal are the same in every version of the protocol, so
// that nodes of two versions can report why they cannot work together.
const (
	joinHeaderLen = 5

	// JoinBytesMax bounds the fields of any joining message.
	JoinBytesMax = 1 << 20
	// HelloBytesMax bounds the fields of a JoinHello, the only message that a
	// seed reads from an unauthenticated peer.
	HelloBytesMax = 256
)

// A JoinMessage is one of the messages between a node and the seed, or between
// seeds: JoinHello, JoinAnswer, JoinRefusal and so on.
type JoinMessage interface {
	// code encodes the fields of the receiver, or decodes them into the result,
	// a copy of the receiver. It lists the fields once, in wire order.
	code(*joinCodec) JoinMessage
}

// joinMessages has an empty message of every type, which decoding starts from.
// The index is the number of the type.
var joinMessages = [...]JoinMessage{
	1: JoinHello{},
	JoinAnswer{},
	JoinRefusal{},
	JoinRequest{},
	JoinAdmitted{},
	JoinProgress{},
	JoinView{},
	JoinReady{},
	JoinUnable{},
	JoinFormed{},
	JoinFailed{},
	JoinLeave{},
	JoinPing{},
	JoinRenew{},
	JoinRenewed{},
	JoinInvite{},
	JoinExpect{},
	JoinLinked{},
	JoinCall{},
	JoinRest{},
	JoinStatus{},
	JoinAsk{},
	JoinTell{},
	JoinReport{},
	JoinStanding{},
	JoinElsewhere{},
	JoinPeer{},
	JoinLog{},
	JoinLink{},
	JoinForget{},
}

var errUnknownType = errors.New("wire: unknown type of joining message")

// joinType returns the number of the type of m.
func joinType(m JoinMessage) byte {
	typ := reflect.TypeOf(m)
	return byte(slices.IndexFunc(joinMessages[:], func(other JoinMessage) bool { return reflect.TypeOf(other) == typ }))
}

// AppendJoin appends m, ready to be written to a pipe. It fails if a field of
// m, or m as a whole, is longer than a decoder would accept.
func AppendJoin(b []byte, m JoinMessage) ([]byte, error) {
	start := len(b)
	c := joinCodec{encoding: true, decoder: decoder{b: append(b, joinType(m), 0, 0, 0, 0)}}
	m.code(&c)
	n := len(c.b) - start - joinHeaderLen
	if n > JoinBytesMax {
		c.fail(fmt.Errorf("%w: %d bytes in all, at most %d", errTooLong, n, JoinBytesMax))
	}
	if c.err != nil {
		return b, fmt.Errorf("encoding a %T: %w", m, c.err)
	}
	binary.BigEndian.PutUint32(c.b[start+1:], uint32(n))
	return c.b, nil
}

// WriteJoin writes m by a single call of Write.
func WriteJoin(w io.Writer, m JoinMessage) error {
	b, err := AppendJoin(nil, m)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// ReadJoin reads one message whose fields are at most limit bytes long, and
// never reads beyond it. It returns io.EOF only if r ends before the first
// byte. The error for a JoinHello of another version is a *VersionError.
func ReadJoin(r io.Reader, limit int) (JoinMessage, error) {
	var h [joinHeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	t, n := h[0], binary.BigEndian.Uint32(h[1:])
	if t == 0 || int(t) >= len(joinMessages) {
		return nil, fmt.Errorf("%w: %d", errUnknownType, t)
	}
	if n > uint32(min(limit, JoinBytesMax)) {
		return nil, fmt.Errorf("%w: a message of %d bytes, at most %d", errTooLong, n, limit)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r, p); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return parseJoin(t, p)
}

// parseJoin parses the fields of a message. Byte slices in the result alias p.
func parseJoin(t byte, p []byte) (JoinMessage, error) {
	c := joinCodec{decoder: decoder{b: p}}
	m := joinMessages[t].code(&c)
	if err := c.finish(); err != nil {
		return nil, err
	}
	return m, nil
}

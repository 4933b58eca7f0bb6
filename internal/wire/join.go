package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
)

// A joining message consists of its type (8 bits), the length of its fields (32 bits) and its
// fields. These five bytes, the beginning of a JoinHello and the whole of a JoinRefusal are the
// same in every version of the protocol, so that nodes of two versions can report the mismatch.
const (
	joinHeaderLen = 5
	// JoinBytesMax is the maximum length of the fields of a joining message.
	JoinBytesMax = 1 << 20
	// HelloBytesMax is the maximum length of the fields of a JoinHello, the only message
	// that a seed reads from an unauthenticated peer.
	HelloBytesMax = 256
)

// A JoinMessage is one of the messages between a node and a seed, between seeds, or about views
// between nodes: [JoinHello], [JoinAnswer], [JoinRefusal] and so on.
type JoinMessage any

// joinMessages has an empty message of every type, at the index of the type.
var joinMessages = [...]JoinMessage{
	1: JoinHello{},
	JoinAnswer{},
	JoinRefusal{},
	JoinRequest{},
	JoinAdmitted{},
	JoinProgress{},
	JoinView{},
	JoinReady{},
	JoinUnreachable{},
	JoinFormed{},
	JoinFailed{},
	JoinLeave{},
	JoinPing{},
	JoinRenew{},
	JoinRenewed{},
	JoinInvite{},
	JoinExpect{},
	JoinLinked{},
	JoinQuiesce{},
	JoinQuiesced{},
	JoinStatusRequest{},
	JoinTraceRequest{},
	JoinTrace{},
	JoinNodeStatus{},
	JoinWorldStatus{},
	JoinRedirect{},
	JoinSeedHello{},
	JoinLog{},
	JoinLink{},
	JoinForget{},
	JoinExclude{},
	JoinExcluded{},
	JoinDifference{},
	JoinConfirm{},
	JoinBehind{},
}

var errUnknownType = errors.New("wire: unknown type of joining message")

// joinType returns the number of the type of m.
func joinType(m JoinMessage) byte {
	typ := reflect.TypeOf(m)
	return byte(slices.IndexFunc(joinMessages[:], func(other JoinMessage) bool { return reflect.TypeOf(other) == typ }))
}

// AppendJoin appends m to b. It fails, and returns b, if a field of m or m as a whole is longer
// than a decoder accepts.
func AppendJoin(b []byte, m JoinMessage) ([]byte, error) {
	start := len(b)
	c := encoder(append(b, joinType(m), 0, 0, 0, 0))
	fields := reflect.New(reflect.TypeOf(m)).Elem()
	fields.Set(reflect.ValueOf(m)) // Encoding does not change m.
	c.fields(fields)
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

// ReadJoin reads one message with fields of at most limit bytes, and no byte after it. It
// returns io.EOF only if r ends before the first byte. The error for a JoinHello of another
// version is a [*VersionError].
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

// parseJoin decodes the fields of a message. Byte slices in the result alias p.
func parseJoin(t byte, p []byte) (JoinMessage, error) {
	c := codec{decoder: decoder{b: p}}
	m := reflect.New(reflect.TypeOf(joinMessages[t])).Elem()
	c.fields(m)
	if err := c.finish(); err != nil {
		return nil, err
	}
	return m.Interface(), nil
}

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A joining message travels as its type (8 bits), the length of its fields
// (32 bits) and its fields. These five bytes, the beginning of a JoinHello and
// the whole of a JoinRefusal are the same in every version of the protocol, so
// that two versions can at least tell each other why they part.
const (
	joinHeaderLen = 5

	// JoinBytesMax bounds the fields of any joining message.
	JoinBytesMax = 1 << 20
	// HelloBytesMax bounds the fields of a JoinHello. It is all that a seed
	// reads from someone whom it does not know yet.
	HelloBytesMax = 256
)

// Limits of single fields, in bytes. An encoder refuses what a decoder would.
const (
	proofBytes          = 32
	textBytesMax        = 2048
	nameBytesMax        = 255
	addrBytesMax        = 300 // a DNS name of 253 bytes, a colon and a port
	addrsMax            = 16
	certificateBytesMax = 8192
)

// A JoinMessage is one of the messages between a node that joins and the
// seed: JoinHello, JoinAnswer, JoinRefusal and so on.
type JoinMessage interface {
	joinType() joinType
	encode(*joinEncoder)
}

type joinType uint8

const (
	typeJoinHello joinType = iota + 1
	typeJoinAnswer
	typeJoinRefusal
	typeJoinRequest
	typeJoinAdmitted
	typeJoinProgress
	typeJoinView
	typeJoinReady
	typeJoinUnable
	typeJoinFormed
	typeJoinFailed
	typeJoinLeave
	typeJoinPing
	typeJoinRenew
	typeJoinRenewed
	typeJoinInvite
	typeJoinExpect
	typeJoinLinked
	typeJoinCall
	typeJoinRest
	typeJoinStatus
	typeJoinAsk
	typeJoinTell
	typeJoinReport
	typeJoinStanding
	typeJoinElsewhere
	typeJoinPeer
	typeJoinLog
	typeJoinLink
	typeJoinForget
)

var (
	errUnknownType = errors.New("wire: unknown type of joining message")
	errNotText     = errors.New("wire: text is not printable UTF-8")
	errBadField    = errors.New("wire: field has a forbidden value")
)

// AppendJoin appends m, ready to be written to a pipe. It fails if a field of
// m, or m as a whole, is longer than a reader would accept.
func AppendJoin(b []byte, m JoinMessage) ([]byte, error) {
	start := len(b)
	e := joinEncoder{b: append(b, byte(m.joinType()), 0, 0, 0, 0)}
	m.encode(&e)
	n := len(e.b) - start - joinHeaderLen
	if e.err == nil && n > JoinBytesMax {
		e.err = fmt.Errorf("%w: %d bytes in all, at most %d", errTooLong, n, JoinBytesMax)
	}
	if e.err != nil {
		return b, fmt.Errorf("encoding a %T: %w", m, e.err)
	}
	binary.BigEndian.PutUint32(e.b[start+1:], uint32(n))
	return e.b, nil
}

// WriteJoin writes m in one piece.
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
// byte. A JoinHello of another version is a *VersionError.
func ReadJoin(r io.Reader, limit int) (JoinMessage, error) {
	var h [joinHeaderLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if t := joinType(h[0]); t < typeJoinHello || t > typeJoinForget {
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
	return parseJoin(joinType(h[0]), p)
}

// parseJoin parses the fields of a message. Byte slices in the result alias p.
func parseJoin(t joinType, p []byte) (JoinMessage, error) {
	d := &decoder{b: p}
	m, err := decodeJoin(t, d)
	if err == nil {
		err = d.finish()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func decodeJoin(t joinType, d *decoder) (JoinMessage, error) {
	switch t {
	case typeJoinHello:
		return decodeJoinHello(d)
	case typeJoinAnswer:
		return decodeJoinAnswer(d), nil
	case typeJoinRefusal:
		return decodeJoinRefusal(d), nil
	case typeJoinRequest:
		return decodeJoinRequest(d), nil
	case typeJoinAdmitted:
		return decodeJoinAdmitted(d), nil
	case typeJoinProgress:
		return decodeJoinProgress(d), nil
	case typeJoinView:
		return decodeJoinView(d), nil
	case typeJoinReady:
		return decodeJoinReady(d), nil
	case typeJoinUnable:
		return decodeJoinUnable(d), nil
	case typeJoinFormed:
		return decodeJoinFormed(d), nil
	case typeJoinFailed:
		return decodeJoinFailed(d), nil
	case typeJoinLeave:
		return JoinLeave{}, nil
	case typeJoinPing:
		return decodeJoinPing(d), nil
	case typeJoinRenew:
		return decodeJoinRenew(d), nil
	case typeJoinRenewed:
		return decodeJoinRenewed(d), nil
	case typeJoinInvite:
		return decodeJoinInvite(d), nil
	case typeJoinExpect:
		return decodeJoinExpect(d), nil
	case typeJoinLinked:
		return decodeJoinLinked(d), nil
	case typeJoinCall:
		return decodeJoinCall(d), nil
	case typeJoinRest:
		return decodeJoinRest(d), nil
	case typeJoinStatus:
		return JoinStatus{}, nil
	case typeJoinAsk:
		return decodeJoinAsk(d), nil
	case typeJoinTell:
		return decodeJoinTell(d), nil
	case typeJoinReport:
		return decodeJoinReport(d), nil
	case typeJoinStanding:
		return decodeJoinStanding(d), nil
	case typeJoinElsewhere:
		return decodeJoinElsewhere(d), nil
	case typeJoinPeer:
		return decodeJoinPeer(d), nil
	case typeJoinLog:
		return decodeJoinLog(d), nil
	case typeJoinLink:
		return decodeJoinLink(d), nil
	case typeJoinForget:
		return decodeJoinForget(d), nil
	default:
		return nil, fmt.Errorf("%w: %d", errUnknownType, t)
	}
}

// A joinEncoder appends fields and keeps the first error.
type joinEncoder struct {
	b   []byte
	err error
}

func (e *joinEncoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *joinEncoder) u16(v uint16) { e.b = binary.BigEndian.AppendUint16(e.b, v) }
func (e *joinEncoder) u32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *joinEncoder) u64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *joinEncoder) id(v [16]byte) {
	e.b = append(e.b, v[:]...)
}

func (e *joinEncoder) flag(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	e.b = append(e.b, b)
}

func (e *joinEncoder) bytes(p []byte, limit int) {
	if len(p) > limit {
		e.fail(fmt.Errorf("%w: %d bytes, at most %d", errTooLong, len(p), limit))
		return
	}
	e.b = appendBytes(e.b, p)
}

// name appends a text that has to arrive as it is or not at all.
func (e *joinEncoder) name(s string, limit int) {
	if !printable(s) {
		e.fail(fmt.Errorf("%w: %q", errNotText, s))
	}
	e.bytes([]byte(s), limit)
}

// text appends a text for people. What is too long is cut off, and what a
// terminal could mistake for a command becomes a space.
func (e *joinEncoder) text(s string) {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	for len(s) > textBytesMax {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	e.bytes([]byte(s), textBytesMax)
}

func (e *joinEncoder) names(list []string) {
	if len(list) > addrsMax {
		e.fail(fmt.Errorf("%w: %d addresses, at most %d", errTooLong, len(list), addrsMax))
		return
	}
	e.b = append(e.b, byte(len(list)))
	for _, s := range list {
		e.name(s, addrBytesMax)
	}
}

// proof appends a proof of the token, or nothing at all.
func (e *joinEncoder) proof(p []byte) {
	if len(p) != 0 && len(p) != proofBytes {
		e.fail(errBadField)
	}
	e.bytes(p, proofBytes)
}

func decodeID(d *decoder) (id [16]byte) {
	copy(id[:], d.take(len(id)))
	return id
}

func decodeName(d *decoder, limit int) string {
	s := d.string(limit)
	if !printable(s) && d.err == nil {
		d.err = errNotText
	}
	return s
}

func decodeNames(d *decoder) []string {
	n := int(d.u8())
	if n > addrsMax && d.err == nil {
		d.err = errTooLong
	}
	if d.err != nil || n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = decodeName(d, addrBytesMax)
	}
	return list
}

func decodeProof(d *decoder) []byte {
	p := d.bytes(proofBytes)
	if len(p) != proofBytes {
		if len(p) != 0 && d.err == nil {
			d.err = errBadField
		}
		return nil
	}
	return p
}

// printable keeps what peers say out of the control of terminals and logs.
func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r)
	}) < 0
}

package wire

import (
	"fmt"
	"reflect"
	"strings"
)

// A Lane is the purpose of a pipe. Every pipe between nodes belongs to one lane, and
// data on one lane does not delay another.
type Lane uint8

const (
	Control Lane = iota // grants, credit, failures: never behind data
	Data                // messages that need no grant
	Bulk                // granted payloads
	Lanes               // number of lanes with frames of a link
)

// Relay is the lane of relay frames between neighbors of a sparse topology. The link only carries it: it has no frames
// of the link, no credit and no goodbye.
const Relay = Lanes

var laneNames = [Lanes + 1]string{"control", "data", "bulk", "relay"}

func (l Lane) String() string {
	if l <= Relay {
		return laneNames[l]
	}
	return fmt.Sprintf("lane(%d)", uint8(l))
}

// A Type is the first byte of a frame.
type Type uint8

const (
	TypeMessage Type = iota + 1
	TypeOffer
	TypeStep
	TypeStepOffer
	TypeStepGrant
	TypeOfferGrant
	TypeOfferRefuse
	TypeCredit
	TypePing
	TypePong
	TypeQuery
	TypeWhere
	TypeRevoke
	TypeFailed
	TypeBye
	TypeByeAck
	TypeSegment
	TypeClosed
	TypeReason
	TypeGone
	TypeAsk
	TypeWaits
	TypeView
	TypeKey
	TypeWritten
	TypeLeaving
	TypeBeat
	TypeAck
	TypeFinished
	TypeIdle
	typeEnd
)

// sizes has the length of each frame in bytes, including the type, without payload and text.
var sizes = [typeEnd]int{
	TypeMessage: 22, TypeOffer: 34,
	TypeStep: 45, TypeStepOffer: 41, TypeStepGrant: 49,
	TypeOfferGrant: 25, TypeOfferRefuse: 26,
	TypeCredit: 6, TypePing: 9, TypePong: 9,
	TypeQuery: 35, TypeWhere: 52, TypeRevoke: 90, TypeFailed: 46,
	TypeBye: 17, TypeByeAck: 1, TypeSegment: 32, TypeClosed: 69,
	TypeReason: 22, TypeGone: 17, TypeAsk: 18, TypeWaits: 54,
	TypeView: 5, TypeKey: 33, TypeWritten: 21, TypeLeaving: 17,
	TypeBeat: 1, TypeAck: 17, TypeFinished: 9, TypeIdle: 25,
}

const (
	// FrameSizeMax is the maximum length of a frame, without payload and text.
	FrameSizeMax = 128

	// PayloadMax is the maximum length of the payload of a frame on the data lane.
	PayloadMax = 128 << 10

	// TextMax is the maximum length of the text of a frame.
	TextMax = 1 << 10
)

// Size returns the length of a frame of type t, without payload and text. An unknown type
// is an error.
func Size(t Type) (int, error) {
	if t == 0 || t >= typeEnd {
		return 0, fmt.Errorf("wire: unknown frame type %d", t)
	}
	return sizes[t], nil
}

// body returns a decoder of the fields of a frame, which follow its type.
func body(b []byte) decoder {
	if len(b) == 0 {
		return decoder{err: errShort}
	}
	return decoder{b: b[1:]}
}

// appendFrame appends the type and the fields of f, a pointer to a frame, to b.
func appendFrame(b []byte, t Type, f any) []byte {
	c := encoder(append(b, byte(t)))
	c.fields(reflect.ValueOf(f).Elem())
	return c.b
}

// Parse decodes the fields of a frame that [appendFrame] encodes. A text, list or message of the frame follows them.
// Frames on the path of payloads have functions of their own.
func Parse[F any](b []byte) (f F, err error) {
	c := codec{decoder: body(b)}
	c.fields(reflect.ValueOf(&f).Elem())
	return f, c.finish()
}

// clip truncates a text to TextMax bytes.
func clip(text string) string {
	if len(text) > TextMax {
		text = strings.ToValidUTF8(text[:TextMax], "")
	}
	return text
}

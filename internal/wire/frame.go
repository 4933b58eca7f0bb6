package wire

import (
	"fmt"
	"strings"
)

// A Lane is the purpose of a pipe. Every pipe between nodes belongs to one lane, and
// data on one lane does not delay another.
type Lane uint8

const (
	Control Lane = iota // grants, credit, failures: never behind data
	Data                // messages that need no grant
	Bulk                // granted payloads
	Lanes               // number of lanes
)

var laneNames = [Lanes]string{"control", "data", "bulk"}

func (l Lane) String() string {
	if l < Lanes {
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
	TypeProbe
	TypeWhere
	TypeRevoke
	TypeFailed
	TypeBye
	TypeByeAck
	TypeSegment
	TypeClosed
	typeEnd
)

// sizes has the length of each frame with its type byte, without payload and text.
var sizes = [typeEnd]int{
	TypeMessage:     messageSize,
	TypeOffer:       offerSize,
	TypeStep:        stepSize,
	TypeStepOffer:   stepOfferSize,
	TypeStepGrant:   stepGrantSize,
	TypeOfferGrant:  offerGrantSize,
	TypeOfferRefuse: offerRefuseSize,
	TypeCredit:      creditSize,
	TypePing:        pingSize,
	TypePong:        pingSize,
	TypeProbe:       probeSize,
	TypeWhere:       whereSize,
	TypeRevoke:      revokeSize,
	TypeFailed:      failedSize,
	TypeBye:         byeSize,
	TypeByeAck:      byeSize,
	TypeSegment:     segmentSize,
	TypeClosed:      closedSize,
}

// FrameSizeMax is the length of the longest frame, payload and text aside.
const FrameSizeMax = 128

// PayloadMax is the longest payload of a frame on the data lane.
const PayloadMax = 64 << 10

// TextMax is the longest text of a frame.
const TextMax = 1 << 10

// Size is the length of a frame of type t as far as it is fixed, or an error
// if there is no such type.
func Size(t Type) (int, error) {
	if t == 0 || t >= typeEnd {
		return 0, fmt.Errorf("wire: unknown frame type %d", t)
	}
	return sizes[t], nil
}

// body starts decoding a frame behind its type byte.
func body(b []byte) decoder {
	if len(b) == 0 {
		return decoder{err: errShort}
	}
	return decoder{b: b[1:]}
}

// length checks the length of a payload or text.
func (d *decoder) length(limit uint32) int {
	n := d.u32()
	if n > limit && d.err == nil {
		d.err = errTooLong
	}
	return int(n)
}

// clip shortens a text to TextMax bytes.
func clip(text string) string {
	if len(text) > TextMax {
		text = strings.ToValidUTF8(text[:TextMax], "")
	}
	return text
}

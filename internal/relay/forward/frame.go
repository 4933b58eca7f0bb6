package forward

import (
	"encoding/binary"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
)

// A Kind is the purpose of a relay frame. Relays do not distinguish them.
type Kind uint8

// The kinds of relay frames.
const (
	Handshake    Kind = iota + 1 // a part of the TLS handshake of a session
	HandshakeAck                 // acknowledges Handshake frames
	Abort                        // the handshake has failed; the payload is the reason
	Data                         // sealed items of a session
	Ack                          // sealed acknowledgement of Data frames
	kindEnd
)

const (
	// HeaderSize is the length of the header of a frame in bytes.
	HeaderSize = 56
	// PayloadMax is the maximum length of the payload of a frame in bytes.
	PayloadMax = 16<<10 + 64
	// CreditSize is the length of an encoded [Credit] in bytes.
	CreditSize = 6
	// HopLimitMax is the largest hop limit.
	HopLimitMax = 64

	// frameCharge is the credit that a frame costs in addition to its bytes, so that the
	// number of frames in a buffer is bounded as well.
	frameCharge = 64
	// chargeMax is the credit for the longest frame.
	chargeMax = HeaderSize + PayloadMax + frameCharge
)

// The first byte of the encoding of a Frame and of a Credit.
const (
	typeFrame  = 1
	typeCredit = 2
)

// A Frame travels from its source to its destination through relays. Relays change Hops only.
type Frame struct {
	// Hops is the number of links that the frame has crossed, including the last one. It is the buffer class of the frame at the node that receives it.
	Hops uint8
	// Attempt selects detours: if bit h is set, the node after h hops prefers the alternative
	// next hop. A source changes it when frames do not arrive.
	Attempt             uint8
	Kind                Kind
	Source, Destination membership.NodeID
	// Session and Seq belong to the two ends.
	Session, Seq uint64
	Payload      []byte
}

// Charge returns the credit that the frame costs.
func (f *Frame) Charge() int { return HeaderSize + len(f.Payload) + frameCharge }

// AppendHeader appends the header of the frame to b. The payload follows it on the link.
func (f *Frame) AppendHeader(b []byte) []byte {
	b = append(b, typeFrame, f.Hops, f.Attempt, byte(f.Kind))
	b = append(b, f.Source[:]...)
	b = append(b, f.Destination[:]...)
	b = binary.BigEndian.AppendUint64(b, f.Session)
	b = binary.BigEndian.AppendUint64(b, f.Seq)
	return binary.BigEndian.AppendUint32(b, uint32(len(f.Payload)))
}

// ParseHeader decodes the header of a frame and returns the length of its payload, which is at
// most PayloadMax.
func ParseHeader(b []byte) (f Frame, payload int, err error) {
	if len(b) != HeaderSize || b[0] != typeFrame {
		return f, 0, fmt.Errorf("relay: %d bytes of type %d: expected a frame header of %d bytes and type %d", len(b), first(b), HeaderSize, typeFrame)
	}
	f = Frame{Hops: b[1], Attempt: b[2], Kind: Kind(b[3])}
	copy(f.Source[:], b[4:])
	copy(f.Destination[:], b[20:])
	f.Session, f.Seq = binary.BigEndian.Uint64(b[36:]), binary.BigEndian.Uint64(b[44:])
	length := binary.BigEndian.Uint32(b[52:])
	if f.Kind == 0 || f.Kind >= kindEnd {
		return f, 0, fmt.Errorf("relay: frame of kind %d: must be 1 to %d", f.Kind, kindEnd-1)
	}
	if length > PayloadMax {
		return f, 0, fmt.Errorf("relay: frame with a payload of %d bytes: must be at most %d", length, PayloadMax)
	}
	return f, int(length), nil
}

// A Credit permits the neighbor to send frames of one class.
type Credit struct {
	Class uint8
	Bytes uint32
}

// Append appends the encoding of the credit to b.
func (c Credit) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, typeCredit, c.Class), c.Bytes)
}

// ParseCredit decodes a credit.
func ParseCredit(b []byte) (Credit, error) {
	if len(b) != CreditSize || b[0] != typeCredit {
		return Credit{}, fmt.Errorf("relay: %d bytes of type %d: expected a credit of %d bytes and type %d", len(b), first(b), CreditSize, typeCredit)
	}
	return Credit{Class: b[1], Bytes: binary.BigEndian.Uint32(b[2:])}, nil
}

// Size returns the length in bytes of the encoding that begins with the byte b: [HeaderSize] for
// a frame without its payload, or [CreditSize].
func Size(b byte) (int, error) {
	switch b {
	case typeFrame:
		return HeaderSize, nil
	case typeCredit:
		return CreditSize, nil
	}
	return 0, fmt.Errorf("relay: type %d: expected %d for a frame or %d for credit", b, typeFrame, typeCredit)
}

func first(b []byte) byte {
	if len(b) == 0 {
		return 0
	}
	return b[0]
}

package forward

import (
	"encoding/binary"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
)

// A Kind is the purpose of a frame. Relays do not distinguish them.
type Kind uint8

// The kinds of frames.
const (
	Packets  Kind = iota + 1 // the payload is packets, see [AppendPacket]
	Question                 // asks the destination for an Answer with the same payload
	Answer
	kindEnd
)

const (
	// HeaderSize is the length of the header of a frame in bytes.
	HeaderSize = 37
	// PayloadMax is the maximum length of the payload of a frame in bytes.
	PayloadMax = 16 << 10
	// HopLimitMax is the largest hop limit.
	HopLimitMax = 64
	// frameMemory is what a frame that waits occupies beside its payload, as the only one of its source.
	frameMemory = 320
	// packetHeader is the length of the length of a packet in bytes.
	packetHeader = 2
)

// A Frame travels from its source to its destination through relays. Relays change Hops only.
type Frame struct {
	Kind Kind
	// Hops is the number of links that the frame has crossed, including the last one.
	Hops uint8
	// Salt selects detours: if bit 2h is set, the node after h hops prefers the alternative next hop. The other bits are for the frames of
	// the opposite direction, see [ReplySalt].
	Salt                uint8
	Source, Destination membership.NodeID
	Payload             []byte
}

// takesDetour reports whether the node that has the frame prefers the alternative next hop.
func (f *Frame) takesDetour() bool { return f.Hops < 4 && f.Salt>>(2*f.Hops)&1 == 1 }

// ReplySalt returns the salt of the frames of the opposite direction: a dialer chooses the detours of both, independently.
func ReplySalt(salt uint8) uint8 { return salt&0x55<<1 | salt&0xaa>>1 }

// length returns the number of bytes of the frame on a link.
func (f *Frame) length() int { return HeaderSize + len(f.Payload) }

// memory returns the number of bytes that the frame occupies while it waits.
func (f *Frame) memory() int { return frameMemory + cap(f.Payload) }

// AppendHeader appends the header of the frame to b. The payload follows it on the link.
func (f *Frame) AppendHeader(b []byte) []byte {
	b = append(b, byte(f.Kind), f.Hops, f.Salt)
	b = append(b, f.Source[:]...)
	b = append(b, f.Destination[:]...)
	return binary.BigEndian.AppendUint16(b, uint16(len(f.Payload)))
}

// ParseHeader decodes the header of a frame and returns the length of its payload, which is at most PayloadMax.
func ParseHeader(b []byte) (f Frame, payload int, err error) {
	if len(b) != HeaderSize {
		return f, 0, fmt.Errorf("relay: header of %d bytes: expected %d", len(b), HeaderSize)
	}
	f = Frame{Kind: Kind(b[0]), Hops: b[1], Salt: b[2]}
	copy(f.Source[:], b[3:])
	copy(f.Destination[:], b[19:])
	payload = int(binary.BigEndian.Uint16(b[35:]))
	if f.Kind == 0 || f.Kind >= kindEnd {
		return f, 0, fmt.Errorf("relay: frame of kind %d: must be 1 to %d", f.Kind, kindEnd-1)
	}
	if payload > PayloadMax {
		return f, 0, fmt.Errorf("relay: frame with a payload of %d bytes: must be at most %d", payload, PayloadMax)
	}
	return f, payload, nil
}

// packetMin is the length of the shortest packet that QUIC handles (RFC 9000, section 10.3).
const packetMin = 21

// IsValid reports whether a payload is packets that QUIC may handle.
func IsValid(payload []byte) bool {
	for len(payload) > 0 {
		packet, rest := CutPacket(payload)
		if len(packet) < packetMin {
			return false
		}
		payload = rest
	}
	return true
}

// AppendPacket appends a packet to a payload.
func AppendPacket(payload, packet []byte) []byte {
	return append(binary.BigEndian.AppendUint16(payload, uint16(len(packet))), packet...)
}

// CutPacket returns the first packet of a payload, and the others. It returns no packet if the payload has none, or is not valid.
func CutPacket(payload []byte) (packet, rest []byte) {
	if len(payload) < packetHeader {
		return nil, nil
	}
	length := int(binary.BigEndian.Uint16(payload))
	if payload = payload[packetHeader:]; length > len(payload) {
		return nil, nil
	}
	return payload[:length], payload[length:]
}

package wire

import "encoding/binary"

// SegmentMax is the maximum length of the payload of one frame on the bulk lane. Transfers
// take turns after each frame.
const SegmentMax = 1 << 20

// A Segment carries Length bytes, from byte Offset on, of the transfer that the receiver has granted under
// the number Grant. The payload follows.
//
// The frame is padded to 32 bytes, so that a kernel that puts frame and payload into one page
// copies the payload between addresses with the same alignment: if they differ by less than 16
// bytes, many processors take ten times as long.
type Segment struct {
	Grant  uint64
	Offset uint64
	Length int
}

const segmentPad = 11

// Append appends s to b. The caller sends the payload after it.
func (s *Segment) Append(b []byte) []byte {
	b = append(b, byte(TypeSegment))
	b = binary.BigEndian.AppendUint64(b, s.Grant)
	b = binary.BigEndian.AppendUint64(b, s.Offset)
	b = binary.BigEndian.AppendUint32(b, uint32(s.Length))
	return append(b, make([]byte, segmentPad)...)
}

// ParseSegment decodes a [TypeSegment] frame.
func ParseSegment(b []byte) (s Segment, err error) {
	d := body(b)
	s.Grant = d.u64()
	s.Offset = d.u64()
	s.Length = d.length(SegmentMax)
	d.zeros(segmentPad)
	return s, d.finish()
}

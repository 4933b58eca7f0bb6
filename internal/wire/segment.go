package wire

import "encoding/binary"

// SegmentMax is the longest payload of one frame on the bulk lane. Transfers
// take turns after each frame.
const SegmentMax = 1 << 20

// A Segment carries the next Length bytes of the transfer that the receiver has
// granted under the number Grant. The payload follows.
type Segment struct {
	Grant  uint64
	Length int
}

const segmentSize = 1 + 8 + 4

// Append adds s to b. Its payload comes behind it.
func (s *Segment) Append(b []byte) []byte {
	b = append(b, byte(TypeSegment))
	b = binary.BigEndian.AppendUint64(b, s.Grant)
	return binary.BigEndian.AppendUint32(b, uint32(s.Length))
}

// ParseSegment decodes a TypeSegment frame.
func ParseSegment(b []byte) (s Segment, err error) {
	d := body(b)
	s.Grant = d.u64()
	s.Length = d.length(SegmentMax)
	return s, d.finish()
}

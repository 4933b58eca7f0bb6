package wire

import "encoding/binary"

// SegmentMax is the longest payload of one frame on the bulk lane. Transfers
// take turns after each frame.
const SegmentMax = 1 << 20

// A Segment carries the next Length bytes of the transfer that the receiver has
// granted under the number Grant. The payload follows.
//
// The frame is 16 bytes long. A kernel that puts frame and payload one behind the
// other into its own pages copies the payload to a place that lies so much further into
// a page than where it comes from, and many processors take ten times as long for that
// if it is less than 16 bytes, and not 0.
type Segment struct {
	Grant  uint64
	Length int
}

const (
	segmentPad  = 3
	segmentSize = 1 + 8 + 4 + segmentPad
)

// Append adds s to b. Its payload comes behind it.
func (s *Segment) Append(b []byte) []byte {
	b = append(b, byte(TypeSegment))
	b = binary.BigEndian.AppendUint64(b, s.Grant)
	b = binary.BigEndian.AppendUint32(b, uint32(s.Length))
	return append(b, make([]byte, segmentPad)...)
}

// ParseSegment decodes a TypeSegment frame.
func ParseSegment(b []byte) (s Segment, err error) {
	d := body(b)
	s.Grant = d.u64()
	s.Length = d.length(SegmentMax)
	d.zeros(segmentPad)
	return s, d.finish()
}

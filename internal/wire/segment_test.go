package wire

import "testing"

var segmentKind = kindOf(TypeSegment, (*Segment).Append, ParseSegment)

func TestSegment(t *testing.T) {
	checkFrame(t, segmentKind, &Segment{Grant: 0x0102030405060708, Length: 0x00090a0b}, "11 0102030405060708 00090a0b 000000")
	checkFrame(t, segmentKind, &Segment{Grant: 1<<64 - 1, Length: SegmentMax}, "11 ffffffffffffffff 00100000 000000")
	checkRefused(t, segmentKind, errTooLong, "11 0000000000000001 00100001 000000")
	checkRefused(t, segmentKind, errPadding, "11 0000000000000001 00100000 000100")
	if sizes[TypeSegment]%16 != 0 {
		t.Errorf("the frame has %d bytes, want a multiple of 16", sizes[TypeSegment])
	}
}

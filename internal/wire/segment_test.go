package wire

import (
	"strings"
	"testing"
)

var segmentKind = kindOf(TypeSegment, (*Segment).Append, ParseSegment)

func TestSegment(t *testing.T) {
	pad := strings.Repeat("00", segmentPad)
	checkFrame(t, segmentKind, &Segment{Grant: 0x0102030405060708, Offset: 0x1112131415161718, Length: 0x00090a0b}, "11 0102030405060708 1112131415161718 00090a0b"+pad)
	checkFrame(t, segmentKind, &Segment{Grant: 1<<64 - 1, Length: SegmentMax}, "11 ffffffffffffffff 0000000000000000 00100000"+pad)
	checkRefused(t, segmentKind, errTooLong, "11 0000000000000001 0000000000000000 00100001"+pad)
	checkRefused(t, segmentKind, errPadding, "11 0000000000000001 0000000000000000 00100000"+pad[2:]+"01")
	if sizes[TypeSegment]%16 != 0 {
		t.Errorf("the frame has %d bytes, want a multiple of 16", sizes[TypeSegment])
	}
}

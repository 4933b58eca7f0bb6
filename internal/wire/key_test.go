package wire

import "testing"

var (
	keyKind     = kindOf(TypeKey, (*Key).Append, ParseKey)
	writtenKind = kindOf(TypeWritten, (*Written).Append, ParseWritten)
)

func TestKey(t *testing.T) {
	checkFrame(t, keyKind, &Key{Grant: 0x0102030405060708, Addr: 0x1112131415161718, Key: 0x2122232425262728, Length: 0x3132333435363738},
		"18 0102030405060708 1112131415161718 2122232425262728 3132333435363738")
}

func TestWritten(t *testing.T) {
	checkFrame(t, writtenKind, &Written{Grant: 0x0102030405060708, Offset: 0x1112131415161718, Length: 0x00090a0b}, "19 0102030405060708 1112131415161718 00090a0b")
	checkFrame(t, writtenKind, &Written{Grant: 1<<64 - 1, Length: SegmentMax}, "19 ffffffffffffffff 0000000000000000 00100000")
	checkRefused(t, writtenKind, errTooLong, "19 0000000000000001 0000000000000000 00100001")
}

package wire

import "testing"

var closedKind = kindOf(TypeClosed, (*Closed).Append, ParseClosed)

func TestClosed(t *testing.T) {
	checkFrame(t, closedKind, &Closed{Comm: 0x0102030405060708, Seq: 0x1112131415161718},
		"12 0102030405060708 1112131415161718")
}

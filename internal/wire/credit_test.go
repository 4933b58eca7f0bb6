package wire

import "testing"

var creditKind = kindOf(TypeCredit, (*Credit).Append, ParseCredit)

func TestCredit(t *testing.T) {
	checkFrame(t, creditKind, &Credit{Class: Messages, Bytes: 0x01020304}, "08 00 01020304")
	checkFrame(t, creditKind, &Credit{Class: Collectives, Bytes: 1<<32 - 1}, "08 01 ffffffff")
	checkRefused(t, creditKind, errValue, "08 02 00000000", "08 ff 00000000")
}

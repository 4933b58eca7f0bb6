package wire

import "testing"

var messageKind = kindOf(TypeMessage, (*Message).Append, ParseMessage)

func TestMessage(t *testing.T) {
	checkFrame(t, messageKind, &Message{}, "01 0000000000000000 0000000000000000 00 00000000")
	checkFrame(t, messageKind, &Message{Comm: 0x0102030405060708, Tag: 0x1112131415161718, Type: 9, Length: 5},
		"01 0102030405060708 1112131415161718 09 00000005")
	checkFrame(t, messageKind, &Message{Comm: 1<<64 - 1, Tag: -2, Type: 255, Length: PayloadMax},
		"01 ffffffffffffffff fffffffffffffffe ff 00020000")
	checkRefused(t, messageKind, errTooLong,
		"01 0000000000000000 0000000000000000 00 00020001",
		"01 0000000000000000 0000000000000000 00 ffffffff")
}

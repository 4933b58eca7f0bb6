package wire

import "testing"

var (
	byeKind    = kindOf(TypeBye, func(y *Bye, b []byte) []byte { return y.Append(b, TypeBye) }, ParseBye)
	byeAckKind = kindOf(TypeByeAck, func(y *Bye, b []byte) []byte { return y.Append(b, TypeByeAck) }, ParseBye)
)

func TestBye(t *testing.T) {
	checkFrame(t, byeKind, &Bye{Lane: Control}, "0f 00")
	checkFrame(t, byeKind, &Bye{Lane: Bulk}, "0f 02")
	checkFrame(t, byeAckKind, &Bye{Lane: Data}, "10 01")
	checkRefused(t, byeKind, errValue, "0f 03", "0f ff")
}

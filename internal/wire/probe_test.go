package wire

import "testing"

var (
	probeKind = kindOf(TypeProbe, (*Probe).Append, ParseProbe)
	whereKind = kindOf(TypeWhere, (*Where).Append, ParseWhere)
)

func TestProbe(t *testing.T) {
	checkFrame(t, probeKind, &Probe{Call: aCall()}, "0b "+aCallHex)
}

func TestWhere(t *testing.T) {
	checkFrame(t, whereKind, &Where{Seq: 0x7172737475767778, Last: aCall()}, "0c 7172737475767778 00 "+aCallHex)
	checkFrame(t, whereKind, &Where{Seq: 0x7172737475767778, Active: true, Last: aCall()}, "0c 7172737475767778 01 "+aCallHex)
	checkRefused(t, whereKind, errTooLong, "0c 7172737475767778 02 "+aCallHex)
}

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
	checkFrame(t, whereKind, &Where{Seq: 0x7172737475767778, Last: aCall()}, "0c 7172737475767778 00 0000000000000000 "+aCallHex)
	checkFrame(t, whereKind, &Where{Seq: 0x7172737475767778, Active: true, For: 0x8182838485868788, Last: aCall()}, "0c 7172737475767778 01 8182838485868788 "+aCallHex)
	checkRefused(t, whereKind, errValue, "0c 7172737475767778 02 0000000000000000 "+aCallHex)
}

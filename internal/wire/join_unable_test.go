package wire

import "testing"

var joinUnables = []JoinMessage{
	JoinUnable{Epoch: 1, Peer: id16(3), Text: "no answer from 10.0.0.1:7000"},
	JoinUnable{Epoch: 2, Peer: id16(4), Left: true, Text: "it has left"},
	JoinUnable{},
}

func TestJoinUnable(t *testing.T) {
	for _, m := range joinUnables {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinUnable(f *testing.F) { fuzzJoin(f, joinUnables...) }

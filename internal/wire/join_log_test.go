package wire

import (
	"testing"
)

var joinSeedHellos = []JoinMessage{JoinSeedHello{Seed: 1}, JoinSeedHello{Seed: 1 << 62, World: 4, Proof: make([]byte, proofBytes)}}

func TestJoinSeedHello(t *testing.T) {
	for _, m := range joinSeedHellos {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errValue, JoinSeedHello{Proof: make([]byte, proofBytes-1)})
}

func FuzzJoinSeedHello(f *testing.F) { fuzzJoin(f, joinSeedHellos...) }

var joinLogs = []JoinMessage{
	JoinLog{Data: []byte{}},
	JoinLog{More: true, Data: []byte{8, 3, 16, 1}},
	JoinLog{Data: make([]byte, LogBytesMax)},
}

func TestJoinLog(t *testing.T) {
	for _, m := range joinLogs[:2] {
		checkJoinMessage(t, m)
	}
	checkLongest(t, joinLogs[2])
	checkJoinRefused(t, errTooLong, JoinLog{Data: make([]byte, LogBytesMax+1)})
}

func FuzzJoinLog(f *testing.F) { fuzzJoin(f, joinLogs...) }

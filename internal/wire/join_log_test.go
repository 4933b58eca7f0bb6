package wire

import (
	"testing"
)

var joinPeers = []JoinMessage{JoinPeer{Seed: 1}, JoinPeer{Seed: 1 << 62, World: 4, Proof: make([]byte, proofBytes)}}

func TestJoinPeer(t *testing.T) {
	for _, m := range joinPeers {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errBadField, JoinPeer{Proof: make([]byte, proofBytes-1)})
}

func FuzzJoinPeer(f *testing.F) { fuzzJoin(f, joinPeers...) }

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

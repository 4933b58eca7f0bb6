package wire

import "testing"

var joinPeers = []JoinMessage{JoinPeer{Seed: 1}, JoinPeer{Seed: 1 << 62, World: 4, Proof: make([]byte, proofBytes)}}

func TestJoinPeer(t *testing.T) {
	for _, m := range joinPeers {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errBadField, JoinPeer{Proof: make([]byte, proofBytes-1)})
}

func FuzzJoinPeer(f *testing.F) { fuzzJoin(f, joinPeers...) }

package wire

import "testing"

var joinPings = []JoinMessage{JoinPing{Seq: 1}, JoinPing{Seq: 1<<64 - 1}}

func TestJoinPing(t *testing.T) {
	for _, m := range joinPings {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinPing(f *testing.F) { fuzzJoin(f, joinPings...) }

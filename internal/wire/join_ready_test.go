package wire

import "testing"

var joinReadies = []JoinMessage{JoinReady{Epoch: 1}, JoinReady{Epoch: 1 << 63}}

func TestJoinReady(t *testing.T) {
	for _, m := range joinReadies {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinReady(f *testing.F) { fuzzJoin(f, joinReadies...) }

package wire

import "testing"

var joinCalls = []JoinMessage{JoinCall{Epoch: 1}, JoinCall{Epoch: 1 << 63}}

func TestJoinCall(t *testing.T) {
	for _, m := range joinCalls {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinCall(f *testing.F) { fuzzJoin(f, joinCalls...) }

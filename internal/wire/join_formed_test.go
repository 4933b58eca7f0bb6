package wire

import "testing"

var joinFormeds = []JoinMessage{JoinFormed{Epoch: 1}, JoinFormed{}}

func TestJoinFormed(t *testing.T) {
	for _, m := range joinFormeds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinFormed(f *testing.F) { fuzzJoin(f, joinFormeds...) }

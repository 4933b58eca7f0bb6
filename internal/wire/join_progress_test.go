package wire

import "testing"

var joinProgresses = []JoinMessage{JoinProgress{Joined: 3, World: 4}, JoinProgress{}}

func TestJoinProgress(t *testing.T) {
	for _, m := range joinProgresses {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinProgress(f *testing.F) { fuzzJoin(f, joinProgresses...) }

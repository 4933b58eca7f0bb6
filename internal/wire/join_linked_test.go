package wire

import "testing"

var joinLinkeds = []JoinMessage{JoinLinked{Number: 1}, JoinLinked{Number: 1 << 63}}

func TestJoinLinked(t *testing.T) {
	for _, m := range joinLinkeds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinLinked(f *testing.F) { fuzzJoin(f, joinLinkeds...) }

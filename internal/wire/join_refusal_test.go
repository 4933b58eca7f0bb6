package wire

import "testing"

var joinRefusals = []JoinMessage{
	JoinRefusal{Code: RefusedToken, Text: "wrong cluster token"},
	JoinRefusal{Code: 60000},
}

func TestJoinRefusal(t *testing.T) {
	for _, m := range joinRefusals {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinRefusal(f *testing.F) { fuzzJoin(f, joinRefusals...) }

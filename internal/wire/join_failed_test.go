package wire

import "testing"

var joinFaileds = []JoinMessage{
	JoinFailed{Text: "rank 1 10.0.0.2:7000 (b:2) cannot reach rank 0 10.0.0.1:7000 (a:1)"},
	JoinFailed{},
}

func TestJoinFailed(t *testing.T) {
	for _, m := range joinFaileds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinFailed(f *testing.F) { fuzzJoin(f, joinFaileds...) }

package wire

import "testing"

var joinExpects = []JoinMessage{
	JoinExpect{},
	JoinExpect{Nodes: []JoinNode{{ID: id16(1), Addrs: []string{"10.0.0.1:7000"}, Host: "a", Name: "a:1"}}, Whole: true},
}

func TestJoinExpect(t *testing.T) {
	for _, m := range joinExpects {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinExpect(f *testing.F) { fuzzJoin(f, joinExpects...) }

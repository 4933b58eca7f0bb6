package wire

import "testing"

var joinInvites = []JoinMessage{
	JoinInvite{Number: 1, Epoch: 1},
	JoinInvite{Number: 1 << 40, Epoch: 7, World: 1, Nodes: []JoinNode{{ID: id16(1), Addrs: []string{"10.0.0.1:7000"}, Host: "a", Name: "a:1"}, {ID: id16(2)}}},
}

func TestJoinInvite(t *testing.T) {
	for _, m := range joinInvites {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errNotText, JoinInvite{Nodes: []JoinNode{{Host: "\n"}}})
}

func FuzzJoinInvite(f *testing.F) { fuzzJoin(f, joinInvites...) }

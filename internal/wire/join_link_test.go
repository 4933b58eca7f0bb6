package wire

import "testing"

var joinLinks = []JoinMessage{JoinLink{Peer: id16(1), Up: true}, JoinLink{Peer: id16(200)}}

func TestJoinLink(t *testing.T) {
	for _, m := range joinLinks {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinLink(f *testing.F) { fuzzJoin(f, joinLinks...) }

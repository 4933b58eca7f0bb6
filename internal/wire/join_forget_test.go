package wire

import "testing"

var joinForgets = []JoinMessage{JoinForget{Peer: id16(1)}}

func TestJoinForget(t *testing.T) {
	for _, m := range joinForgets {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinForget(f *testing.F) { fuzzJoin(f, joinForgets...) }

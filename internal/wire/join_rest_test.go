package wire

import "testing"

var joinRests = []JoinMessage{JoinRest{Epoch: 1}, JoinRest{Epoch: 1 << 63, Leaves: true, Within: 60_000}}

func TestJoinRest(t *testing.T) {
	for _, m := range joinRests {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinRest(f *testing.F) { fuzzJoin(f, joinRests...) }

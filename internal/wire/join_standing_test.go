package wire

import "testing"

var joinStandings = []JoinMessage{
	JoinStanding{World: 4, Joined: 1},
	JoinStanding{Epoch: 1 << 40, World: 8, Joined: 7, Waiting: 3, Formed: true},
}

func TestJoinStanding(t *testing.T) {
	for _, m := range joinStandings {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinStanding(f *testing.F) { fuzzJoin(f, joinStandings...) }

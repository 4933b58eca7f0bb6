package wire

import (
	"strings"
	"testing"
)

var joinElsewheres = []JoinMessage{JoinElsewhere{}, JoinElsewhere{Leader: "seed.example:7000"}}

func TestJoinElsewhere(t *testing.T) {
	for _, m := range joinElsewheres {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinElsewhere{Leader: strings.Repeat("a", addrBytesMax+1)})
	checkJoinRefused(t, errNotText, JoinElsewhere{Leader: "\x1b[2J"})
}

func FuzzJoinElsewhere(f *testing.F) { fuzzJoin(f, joinElsewheres...) }

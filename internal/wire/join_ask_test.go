package wire

import "testing"

var joinAsks = []JoinMessage{JoinAsk{Number: 1}, JoinAsk{Number: 1 << 63}}

func TestJoinAsk(t *testing.T) {
	for _, m := range joinAsks {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinAsk(f *testing.F) { fuzzJoin(f, joinAsks...) }

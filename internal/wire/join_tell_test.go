package wire

import "testing"

var joinTells = []JoinMessage{
	JoinTell{Number: 1, Record: []byte{}},
	JoinTell{Number: 1 << 63, Record: []byte("\x1b{}")},
	JoinTell{Number: 2, Record: make([]byte, RecordBytesMax)},
}

func TestJoinTell(t *testing.T) {
	for _, m := range joinTells[:2] {
		checkJoinMessage(t, m)
	}
	checkLongest(t, joinTells[2])
	checkJoinRefused(t, errTooLong, JoinTell{Record: make([]byte, RecordBytesMax+1)})
}

func FuzzJoinTell(f *testing.F) { fuzzJoin(f, joinTells...) }

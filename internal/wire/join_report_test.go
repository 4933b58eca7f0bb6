package wire

import "testing"

var joinReports = []JoinMessage{
	JoinReport{Rank: AnyRank, Record: []byte{}, Missing: "no answer within 2s"},
	JoinReport{Rank: 1<<31 - 1, ID: id16(1), Name: "a:1", Addr: "10.0.0.1:7000", Record: []byte("\x1b{}")},
	JoinReport{Rank: 1, ID: id16(2), Record: make([]byte, RecordBytesMax)},
}

func TestJoinReport(t *testing.T) {
	for _, m := range joinReports[:2] {
		checkJoinMessage(t, m)
	}
	checkLongest(t, joinReports[2])
	checkJoinRefused(t, errTooLong, JoinReport{Record: make([]byte, RecordBytesMax+1)})
	checkJoinRefused(t, errNotText, JoinReport{Name: "\x1b[2J"}, JoinReport{Addr: "\n"})
	checkJoinRefused(t, errBadField, JoinReport{Rank: AnyRank - 1})
}

func FuzzJoinReport(f *testing.F) { fuzzJoin(f, joinReports...) }

package wire

import (
	"testing"
)

func TestJoinStatus(t *testing.T) { checkJoinMessage(t, JoinStatus{}) }

func FuzzJoinStatus(f *testing.F) { fuzzJoin(f, JoinStatus{}) }

var joinAsks = []JoinMessage{JoinAsk{Number: 1}, JoinAsk{Number: 1 << 63}}

func TestJoinAsk(t *testing.T) {
	for _, m := range joinAsks {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinAsk(f *testing.F) { fuzzJoin(f, joinAsks...) }

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

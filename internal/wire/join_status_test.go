package wire

import (
	"testing"
)

var joinStatusRequests = []JoinMessage{JoinStatusRequest{}, JoinStatusRequest{Wait: 500, Detail: Brief}}

func TestJoinStatusRequest(t *testing.T) {
	for _, m := range joinStatusRequests {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinStatusRequest(f *testing.F) { fuzzJoin(f, joinStatusRequests...) }

var joinTraceRequests = []JoinMessage{JoinTraceRequest{Number: 1, Detail: Brief}, JoinTraceRequest{Number: 1 << 63, Detail: History}}

func TestJoinTraceRequest(t *testing.T) {
	for _, m := range joinTraceRequests {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinTraceRequest(f *testing.F) { fuzzJoin(f, joinTraceRequests...) }

var joinTraces = []JoinMessage{
	JoinTrace{Number: 1, Trace: []byte{}},
	JoinTrace{Number: 1 << 63, Trace: []byte("\x1b{}")},
	JoinTrace{Number: 2, Trace: make([]byte, TraceBytesMax)},
}

func TestJoinTrace(t *testing.T) {
	for _, m := range joinTraces[:2] {
		checkJoinMessage(t, m)
	}
	checkLongest(t, joinTraces[2])
	checkJoinRefused(t, errTooLong, JoinTrace{Trace: make([]byte, TraceBytesMax+1)})
}

func FuzzJoinTrace(f *testing.F) { fuzzJoin(f, joinTraces...) }

var joinNodeStatuses = []JoinMessage{
	JoinNodeStatus{Rank: AnyRank, Trace: []byte{}, Missing: "has not answered", Silent: 3e9},
	JoinNodeStatus{Rank: 1<<31 - 1, ID: id16(1), Name: "a:1", Addr: "10.0.0.1:7000", Trace: []byte("\x1b{}"), Took: 12e6},
	JoinNodeStatus{Rank: 1, ID: id16(2), Trace: make([]byte, TraceBytesMax)},
}

func TestJoinNodeStatus(t *testing.T) {
	for _, m := range joinNodeStatuses[:2] {
		checkJoinMessage(t, m)
	}
	checkLongest(t, joinNodeStatuses[2])
	checkJoinRefused(t, errTooLong, JoinNodeStatus{Trace: make([]byte, TraceBytesMax+1)})
	checkJoinRefused(t, errNotText, JoinNodeStatus{Name: "\x1b[2J"}, JoinNodeStatus{Addr: "\n"})
	checkJoinRefused(t, errValue, JoinNodeStatus{Rank: AnyRank - 1})
}

func FuzzJoinNodeStatus(f *testing.F) { fuzzJoin(f, joinNodeStatuses...) }

var joinWorldStatuses = []JoinMessage{
	JoinWorldStatus{World: 4, Joined: 1, Changes: []byte{}},
	JoinWorldStatus{Epoch: 1 << 40, World: 8, Joined: 7, Waiting: 3, Formed: true, Asked: 1 << 60, Changes: []byte("[]")},
}

func TestJoinWorldStatus(t *testing.T) {
	for _, m := range joinWorldStatuses {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinWorldStatus(f *testing.F) { fuzzJoin(f, joinWorldStatuses...) }

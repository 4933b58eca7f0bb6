package trace

import (
	"strings"
	"testing"
	"time"
)

func TestOperationString(t *testing.T) {
	message := Operation{Op: "send", Type: "float32", Length: 80, Root: -1, Peer: 2, Tag: 5}
	anything := Operation{Op: "recv", Root: -1, Peer: -1, Tag: -1, Duration: 1500 * time.Millisecond}
	rooted := reduction(9, 0)
	rooted.Op, rooted.Reduce, rooted.Root, rooted.Counts, rooted.Plan = "gather_v", "", 3, 0xabc, "direct in shared memory"
	crowd := late(reduction(7, 0), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	for _, test := range []struct {
		o    Operation
		want string
	}{
		{late(reduction(7, 0), 2), "all_reduce #7 (2 × float32, sum) by ring, running for 3s, in round 1 of 2, waits for rank 2"},
		{late(reduction(7, 0), 2, 4, 5), "all_reduce #7 (2 × float32, sum) by ring, running for 3s, in round 1 of 2, waits for ranks 2, 4 and 5"},
		{crowd, "all_reduce #7 (2 × float32, sum) by ring, running for 3s, in round 1 of 2, waits for ranks 0–9"},
		{ended(reduction(7, 0), OK), "all_reduce #7 (2 × float32, sum) by ring, took 1s"},
		{ended(late(reduction(7, 0), 2), Timeout), "all_reduce #7 (2 × float32, sum) by ring, failed after 1s: timeout, in round 2 of 2, waited for rank 2"},
		{ended(rooted, OK), "gather_v #9 (2 × float32, digest 000abc, root 3) by direct in shared memory, took 1s"},
		{ended(message, OK), "send to rank 2, tag 5, 80 × float32, took 1s"},
		{anything, "recv from any rank, any tag, running for 1.5s, waits for any rank"},
		{call(1, "f\n"), `call of "f\n" at rank 1, running for less than 20ms`},
	} {
		if got := test.o.String(); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
}

func TestSnapshotWriteTable(t *testing.T) {
	setup := ended(reduction(1, 0), OK)
	setup.Purpose, setup.Duration = "setup", 0
	s := Snapshot{
		Node: "abcd", Name: "train", Rank: 1, Size: 4, Epoch: 1, Time: at(10),
		Operations: []Operation{setup, late(reduction(7, 1), 2), ended(reduction(8, 2), PeerFailed)},
	}
	want := strings.Join([]string{
		"rank 1 of 4, epoch 1, node abcd (train), at 2026-03-01 12:00:10.000 UTC",
		"START         COMM       OPERATION                         PLAN  TIME            ROUND  BYTES  OUTCOME      WAITS FOR",
		"12:00:00.000  1 (setup)  all_reduce #1 (2 × float32, sum)  ring  less than 20ms  2/2    0      ok           -",
		"12:00:02.000  1          all_reduce #8 (2 × float32, sum)  ring  1s              2/2    0      peer failed  -",
		"12:00:01.000  1          all_reduce #7 (2 × float32, sum)  ring  3s              1/2    0      running      rank 2",
		"",
	}, "\n")
	if got := s.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (Snapshot{Size: 1, Time: at(0)}).String(); !strings.HasSuffix(got, "\nno operations\n") {
		t.Errorf("without operations: %q", got)
	}
}

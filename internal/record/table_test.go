package record

import (
	"strings"
	"testing"
	"time"
)

// of is the snapshot of a rank of a world of four, ten seconds after it began.
func of(rank int, operations ...Operation) Snapshot {
	return Snapshot{Node: strings.Repeat(string(rune('a'+rank)), 32), Rank: rank, Size: 4, Epoch: 1, Time: at(10), Operations: operations}
}

func TestTable(t *testing.T) {
	in := func(waiting ...int) Operation { return late(reduction(7, 7), waiting...) }
	other := late(reduction(7, 7), 0)
	other.Op, other.Reduce, other.Root = "broadcast", "", 0
	receive := Operation{Comm: "1", Epoch: 1, Op: "recv", Root: -1, Peer: -1, Tag: 5, Began: at(1), Took: 9 * time.Second}
	for name, test := range map[string]struct {
		snapshots []Snapshot
		want      []string
	}{
		"nobody": {nil, []string{"no ranks"}},
		"one is late": {
			[]Snapshot{of(0, in(1)), of(1, in(2)), of(2, ended(reduction(6, 5), OK)), of(3, in(1, 2))},
			[]string{
				"epoch 1, 4 of 4 ranks heard of",
				"RANK  NODE      IN                                                              COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)                                1     3s   1/2    rank 1",
				"1     bbbbbbbb  all_reduce #7 (2 × float32, sum)                                1     3s   1/2    rank 2",
				"2     cccccccc  nothing, for 4s; last in all_reduce #6 (2 × float32, sum)",
				"3     dddddddd  all_reduce #7 (2 × float32, sum)                                1     3s   1/2    ranks 1 and 2",
				"late: rank 2, for which 3 ranks wait: nothing, for 4s; last in all_reduce #6 (2 × float32, sum)",
			},
		},
		"one is not there": {
			[]Snapshot{of(0, in(1)), of(1, in(2)), of(3)},
			[]string{
				"epoch 1, 3 of 4 ranks heard of",
				"RANK  NODE      IN                                COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)  1     3s   1/2    rank 1",
				"1     bbbbbbbb  all_reduce #7 (2 × float32, sum)  1     3s   1/2    rank 2",
				"3     dddddddd  nothing by now",
				"late: rank 2, for which 2 ranks wait: not heard of",
				"not heard of: rank 2",
			},
		},
		"one receives, in vain": {
			[]Snapshot{of(0, in(1)), of(1, receive), of(2), of(3)},
			[]string{
				"epoch 1, 4 of 4 ranks heard of",
				"RANK  NODE      IN                                COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)  1     3s   1/2    rank 1",
				"1     bbbbbbbb  recv from any rank, tag 5         1     9s   -      any rank",
				"2     cccccccc  nothing by now",
				"3     dddddddd  nothing by now",
				"late: rank 1, for which 1 rank waits: in recv from any rank, tag 5",
			},
		},
		"different calls, in a circle": {
			[]Snapshot{of(0, in(1)), of(1, other), of(2), of(3, ended(reduction(7, 5), Cancelled))},
			[]string{
				"epoch 1, 4 of 4 ranks heard of",
				"RANK  NODE      IN                                                                                  COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)                                                    1     3s   1/2    rank 1",
				"1     bbbbbbbb  broadcast #7 (2 × float32, root 0)                                                  1     3s   1/2    rank 0",
				"2     cccccccc  nothing by now",
				"3     dddddddd  nothing, for 4s; last in all_reduce #7 (2 × float32, sum), which failed: cancelled",
				"different calls on communicator 1: rank 0 in all_reduce #7 (2 × float32, sum), rank 1 in broadcast #7 (2 × float32, root 0)",
				"in a circle: ranks 0 and 1 wait for each other",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sameTable(t, test.snapshots, test.want)
		})
	}
}

// sameTable compares lines, save for the width of columns.
func sameTable(t *testing.T, snapshots []Snapshot, want []string) {
	t.Helper()
	var b strings.Builder
	if err := Table(&b, snapshots); err != nil {
		t.Fatal(err)
	}
	words := func(lines []string) string {
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return strings.Join(lines, "\n")
	}
	if got := words(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")); got != words(want) {
		t.Errorf("got\n%s\nwant\n%s", got, words(want))
	}
}

// Of several snapshots of a rank the newest counts, and of several epochs.
func TestTableNewest(t *testing.T) {
	old, new := of(0, late(reduction(6, 1), 1)), of(0, late(reduction(7, 1), 1))
	old.Time = at(5)
	before := of(1, late(reduction(5, 0), 0))
	before.Epoch = 0
	var b strings.Builder
	if err := Table(&b, []Snapshot{before, new, old}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "#7") || strings.Contains(got, "#6") || strings.Contains(got, "#5") {
		t.Errorf("got\n%s", got)
	}
}

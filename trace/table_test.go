package trace

import (
	"strings"
	"testing"
	"time"
)

// of returns the snapshot of a rank of a world of four, ten seconds after its begin.
func of(rank int, operations ...Operation) Snapshot {
	return Snapshot{Node: strings.Repeat(string(rune('a'+rank)), 32), Rank: rank, Size: 4, Epoch: 1, Time: at(10), Operations: operations}
}

func TestWriteTable(t *testing.T) {
	in := func(waiting ...int) Operation { return late(reduction(7, 7), waiting...) }
	other := late(reduction(7, 7), 0)
	other.Op, other.Reduce, other.Root = "broadcast", "", 0
	for name, test := range map[string]struct {
		snapshots []Snapshot
		want      []string
	}{
		"nobody": {nil, []string{"No rank has joined"}},
		"one is late": {
			[]Snapshot{of(0, in(1)), of(1, in(2)), of(2, ended(reduction(6, 5), OK)), of(3, in(1, 2))},
			[]string{
				"Ranks 0, 1 and 3 wait in all_reduce #7 for rank 2, which has been in no call for 4 s",
				"epoch 1, 4 of 4 ranks heard of",
				"RANK  NODE      IN                                                              COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)                                1     3s   1/2    rank 1",
				"1     bbbbbbbb  all_reduce #7 (2 × float32, sum)                                1     3s   1/2    rank 2",
				"2     cccccccc  nothing, for 4s; last in all_reduce #6 (2 × float32, sum)",
				"3     dddddddd  all_reduce #7 (2 × float32, sum)                                1     3s   1/2    ranks 1 and 2",
			},
		},
		"one is not there": {
			[]Snapshot{of(0, in(1)), of(1, in(2)), of(3)},
			[]string{
				"Ranks 0 and 1 wait in all_reduce #7 for rank 2, which has not answered",
				"epoch 1, 3 of 4 ranks heard of",
				"RANK  NODE      IN                                COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)  1     3s   1/2    rank 1",
				"1     bbbbbbbb  all_reduce #7 (2 × float32, sum)  1     3s   1/2    rank 2",
				"3     dddddddd  nothing by now",
			},
		},
		"one receives, in vain": {
			[]Snapshot{of(0, in(1)), of(1, receive(-1, 9*time.Second)), of(2), of(3)},
			[]string{
				"Rank 0 waits in all_reduce #7 for rank 1, which has been in recv from any rank for 9 s",
				"epoch 1, 4 of 4 ranks heard of",
				"RANK  NODE      IN                                COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)  1     3s   1/2    rank 1",
				"1     bbbbbbbb  recv from any rank, tag 5         1     9s   -      any rank",
				"2     cccccccc  nothing by now",
				"3     dddddddd  nothing by now",
			},
		},
		"different calls, in a cycle": {
			[]Snapshot{of(0, in(1)), of(1, other), of(2), of(3, ended(reduction(7, 5), Cancelled))},
			[]string{
				"The calls do not match: rank 0 in all_reduce #7 (2 × float32, sum) and rank 1 in broadcast #7 (2 × float32, root 0)",
				"epoch 1, 4 of 4 ranks heard of",
				"RANK  NODE      IN                                                                                  COMM  FOR  ROUND  WAITS FOR",
				"0     aaaaaaaa  all_reduce #7 (2 × float32, sum)                                                    1     3s   1/2    rank 1",
				"1     bbbbbbbb  broadcast #7 (2 × float32, root 0)                                                  1     3s   1/2    rank 0",
				"2     cccccccc  nothing by now",
				"3     dddddddd  nothing, for 4s; last in all_reduce #7 (2 × float32, sum), which failed: cancelled",
				"Rank 0 waits in all_reduce #7 for rank 1, which has been in broadcast #7 for 3 s: a deadlock",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sameWriteTable(t, test.snapshots, test.want)
		})
	}
}

// sameTable compares lines, ignoring the width of columns.
func sameWriteTable(t *testing.T, snapshots []Snapshot, want []string) {
	t.Helper()
	var b strings.Builder
	if err := WriteTable(&b, snapshots); err != nil {
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

// TestTableNewest: only the newest epoch, and the newest snapshot of each rank, count.
func TestTableNewest(t *testing.T) {
	older, newer := of(0, late(reduction(6, 1), 1)), of(0, late(reduction(7, 1), 1))
	older.Time = at(5)
	before := of(1, late(reduction(5, 0), 0))
	before.Epoch = 0
	var b strings.Builder
	if err := WriteTable(&b, []Snapshot{before, newer, older}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "#7") || strings.Contains(got, "#6") || strings.Contains(got, "#5") {
		t.Errorf("got\n%s", got)
	}
}

// over adds links to a snapshot.
func over(s Snapshot, links ...Link) Snapshot {
	s.Links = links
	return s
}

// A flightCase is the snapshots of ranks that wait for each other.
type flightCase struct {
	snapshots    []Snapshot
	want, lacked []string
}

func flightCases() map[string]flightCase {
	in := func(peer int) Operation { return receive(peer, 3*time.Second) }
	return map[string]flightCase{
		"all has arrived": {
			[]Snapshot{
				over(of(0, in(1)), Link{Rank: 1, Transport: "tcp", Sent: 500, Received: 700}, Link{Rank: 2, Transport: "tcp", Sent: 300, Received: 100}),
				over(of(1, in(2)), Link{Rank: 0, Transport: "tcp", Sent: 700, Received: 500}, Link{Rank: 2, Transport: "tcp", Sent: 40, Received: 50}),
				over(of(2, in(0)), Link{Rank: 0, Transport: "tcp", Sent: 100, Received: 300}, Link{Rank: 1, Transport: "tcp", Sent: 50, Received: 40}),
				of(3),
			},
			[]string{"Ranks 0–2 have waited for each other for 3 s, rank 0 in recv from rank 1, rank 1 in recv from rank 2 and rank 2 in recv from rank 0: a deadlock"}, []string{"in flight"},
		},
		"one link holds bytes": {
			[]Snapshot{
				over(of(0, in(1)), Link{Rank: 1, Transport: "tcp", Sent: 500, Received: 640}),
				over(of(1, in(2)), Link{Rank: 0, Transport: "tcp", Sent: 700, Received: 500}, Link{Rank: 2, Transport: "tcp", Sent: 40, Received: 50}),
				over(of(2, in(0)), Link{Rank: 1, Transport: "tcp", Sent: 50, Received: 40}),
				of(3),
			},
			[]string{"Ranks 1 and 2 wait, 1 of them in recv from rank 2, for rank 0, which has been in recv from rank 1 for 3 s, with data of rank 1 for rank 0 in flight"}, []string{"deadlock"},
		},
		"bytes that nobody waits for": {
			[]Snapshot{
				over(of(0, in(1)), Link{Rank: 1, Transport: "tcp", Sent: 500, Received: 700}),
				over(of(1, in(0)), Link{Rank: 0, Transport: "tcp", Sent: 700, Received: 500}, Link{Rank: 2, Transport: "tcp", Sent: 40, Received: 50}),
				over(of(2), Link{Rank: 1, Transport: "tcp", Sent: 50, Received: 30}),
				of(3),
			},
			[]string{"Rank 0 waits in recv from rank 1, which has been in recv from rank 0 for 3 s: a deadlock"}, []string{"in flight"},
		},
		"a cycle beside it": {
			[]Snapshot{
				over(of(0, in(1)), Link{Rank: 1, Transport: "quic", Sent: 0, Received: 9}),
				over(of(1, in(0)), Link{Rank: 0, Transport: "quic", Sent: 10, Received: 0}),
				over(of(2, in(3)), Link{Rank: 3, Transport: "quic", Sent: 5, Received: 6}),
				over(of(3, in(2)), Link{Rank: 2, Transport: "quic", Sent: 6, Received: 5}),
			},
			[]string{
				"Rank 1 waits in recv from rank 0, which has been in recv from rank 1 for 3 s, with data of rank 1 for rank 0 in flight",
				"Rank 2 waits in recv from rank 3, which has been in recv from rank 2 for 3 s: a deadlock",
			}, nil,
		},
		"a rank is late and another link holds bytes": {
			[]Snapshot{
				over(of(0, in(1)), Link{Rank: 1, Transport: "", Sent: 0, Received: 9}),
				over(of(1, in(0)), Link{Rank: 0, Transport: "", Sent: 10, Received: 0}),
				of(2), of(3, in(2)),
			},
			[]string{
				"Rank 3 waits in recv from rank 2, which has made no call",
				"Rank 1 waits in recv from rank 0, which has been in recv from rank 1 for 3 s, with data of rank 1 for rank 0 in flight",
			}, []string{"deadlock"},
		},
		"one side does not say": {
			[]Snapshot{over(of(0, in(1)), Link{Rank: 1, Transport: "tcp", Sent: 0, Received: 9}), of(1, in(0)), of(2), of(3)},
			[]string{"Rank 0 waits in recv from rank 1, which has been in recv from rank 0 for 3 s: a deadlock"}, []string{"in flight"},
		},
	}
}

// TestTableInFlight: a cycle is reported only if both sides of each link agree on the bytes. Otherwise the link with
// the bytes in flight is reported.
func TestTableInFlight(t *testing.T) {
	for name, test := range flightCases() {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := WriteTable(&b, test.snapshots); err != nil {
				t.Fatal(err)
			}
			for _, text := range test.want {
				if !strings.Contains(b.String(), text) {
					t.Errorf("no %q in\n%s", text, b.String())
				}
			}
			for _, text := range test.lacked {
				if strings.Contains(b.String(), text) {
					t.Errorf("%q in\n%s", text, b.String())
				}
			}
		})
	}
}

// TestTableOfLinks: the table counts the links and their purposes if ranks are not linked to each other.
func TestTableOfLinks(t *testing.T) {
	watch, message := Link{Rank: 1, Purpose: "watch"}, Link{Rank: 2, Purpose: "message"}
	for name, test := range map[string]struct {
		links [3][]Link
		want  string
	}{
		"all":  {[3][]Link{{watch, message}, {watch, watch}, {watch, watch}}, ""},
		"none": {[3][]Link{}, ""},
		"some": {[3][]Link{{watch, message}, {watch}, {message}}, "each rank is linked to 1 to 2 of 2 others: message 2, watch 2\n"},
		"relays": {
			[3][]Link{{watch}, {watch}, {{Rank: 0, Purpose: "message", Hops: 2, Relay: 1, Delay: 1_234_567}, {Rank: 1, Purpose: "call", Hops: 3}}},
			"each rank is linked to 1 to 2 of 2 others: call 1, message 1, watch 2\n" +
				"2 links go through relays, over up to 3 hops; the slowest, from rank 2 to rank 0 by rank 1, takes 1.23ms there and back\n",
		},
		"lost packets": {
			[3][]Link{{watch}, {watch, {Rank: 2, Hops: 2, Lost: 2}}, {{Rank: 0, Purpose: "message", Hops: 2, Relay: 1, Lost: 5}}},
			"each rank is linked to 1 to 2 of 2 others: message 1, unknown 1, watch 2\n2 links go through relays, over up to 2 hops\n" +
				"packets over relays that were lost and sent again: 7; most of them, 5, went from rank 2 to rank 0\n",
		},
		"devices": {
			[3][]Link{{watch}, {watch}, {{Rank: 0, Purpose: "watch", DeviceMemory: "dma-buf"}}},
			"each rank is linked to 1 of 2 others: watch 3\nmemory of devices, by links: dma-buf 1\n",
		},
		"the same": {[3][]Link{{watch}, {watch}, {{Rank: 0}}}, "each rank is linked to 1 of 2 others: unknown 1, watch 2\n"},
	} {
		var list []Snapshot
		for rank, links := range test.links {
			list = append(list, Snapshot{Rank: rank, Size: 3, Links: links, Relayed: new(Relayed)})
		}
		var b strings.Builder
		if err := WriteTable(&b, list); err != nil {
			t.Fatal(err)
		}
		if _, got, _ := strings.Cut(b.String(), "each"); "each"+got != test.want && (got != "" || test.want != "") {
			t.Errorf("%s: got\n%s\nwant the line %q", name, b.String(), test.want)
		}
	}
}

package trace

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

// sized returns a formed cluster of so many ranks on hosts of 32 ranks each. do returns what a rank is in; a
// rank without a snapshot does not answer.
func sized(n int, do func(rank int) (operations []Operation, answers bool)) Cluster {
	c := Cluster{Time: at(10), Formed: true, Epoch: 1, World: n, Joined: n}
	for rank := range n {
		node := Node{Rank: rank, Node: fmt.Sprintf("%032x", rank), Name: fmt.Sprintf("%c:%d", 'a'+rank/32, 100+rank)}
		if operations, answers := do(rank); answers {
			node.Snapshot = &Snapshot{Node: node.Node, Name: node.Name, Rank: rank, Size: n, Epoch: 1, Time: at(10), Operations: operations}
		} else {
			node.Missing = "has not answered for 3 s"
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c
}

// measured gives the clocks of all nodes offsets. That of rank is special, and its snapshot is later by so much.
func measured(c Cluster, rank int, offset, later time.Duration) Cluster {
	for i := range c.Nodes {
		c.Nodes[i].OffsetError = time.Millisecond
	}
	n := &c.Nodes[rank]
	n.Offset, n.Snapshot.Time = offset, n.Snapshot.Time.Add(offset+later)
	return c
}

// in is a running collective that has lasted for d, and waits for ranks.
func in(op string, seq uint64, d time.Duration, waiting ...int) Operation {
	return Operation{Comm: "1", Epoch: 1, Op: op, Seq: seq, Root: -1, Peer: -1, Start: at(10).Add(-d), Duration: d, Waiting: waiting}
}

func TestSentence(t *testing.T) {
	done := ended(reduction(811, 9), OK)
	done.Duration = 900 * time.Millisecond
	for name, test := range map[string]struct {
		cluster Cluster
		state   string
		want    string
	}{
		"late": {sized(64, func(rank int) ([]Operation, bool) {
			if rank == 37 {
				return []Operation{done}, true
			}
			return []Operation{in("all_reduce", 812, 40*time.Millisecond, 37)}, true
		}), Late, "All 64 ranks work; rank 37 on host b is 40 ms behind in all_reduce #812"},
		"it has begun the operation since": {sized(64, func(rank int) ([]Operation, bool) {
			if rank == 37 {
				return []Operation{in("all_reduce", 812, time.Millisecond)}, true
			}
			return []Operation{in("all_reduce", 812, 40*time.Millisecond, 37)}, true
		}), Working, "All 64 ranks work"},
		"a brief wait": {sized(4, func(rank int) ([]Operation, bool) {
			if rank == 3 {
				return []Operation{done}, true
			}
			return []Operation{in("all_reduce", 812, 4*time.Millisecond, 3)}, true
		}), Working, "All 4 ranks work"},
		"clocks a day apart": {measured(sized(64, func(rank int) ([]Operation, bool) {
			if rank == 37 {
				return []Operation{done}, true
			}
			return []Operation{in("all_reduce", 812, 60*time.Millisecond, 37)}, true
		}), 37, 24*time.Hour, -20*time.Millisecond), Late, "All 64 ranks work; rank 37 on host b is 40 ms behind in all_reduce #812"},
		"a snapshot from before the others began": {measured(sized(64, func(rank int) ([]Operation, bool) {
			if rank == 37 {
				return []Operation{done}, true
			}
			return []Operation{in("all_reduce", 812, 60*time.Millisecond, 37)}, true
		}), 37, 0, -60*time.Millisecond), Working, "All 64 ranks work"},
		"deadlock": {sized(8, func(rank int) ([]Operation, bool) {
			if rank == 7 {
				return []Operation{receive(0, 14*time.Second)}, true
			}
			return []Operation{in("barrier", 12, 15*time.Second, 7)}, true
		}), Deadlock, "Ranks 0–6 wait in barrier #12 for rank 7, which has been in recv from rank 0 for 14 s: a deadlock"},
		"512 ranks in one deadlock": {sized(512, func(rank int) ([]Operation, bool) {
			return []Operation{receive((rank+1)%512, time.Duration(14+rank)*time.Second)}, true
		}), Deadlock, "Ranks 0–511 have waited for each other for 14 s, rank 0 on host a in recv from rank 1, rank 1 on host a in recv from rank 2, " +
			"rank 2 on host a in recv from rank 3 and 509 more in other calls: a deadlock"},
		"it may end by a call": {sized(2, func(rank int) ([]Operation, bool) {
			return []Operation{receive(1-rank, 14*time.Second), call(1-rank, "f")}, true
		}), Stalled, "Rank 1 waits in recv from rank 0, which has been in recv from rank 1 for 14 s"},
		"it may end by any rank": {sized(2, func(rank int) ([]Operation, bool) {
			list := []Operation{receive(1-rank, 14*time.Second)}
			if rank == 0 {
				list = append(list, receive(-1, 14*time.Second))
			}
			return list, true
		}), Stalled, "Rank 1 waits in recv from rank 0, which has been in recv from rank 1 for 14 s"},
		"a rank that may go on waits": {sized(3, func(rank int) ([]Operation, bool) {
			switch rank {
			case 0:
				return []Operation{receive(1, 5*time.Second)}, true
			case 1:
				return []Operation{receive(2, 14*time.Second), call(2, "f")}, true
			}
			return []Operation{done}, true
		}), Stalled, "Rank 1 waits in recv from rank 2, which has been in no call for 100 ms"},
		"a rank leaves": {sized(2, func(rank int) ([]Operation, bool) {
			return []Operation{in([]string{"leave", "barrier"}[rank], 12, 14*time.Second, 1-rank)}, true
		}), Deadlock, "Rank 0 waits in leave #12 for rank 1, which has been in barrier #12 for 14 s: a deadlock"},
		"a rank waits for itself": {sized(2, func(rank int) ([]Operation, bool) {
			o := receive(rank, 2*time.Second)
			o.Op = "send"
			return []Operation{o}, rank == 0
		}), Deadlock, "Rank 0 has waited for itself in send to rank 0 for 2 s: a deadlock"},
		"two groups of one long collective each": {sized(4, func(rank int) ([]Operation, bool) {
			o := in("all_reduce", 9, 5*time.Second, rank^1)
			o.Comm = []string{"1", "2"}[rank/2]
			return []Operation{o}, true
		}), Working, "All 4 ranks work"},
		"a long collective of all ranks": {sized(4, func(rank int) ([]Operation, bool) {
			return []Operation{in("all_reduce", 9, 15*time.Second, (rank+1)%4)}, true
		}), Working, "All 4 ranks work; ranks 0–3 have been in all_reduce #9 for 15 s"},
		"a long collective whose data moves": {func() Cluster {
			c := sized(4, func(rank int) ([]Operation, bool) {
				return []Operation{in("all_reduce", 9, 15*time.Second, (rank+3)%4)}, true
			})
			for rank := range 3 { // The bytes of rank 3 have arrived.
				c.Nodes[rank].Snapshot.Links = append(c.Nodes[rank].Snapshot.Links, Link{Rank: rank + 1, Sent: 700})
				c.Nodes[rank+1].Snapshot.Links = append(c.Nodes[rank+1].Snapshot.Links, Link{Rank: rank, Received: 500})
			}
			return c
		}(), Working, "All 4 ranks work; ranks 0–3 have been in all_reduce #9 for 15 s, with data of rank 0 for rank 1 in flight"},
		"a long collective whose data does not move": {func() Cluster {
			c := sized(4, func(rank int) ([]Operation, bool) {
				o := in("all_reduce", 9, 15*time.Second, (rank+3)%4)
				o.Still = 14 * time.Second
				return []Operation{o}, true
			})
			c.Nodes[0].Snapshot.Links = append(c.Nodes[0].Snapshot.Links, Link{Rank: 1, Sent: 700})
			c.Nodes[1].Snapshot.Links = append(c.Nodes[1].Snapshot.Links, Link{Rank: 0, Received: 500})
			return c
		}(), Stalled, "Ranks 0, 2 and 3 wait in all_reduce #9 for rank 1, which has been in all_reduce #9 for 15 s, with data of rank 0 for rank 1 in flight"},
		"silent": {sized(40, func(rank int) ([]Operation, bool) { return []Operation{done}, rank != 5 }), Silent,
			"Rank 5 on host a has not answered for 3 s"},
		"others wait for the silent one": {sized(40, func(rank int) ([]Operation, bool) {
			return []Operation{in("barrier", 3, 2500*time.Millisecond, 5, 6)}, rank != 5 && rank != 6
		}), Silent, "Ranks 0–4 and 7–39 wait in barrier #3 for ranks 5 and 6 on host a, which have not answered for 3 s"},
		"a cut": {sized(4, func(rank int) ([]Operation, bool) {
			switch rank {
			case 0:
				return []Operation{receive(1, 3*time.Second)}, true
			case 3:
				return []Operation{done}, true
			}
			return []Operation{in("gather", 4, 150*time.Minute, 3)}, true
		}), Stalled, "Ranks 0–2 wait, 2 of them in gather #4, for rank 3, which has been in no call for 100 ms"},
		"idle": {sized(3, func(int) ([]Operation, bool) {
			o := ended(reduction(9, 2), OK)
			return []Operation{o}, true
		}), Working, "All 3 ranks work, and have been in no call for 7 s; the last was all_reduce #9"},
		"alone":      {sized(1, func(int) ([]Operation, bool) { return nil, true }), Working, "The only rank works, and has made no call"},
		"nobody yet": {Cluster{World: 2}, Forming, "The world forms: 0 of 2 have joined"},
		"one is missing": {Cluster{World: 4, Joined: 3, Nodes: []Node{{Rank: 0}, {Rank: 1}, {Rank: 3}}}, Forming,
			"The world forms: 3 of 4 have joined; rank 2 is missing"},
		"many are missing": {Cluster{World: math.MaxUint32, Joined: 1, Nodes: []Node{{Rank: 7}}}, Forming,
			"The world forms: 1 of 4294967295 has joined; ranks 0–6 and 8–65535 are missing"},
		"any rank":    {Cluster{World: 4, Joined: 1, Nodes: []Node{{Rank: -1}}}, Forming, "The world forms: 1 of 4 has joined"},
		"all is here": {Cluster{World: 2, Joined: 2, Epoch: 1}, Forming, "The world forms: all 2 nodes have joined, and connect to each other"},
		"some connect": {Cluster{World: 4, Joined: 4, Epoch: 1, Nodes: []Node{{Rank: 0}, {Rank: 1, Missing: Unconnected, Name: "b:1"}, {Rank: 2, Name: "a:1"}, {Rank: 3, Missing: Unconnected, Name: "b:2"}}}, Forming,
			"The world forms: all 4 nodes have joined, and connect to each other; ranks 1 and 3 on host b have not connected to all others"},
		"all connect": {Cluster{World: 2, Joined: 2, Epoch: 1, Nodes: []Node{{Rank: 0, Missing: Unconnected}, {Rank: 1, Missing: Unconnected}}}, Forming,
			"The world forms: all 2 nodes have joined, and connect to each other"},
		"a loss": {func() Cluster {
			c := sized(3, func(int) ([]Operation, bool) { return []Operation{receive(-1, time.Second)}, true })
			c.SeedTime = at(0).Add(26 * time.Hour)
			c.Changes = []Change{
				{Time: c.SeedTime.Add(-12 * time.Second), What: Lost, Rank: 3, Name: "c:9", Why: "it was silent for 30s"},
				{Time: c.SeedTime.Add(-2 * time.Second), What: Joined, Rank: 2, Name: "d:9"},
			}
			return c
		}(), Lost, "Rank 3 on host c was lost 12 s ago: it was silent for 30s; the other 3 ranks work"},
		"a loss that the last rank has not learned": {func() Cluster {
			c := sized(2, func(rank int) ([]Operation, bool) { return nil, rank == 0 })
			c.Nodes, c.Epoch, c.Joined, c.SeedTime = c.Nodes[:1], c.Epoch+1, 1, at(10)
			c.Changes = []Change{{Time: at(3), What: Lost, Rank: 1, Name: "c:9", Why: "its process has ended"}}
			return c
		}(), Lost, "Rank 1 on host c was lost 7 s ago: its process has ended; the other rank works"},
		"an old loss": {func() Cluster {
			c := sized(3, func(int) ([]Operation, bool) { return []Operation{receive(-1, time.Second)}, true })
			c.SeedTime = at(10)
			c.Changes = []Change{{Time: at(10).Add(-time.Hour), What: Excluded, Rank: 3}}
			return c
		}(), Working, "All 3 ranks work"},
		"others wait to join": {func() Cluster {
			c := sized(1, func(int) ([]Operation, bool) { return []Operation{receive(-1, time.Second)}, true })
			c.Waiting = 2
			return c
		}(), Working, "The only rank works; 2 nodes wait for a place"},
		"a change": {func() Cluster {
			c := sized(3, func(int) ([]Operation, bool) { return []Operation{receive(-1, time.Second)}, true })
			c.Epoch, c.Nodes[0].Snapshot.Epoch, c.Nodes[2].Snapshot.Epoch = 2, 2, 2
			for _, r := range []int{0, 2} {
				c.Nodes[r].Snapshot.Operations[0].Epoch = 2
			}
			return c
		}(), Changing, "Rank 1 has not reached epoch 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if f := test.cluster.Findings()[0]; f.Text != test.want || f.State != test.state {
				t.Errorf("%s: %s\nwant %s: %s", f.State, f.Text, test.state, test.want)
			}
		})
	}
}

// TestSentenceIsBounded: for all snapshots of hostile nodes, the findings are few sentences of bounded length.
// TestGroup: ranks in the same call are together, for the shortest of their times, with the line of the program if it is the same for all.
func TestGroup(t *testing.T) {
	c := sized(3, func(rank int) ([]Operation, bool) {
		if rank == 0 {
			return []Operation{in("barrier", 12, 14*time.Second, 1, 2)}, true
		}
		o := receive(0, time.Duration(10+rank)*time.Second)
		o.Site = fmt.Sprintf("train/main.go:%d", rank)
		return []Operation{o}, true
	})
	if got := c.Sentence(); got != "Ranks 1 and 2 wait in recv from rank 0, which has been in barrier #12 for 14 s: a deadlock" {
		t.Errorf("got %q", got)
	}
	if got := c.Findings()[0].For; got != 11*time.Second {
		t.Errorf("for %v, want 11s", got)
	}
	c = sized(2, func(rank int) ([]Operation, bool) { return nil, rank == 0 })
	c.Nodes[1].Missing = "has " + strings.Repeat("x", 2000)
	if got := c.Sentence(); len(got) > 200 {
		t.Errorf("got %q", got)
	}
}

// TestAbout: a rank may ask about a brief wait.
func TestAbout(t *testing.T) {
	c := sized(2, func(rank int) ([]Operation, bool) { return []Operation{receive(1-rank, 20*time.Millisecond)}, true })
	if got := c.About(0); got != "Rank 0 waits in recv from rank 1, which has been in recv from rank 0 for 20 ms: a deadlock" {
		t.Errorf("got %q", got)
	}
	if got := c.Sentence(); got != "All 2 ranks work" {
		t.Errorf("the cluster: %q", got)
	}
}

// TestOneIsLate: of brief delays the longest alone is reported.
func TestOneIsLate(t *testing.T) {
	c := sized(4, func(rank int) ([]Operation, bool) {
		if rank%2 == 1 {
			return nil, true
		}
		o := in("all_reduce", 812, time.Duration(40+rank)*time.Millisecond, rank+1)
		o.Comm = []string{"1", "2"}[rank/2]
		return []Operation{o}, true
	})
	c.Nodes[3].Snapshot.Operations = []Operation{ended(reduction(3, 9), OK)}
	if list := c.Findings(); len(list) != 1 || !slices.Equal(list[0].Ranks, []int{3}) {
		t.Errorf("the findings are %+v", list)
	}
}

// TestUnknownRanks: ranks that the cluster does not have, or that are beyond the bound, are not waited for.
func TestUnknownRanks(t *testing.T) {
	for rank, size := range map[int]int{2: 2, worldMax: worldMax + 1} {
		c := Cluster{Formed: true, Epoch: 1, Joined: size, Nodes: []Node{{Snapshot: &Snapshot{Size: size, Epoch: 1, Time: at(10)}}}}
		c.Nodes[0].Snapshot.Operations = []Operation{in("barrier", 1, time.Minute, rank)}
		if f := c.Findings()[0]; f.State != Working || slices.Contains(f.Ranks, rank) {
			t.Errorf("rank %d of %d: %+v", rank, size, f)
		}
	}
}

func TestSentenceIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "ranks")
		rank := rapid.OneOf(rapid.IntRange(-1, n), rapid.SampledFrom([]int{math.MaxInt, math.MaxInt32}))
		text := rapid.OneOf(rapid.SampledFrom([]string{"recv", "send", "call", "barrier", "leave", "1", ""}), rapid.StringOfN(rapid.RuneFrom(nil, unicode.L), 0, 256, 256))
		d := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.OneOf(rapid.Int64Range(0, int64(20*time.Second)), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "d"))
		})
		operation := rapid.Custom(func(t *rapid.T) Operation {
			o := Operation{
				Comm: text.Draw(t, "comm"), Epoch: rapid.Uint64Max(2).Draw(t, "epoch"), Op: text.Draw(t, "op"), Seq: rapid.Uint64Max(3).Draw(t, "seq"),
				Function: text.Draw(t, "function"), Type: text.Draw(t, "type"), Root: -1, Peer: rank.Draw(t, "peer"),
				Start: at(0).Add(-d.Draw(t, "start")), Duration: d.Draw(t, "duration"), Outcome: rapid.SampledFrom([]string{"", OK}).Draw(t, "outcome"),
			}
			for _, r := range rapid.SliceOfN(rank, 0, 64).Draw(t, "waiting") {
				o.Waiting = append(o.Waiting, max(r, 0))
			}
			return o
		})
		c := Cluster{
			Formed: rapid.Bool().Draw(t, "formed"), Epoch: rapid.Uint64Max(2).Draw(t, "epoch"), World: rank.Draw(t, "world"),
			Joined: max(0, rank.Draw(t, "joined")), Waiting: rapid.IntRange(0, 2).Draw(t, "waiting"),
		}
		for range n {
			node := Node{Rank: rank.Draw(t, "rank"), Name: text.Draw(t, "name"), Missing: text.Draw(t, "missing")}
			if rapid.Bool().Draw(t, "answers") {
				node.Snapshot = &Snapshot{
					Rank: max(0, rank.Draw(t, "rank")), Size: max(1, rank.Draw(t, "size")), Epoch: rapid.Uint64Max(2).Draw(t, "epoch"), Name: text.Draw(t, "name"),
					Operations: rapid.SliceOfN(operation, 0, 4).Draw(t, "operations"),
					Links:      []Link{{Rank: max(0, rank.Draw(t, "link")), Sent: rapid.Uint64().Draw(t, "sent"), Transport: text.Draw(t, "transport")}},
				}
			}
			c.Nodes = append(c.Nodes, node)
		}
		list := c.Findings()
		if len(list) == 0 || len(list) > findingsMax {
			t.Fatalf("%d findings", len(list))
		}
		for _, f := range list {
			if len(f.Text) > 1024 || len(f.Ranks) > ranksMax || strings.ContainsRune(f.Text, '\n') || f.For < 0 {
				t.Fatalf("a finding of %d bytes with %d ranks: %+v", len(f.Text), len(f.Ranks), f)
			}
		}
		if _, err := c.WriteTo(new(strings.Builder)); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkSentence measures the analysis of 1,024 ranks. Each waits for 64 others.
func BenchmarkSentence(b *testing.B) {
	c := sized(1024, func(rank int) ([]Operation, bool) {
		var waiting []int
		for i := range 64 {
			waiting = append(waiting, (rank+1+i)%1024)
		}
		return []Operation{in("all_to_all", 7, 2*time.Second, waiting...)}, rank != 17
	})
	for b.Loop() {
		c.Sentence()
	}
}

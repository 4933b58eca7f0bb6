package page

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// A fake is a cluster that makes all-reduces. Its fields may be changed between answers, under mu.
type fake struct {
	mu      sync.Mutex
	ranks   int
	perHost int
	late    int  // rank that has not begun the current call; -1: none
	silent  int  // rank that does not answer; -1: none
	mutual  bool // all ranks wait for each other in receives
	name    func(rank int) string
	skew    func(rank int) time.Duration // of the clock of a rank
	seq     uint64
	began   time.Time // of the current call
	clock   func() time.Time
	formed  time.Time
}

func newFake(ranks, perHost int) *fake {
	f := &fake{ranks: ranks, perHost: perHost, late: -1, silent: -1, seq: 811, clock: time.Now}
	f.name = func(rank int) string {
		return fmt.Sprintf("node-%c%d:%d", 'a'+rank/perHost%26, rank/perHost/26, 4100+rank)
	}
	f.skew = func(int) time.Duration { return 0 }
	f.began = f.clock()
	return f
}

func (f *fake) ask(context.Context) (trace.Cluster, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	if f.late < 0 && f.silent < 0 && !f.mutual {
		f.seq++
		f.began = now.Add(-12 * time.Millisecond)
	}
	c := trace.Cluster{Time: now, Formed: true, Epoch: 1, World: f.ranks, Joined: f.ranks}
	c.SeedTime = now
	if !f.formed.IsZero() {
		c.Changes = []trace.Change{{Time: f.formed, Epoch: 1, Size: f.ranks, What: trace.Formed}}
	}
	for r := range f.ranks {
		n := trace.Node{Rank: r, Node: fmt.Sprintf("%032x", r+1), Name: f.name(r), Addr: "10.0.0.1:7000"}
		if r == f.silent {
			n.Missing = "has not answered within 500ms"
		} else {
			n.Snapshot = f.snapshot(r, n, now)
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c, nil
}

func (f *fake) snapshot(r int, n trace.Node, now time.Time) *trace.Snapshot {
	skew := f.skew(r)
	s := &trace.Snapshot{Node: n.Node, Name: n.Name, Rank: r, Size: f.ranks, Epoch: 1, Time: now.Add(skew)}
	call := trace.Operation{Comm: "1", Epoch: 1, Op: "all_reduce", Type: "float32", Length: 25557032, Reduce: "sum", Plan: "ring", Root: -1, Peer: -1, Rounds: 30, Outcome: trace.OK}
	for i := range uint64(3) {
		o := call
		o.Seq = f.seq - 3 + i
		o.Start = f.began.Add(-time.Duration(3-i)*310*time.Millisecond + time.Duration(r*r%17)*400*time.Microsecond + skew)
		if r == f.ranks*2/3 && o.Seq%5 == 0 {
			o.Start = o.Start.Add(41 * time.Millisecond)
		}
		o.Duration = f.began.Add(skew + 96*time.Millisecond - time.Duration(3-i)*310*time.Millisecond).Sub(o.Start)
		s.Operations = append(s.Operations, o)
	}
	if r == f.late && now.Sub(f.began) > time.Second {
		s.Site = "train/data.go:71"
	}
	switch {
	case f.mutual:
		s.Operations = append(s.Operations, trace.Operation{Comm: "1", Epoch: 1, Op: "recv", Root: -1, Peer: (r + 1) % f.ranks, Tag: 7, Start: f.began.Add(skew), Duration: now.Sub(f.began), Waiting: []int{(r + 1) % f.ranks}})
	case r != f.late:
		o := call
		o.Seq, o.Outcome, o.Round, o.Start = f.seq, "", 3, f.began.Add(skew+time.Duration(r%7)*300*time.Microsecond)
		o.Duration, o.Bytes = now.Add(skew).Sub(o.Start), 1<<20
		if o.Duration > time.Second {
			o.Site = "train/main.go:118"
		}
		if f.late >= 0 {
			o.Waiting = []int{f.late}
		} else if f.silent >= 0 {
			o.Waiting = []int{f.silent}
		}
		s.Operations = append(s.Operations, o)
	}
	at := now
	if f.late >= 0 || f.silent >= 0 || f.mutual {
		at = f.began
	}
	for _, peer := range []int{(r + 1) % f.ranks, (r + f.ranks - 1) % f.ranks} {
		transport := "tcp"
		moved := uint64(at.UnixMilli()%10_000_000) * uint64(200_000+37_000*(min(r, peer)%5))
		if peer/f.perHost == r/f.perHost {
			transport = "shm"
		}
		s.Links = append(s.Links, trace.Link{Rank: peer, Transport: transport, Sent: moved, Received: moved})
	}
	// The throughput is not even.
	seconds := float64(at.UnixMilli()%10_000_000) / 1000
	bytes := uint64((seconds + 1.5*math.Sin(seconds/9) + 0.6*math.Sin(seconds/2.3)) * 430e6)
	s.Counters = []trace.Counter{{Op: "all_reduce", Ranks: f.ranks, Bytes: bytes}}
	s.Process.HeapBytes = uint64(210_000_000 + r*1_300_000)
	return s
}

// set changes the cluster.
func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	f.began = f.clock().Add(-time.Millisecond)
}

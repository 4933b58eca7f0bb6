package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// clusterLocked returns the calls of all ranks as far as this node knows them: its own, and those in the last answers of other ranks. The
// same analysis explains it as the snapshots of a cluster.
func (s *stalls) clusterLocked(more ...wire.Wait) trace.Cluster {
	now := time.Now()
	rank, size := s.own.rank, len(s.own.links)
	for i := range more { // The first check may be due.
		rank = int(more[i].Rank)
		size = max(size, rank+1)
		for _, p := range more[i].Peers {
			size = max(size, int(p.Rank)+1)
		}
	}
	c := trace.Cluster{Formed: true, Epoch: s.epoch, Joined: size}
	add := func(rank int, list []wire.Wait, ago time.Duration) *trace.Snapshot {
		o := &trace.Snapshot{Rank: rank, Size: c.Joined, Epoch: s.epoch, Time: now}
		for i := range list {
			o.Operations = append(o.Operations, s.operation(&list[i], ago))
		}
		c.Nodes = append(c.Nodes, trace.Node{Rank: rank, Snapshot: o})
		return o
	}
	own := more
	for _, list := range [][]wait{s.own.list, s.own.idle} {
		for i := range list {
			w := &list[i]
			isGiven := func(m wire.Wait) bool { return w.wire.Call.Comm == m.Call.Comm && w.wire.Call.Seq == m.Call.Seq }
			if !slices.ContainsFunc(more, isGiven) {
				w.wire.Site = s.siteOfLocked(w)
				own = append(own, w.wire)
			}
		}
	}
	add(rank, own, 0)
	for rank, p := range s.peers {
		switch {
		case s.isSilentLocked(p):
			c.Nodes = append(c.Nodes, trace.Node{Rank: rank, Missing: "has not answered", Silent: s.now - p.open[0].at})
		case p.at == 0:
		case len(p.list) == 0 && p.Busy:
			c.Nodes = append(c.Nodes, trace.Node{Rank: rank, Missing: "has been in a call that makes progress"})
		default:
			o := add(rank, p.list, s.now-p.at)
			if o.Site = p.none.Site; p.none.For > 0 {
				ended := now.Add(-time.Duration(min(p.none.For, math.MaxInt64/2)) - (s.now - p.at))
				o.Operations = append(o.Operations, trace.Operation{Epoch: s.epoch, Outcome: trace.OK, Root: -1, Peer: -1, Start: ended})
			}
		}
	}
	return c
}

// operation returns a wait, as it was so long ago, as an operation of a snapshot.
func (s *stalls) operation(w *wire.Wait, ago time.Duration) trace.Operation {
	o := s.cfg.Operation(w)
	o.Epoch, o.Duration = s.epoch, time.Duration(min(w.For, math.MaxInt64/2))+ago
	waiting := make([]int, 0, len(w.Peers))
	for _, p := range w.Peers {
		waiting = append(waiting, int(p.Rank))
	}
	recorder.SetWaiting(&o, waiting)
	return o
}

// siteOfLocked returns the place of a call of this node in the program, if it has lasted for long. The stacks are read until the place is known.
func (s *stalls) siteOfLocked(w *wait) string {
	if time.Duration(w.wire.For) < trace.StalledAfter || w.p2p.Idle {
		return ""
	}
	c := s.calls[w.waitKey]
	if c != nil && c.progress == w.progress && c.site != "" {
		return c.site
	}
	site := s.engine.sites.Call(s.cfg.Operation(&w.wire).Op)
	site = site[:min(len(site), wire.SiteMax)]
	if c != nil && c.progress == w.progress {
		c.site = site
	}
	return site
}

// noCall returns the entry of an answer that says since when this node has been in no call, and where its program is. It returns nil if a
// call waits.
func (e *Engine) noCall(own *waits, sites bool) *wire.Wait {
	if len(own.list) > 0 || own.busy || !sites {
		return nil
	}
	s, w := trace.Snapshot{Time: time.Now()}, &wire.Wait{Rank: uint32(own.rank), Kind: wire.WaitNone}
	for _, t := range e.Traces() {
		s.Operations = append(s.Operations, t.Operation)
	}
	if free := e.SetSites(&s); free < math.MaxInt64 {
		w.For = uint64(max(free, 1))
	}
	w.Site = s.Site[:min(len(s.Site), wire.SiteMax)]
	return w
}

// noteAskerLocked notes that the rank at the other end of a link asks, and returns the lowest rank that has asked lately.
func (s *stalls) noteAskerLocked(own *waits, l *link.Link) int {
	now, first := time.Now(), math.MaxInt32
	for rank, other := range own.links {
		if other == l {
			s.askers[rank] = now
		}
	}
	lately := 3 * max(askEvery, time.Duration(own.peers)*time.Second/asksPerSecond)
	for rank, at := range s.askers {
		if now.Sub(at) > lately {
			delete(s.askers, rank)
			continue
		}
		first = min(first, rank)
	}
	return first
}

// warningLocked returns the log message about a call that makes no progress: a sentence with the ranks that it waits for. If others wait as well, one of
// them reports it, and this node logs it for debugging only.
func (s *stalls) warningLocked(w *wait, more int) func() {
	text, args := s.clusterLocked().About(s.own.rank), []any{"for", roundDuration(time.Duration(w.wire.For)), "comm", recorder.CommName(w.comm.id)}
	if more > 0 {
		args = append(args, "more_calls", more)
	}
	if s.reportsLocked(w) {
		return func() { s.cfg.Log.Warn(text, args...) }
	}
	return func() { s.cfg.Log.Debug(text, args...) }
}

// reportsLocked reports whether this node is the one to report the wait of a call. If it knows of a rank in no call, that is the first of those
// that have asked such a rank. Otherwise it is the lowest of the ranks that wait for each other.
func (s *stalls) reportsLocked(w *wait) bool {
	known, lowest := false, math.MaxInt32
	for _, p := range s.peers {
		switch {
		case p.at == 0:
		case len(p.list) > 0:
			for i := range p.list {
				eachPeer(&p.list[i], len(s.own.links), func(rank int) { lowest = min(lowest, rank) })
			}
		case int(p.First) == s.own.rank:
			return true
		default:
			known = true
		}
	}
	for _, peer := range w.wire.Peers {
		if p := s.peers[int(peer.Rank)]; p == nil || p.at == 0 || s.isSilentLocked(p) {
			return true
		}
		lowest = min(lowest, int(peer.Rank))
	}
	return !known && s.own.rank <= lowest
}

// A DeadlineError is the end of a call by the deadline of its context, with the ranks that it waited for. It wraps the cause of the context.
type DeadlineError struct {
	Err      error
	Waiting  []int  // ranks of the communicator
	Sentence string // with ranks of the view
}

func (e *DeadlineError) Error() string { return e.Err.Error() + ": " + e.Sentence }

func (e *DeadlineError) Unwrap() error { return e.Err }

// cause returns the cause of a context that has ended; if its deadline has passed, with the ranks that calls on the communicator have waited for
// since begun.
func (c *Comm) cause(ctx context.Context, begun int64, list ...wire.Wait) error {
	cause := context.Cause(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return cause
	}
	text := c.explain(time.Duration(c.engine.clock.Now()-begun), list...)
	if text == "" {
		return cause
	}
	e, awaited := &DeadlineError{Err: cause, Sentence: text}, make(map[int]bool)
	for _, w := range list {
		if w.Any {
			return e
		}
		for _, p := range w.Peers {
			awaited[int(p.Rank)] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank := range c.linkTo {
		if awaited[c.viewRankLocked(rank)] {
			e.Waiting = append(e.Waiting, rank)
		}
	}
	return e
}

// explain returns the sentence about calls on the communicator that have waited during d, if the communicator is traced.
func (c *Comm) explain(d time.Duration, list ...wire.Wait) string {
	s := c.engine.stalls.Load()
	c.mu.Lock()
	rank, isTraced := c.viewRankLocked(c.rank), c.traced != nil
	c.mu.Unlock()
	if s == nil || !isTraced || len(list) == 0 {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waitedLocked(c.id, rank, d, list).About(rank)
}

// waitedLocked is clusterLocked with calls of this node, which has a rank, that have waited during d.
func (s *stalls) waitedLocked(comm uint64, rank int, d time.Duration, list []wire.Wait) trace.Cluster {
	for i := range list {
		w := &list[i]
		w.Rank, w.For, w.Call.Comm = uint32(rank), uint64(max(d, 0)), comm
		w.Site = s.siteOfLocked(&wait{wire: *w})
	}
	return s.clusterLocked(list...)
}

// explainTimeout describes the ranks of an error of a communicator, whose lock is held, with its sentence. They may have answered queries of
// the watchdog before they are asked for all of their calls.
func (s *stalls) explainTimeout(c *Comm, e *TimeoutError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own, call := c.viewRankLocked(c.rank), wire.Wait{Kind: wire.WaitCollective, Call: e.Call}
	for _, w := range e.Waiting {
		rank, _ := c.RankOf(w.Rank)
		call.Peers = append(call.Peers, c.peersLocked(rank)...)
	}
	world := s.waitedLocked(c.id, own, e.After, []wire.Wait{call})
	for i := range e.Waiting {
		w, rank := &e.Waiting[i], int(call.Peers[i].Rank)
		hasCall := func(n trace.Node) bool { // Its answer to the first questions does not have a call that has ended.
			return n.Rank == rank && (w.Last.Seq == 0 || n.Snapshot == nil || len(n.Snapshot.Operations) > 0)
		}
		if (w.Known || w.Unresponsive) && !slices.ContainsFunc(world.Nodes, hasCall) {
			world.Nodes = slices.DeleteFunc(world.Nodes, func(n trace.Node) bool { return n.Rank == rank })
			world.Nodes = append(world.Nodes, s.answered(rank, w))
		}
		if i < namedMax {
			w.Doing = world.Doing(rank)
		}
	}
	e.Sentence = world.About(own)
}

// answered returns what is known of a rank from its answer to a query.
func (s *stalls) answered(rank int, w *Waiting) trace.Node {
	if w.Unresponsive {
		return trace.Node{Rank: rank, Missing: "has not answered", Silent: w.Silent}
	}
	now := time.Now()
	o := s.operation(&wire.Wait{Kind: wire.WaitCollective, Call: w.Last}, w.For)
	if o.Start = now.Add(-w.For); !w.Active {
		o.Outcome, o.Duration = trace.OK, 0
	}
	n := trace.Node{Rank: rank, Snapshot: &trace.Snapshot{Rank: rank, Size: len(s.own.links), Epoch: s.epoch, Time: now}}
	if w.Last.Seq > 0 {
		n.Snapshot.Operations = []trace.Operation{o}
	}
	return n
}

// AnyCause returns the cause of a context that has ended while a goroutine waited for any of several calls, those of waiters. The
// ones on the communicator count.
func (c *Comm) AnyCause(ctx context.Context, waited time.Duration, of []*p2p.Waiters) error {
	var own waits
	c.mu.Lock()
	if c.traced != nil {
		own.epoch = c.traced.Epoch
		c.collectLocked(&own)
	}
	c.mu.Unlock()
	var list []wire.Wait
	for i := range own.list {
		if w := &own.list[i]; slices.Contains(of, w.waiters) {
			list = append(list, w.wire)
		}
	}
	return c.cause(ctx, c.engine.clock.Now()-int64(waited), list...)
}

// Cause implements [p2p.Owner].
func (c *Comm) Cause(ctx context.Context, m p2p.Wait, begun int64) error {
	kind := waitKinds[m.Kind]
	w := wire.Wait{Kind: kind, Any: m.Peer == p2p.Any, Tag: m.Tag, Call: wire.Call{Type: m.Type, Count: uint64(m.Bytes)}}
	if !w.Any {
		c.mu.Lock()
		w.Peers = c.peersLocked(m.Peer)
		c.mu.Unlock()
	}
	return c.cause(ctx, begun, w)
}

// WorldCause returns the cause of a context that has ended a call of [Comm.AwaitWorld].
func (c *Comm) WorldCause(ctx context.Context, w *WorldWait) error {
	c.mu.Lock()
	call, begun := c.worldCallLocked(w), w.begun
	c.mu.Unlock()
	return c.cause(ctx, begun, wire.Wait{Kind: wire.WaitCollective, Any: true, Call: call})
}

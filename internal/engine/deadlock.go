package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/deadlock"
	"github.com/nexar-go/nexar/internal/wire"
)

// deadlockLasts is how long a deadlock is remembered while answers of its ranks do not show it:
// other traffic of their links may have been in flight.
const deadlockLasts = 5 * askEvery

// A foundDeadlock is a deadlock with this rank as the lowest. It is confirmed once all ranks have
// answered again, with the same states: then all these states existed at one time.
type foundDeadlock struct {
	states    map[int]uint64 // of its ranks, and of all blocked ranks that they wait for
	waits     []wire.Wait
	since     time.Duration // first seen
	seen      time.Duration // last seen
	confirmed bool
	due       time.Duration // when DeadlockTimeout was over; 0 before
}

// A DeadlockError says that ranks wait for each other. Ranks is their number, and Waits has a wait of each of
// the first ten of them. Ranks are those of the view, and Peers has the first member of the deadlock that a
// call waits for.
type DeadlockError struct {
	Ranks int
	Waits []wire.Wait
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("%d ranks wait for each other", e.Ranks)
}

// newDeadlockError returns the error of a deadlock with the waits of all its ranks.
func newDeadlockError(list []wire.Wait) *DeadlockError {
	return &DeadlockError{len(list), list[:min(len(list), namedMax)]}
}

// deadlockLocked looks for a deadlock with this rank as the lowest. It logs one that is confirmed,
// and ends it after DeadlockTimeout.
func (s *stalls) deadlockLocked() (fx []func()) {
	states, list := s.findLocked()
	f := s.found
	switch {
	case list != nil && (f == nil || !maps.Equal(f.states, states)):
		s.found = &foundDeadlock{states: states, waits: list, since: s.now, seen: s.now}
		return nil
	case list != nil:
		f.seen, f.waits = s.now, list
	case f == nil:
		return nil
	case s.now-f.seen > max(deadlockLasts, 3*s.roundLocked()) || !s.isUnchangedLocked(f):
		s.found = nil
		return nil
	}
	if list == nil || !f.confirmed && !s.isConfirmedLocked(f, f.since) {
		return nil
	}
	limit := s.cfg.DeadlockTimeout
	if !f.confirmed {
		f.confirmed = true
		text, ends := s.cfg.Deadlock(newDeadlockError(f.waits)), "never"
		if limit > 0 {
			ends = fmt.Sprintf("in %v, unless a rank of them begins a call", roundDuration(limit-(s.now-f.since)))
		}
		fx = append(fx, func() { s.cfg.Log.Warn("ranks wait for each other", "deadlock", text, "fails", ends) })
	}
	switch {
	case limit <= 0 || s.now-f.since < limit:
	case f.due == 0: // The last answers may be old.
		f.due = s.now
		fx = append(fx, s.asksLocked()...)
	case s.isConfirmedLocked(f, f.due):
		s.found = nil
		fx = append(fx, s.breakLocked(f.waits)...)
	}
	return fx
}

// isUnchangedLocked reports whether no rank of a deadlock has answered with another state.
func (s *stalls) isUnchangedLocked(f *foundDeadlock) bool {
	for rank, state := range f.states {
		if now, _ := s.stateLocked(rank); now != state {
			return false
		}
	}
	return true
}

// isConfirmedLocked reports whether all ranks of a deadlock have answered a question that was sent after a time.
func (s *stalls) isConfirmedLocked(f *foundDeadlock, after time.Duration) bool {
	for rank := range f.states {
		if p := s.peers[rank]; rank != s.own.rank && (p == nil || p.at == 0 || p.to.at <= after) {
			return false
		}
	}
	return s.now > after
}

// stateLocked returns the last known state of a rank.
func (s *stalls) stateLocked(rank int) (state uint64, known bool) {
	if rank == s.own.rank {
		return s.state, true
	}
	p := s.peers[rank]
	if p == nil || p.at == 0 {
		return 0, false
	}
	return p.State, true
}

// findLocked returns the deadlock with this rank as the lowest, as the states and a wait of each
// of its ranks, or nil.
func (s *stalls) findLocked() (states map[int]uint64, list []wire.Wait) {
	if !s.mayLeadLocked() {
		return nil, nil
	}
	lists := map[int][]wire.Wait{s.own.rank: s.ownWaitsLocked()}
	busy := map[int]bool{s.own.rank: s.own.busy}
	for _, rank := range s.closureLocked() {
		if p := s.peers[rank]; p != nil && p.at > 0 {
			lists[rank], busy[rank] = p.list, p.Busy
		}
	}
	if !isAnyNamed(lists) {
		return nil, nil // Ranks that all receive from AnyRank are idle.
	}
	g, known := make(deadlock.Graph), s.digestsLocked()
	for rank, waits := range lists {
		r := deadlock.Rank{Busy: busy[rank]}
		for i := range waits {
			w := &waits[i]
			c := deadlock.Call{Any: isAny(w)}
			for _, p := range w.Peers {
				if s.isProvenLocked(rank, p) {
					c.For = append(c.For, int(p.Rank))
				} else if c.Any {
					r.Busy = true
				}
			}
			if w.Ranges != nil {
				eachRange(w, func(n deadlock.Range) { c.Ranges = append(c.Ranges, n) })
				r.Busy = r.Busy || !known.proves(w, rank)
			}
			r.Calls = append(r.Calls, c)
		}
		g[rank] = r
	}
	members, stuck := g.Find(s.own.rank)
	if !slices.ContainsFunc(members, func(m deadlock.Member) bool { return needsNamed(lists[m.Rank]) }) {
		return nil, nil
	}
	states = make(map[int]uint64)
	for _, rank := range stuck {
		states[rank], _ = s.stateLocked(rank)
	}
	for _, m := range members {
		w := lists[m.Rank][m.Call]
		w.Peers, w.Ranges = []wire.WaitPeer{{Rank: uint32(m.For)}}, nil
		list = append(list, w)
	}
	return states, list
}

// mayLeadLocked reports whether ranks above this one may block all its calls, by their last answers alone. In a large world most ranks
// also wait for a lower rank, and need not search.
func (s *stalls) mayLeadLocked() bool {
	isFree := func(rank int) bool {
		p := s.peers[rank]
		return rank < s.own.rank || rank > s.own.rank && (p == nil || p.at == 0 || p.Busy)
	}
	isOpen := func(n wait) bool { // The call may end.
		w := &n.wire
		free := 0
		for _, p := range w.Peers {
			if isFree(int(p.Rank)) {
				free++
			}
		}
		if !isAny(w) {
			return free == len(w.Peers)
		}
		return free > 0 || slices.ContainsFunc(w.Ranges, func(r wire.RankRange) bool { return int(r.First) < s.own.rank })
	}
	return !s.own.busy && len(s.own.list) > 0 && !slices.ContainsFunc(s.own.list, isOpen)
}

// isAny reports whether each rank that a call waits for may let it go on. A collective does not end then, but it may send the message
// that another of these ranks waits for: in a dissemination, two ranks that both wait for a late one also wait for each other's messages
// of a later round. So a collective is blocked only if all ranks that it waits for are.
func isAny(w *wire.Wait) bool { return w.Any || w.Kind == wire.WaitCollective }

// isAnyNamed reports whether a call of any rank needs a certain rank.
func isAnyNamed(lists map[int][]wire.Wait) bool {
	for _, list := range lists {
		if needsNamed(list) {
			return true
		}
	}
	return false
}

// digests has the last known states of the ranks from first on, as sums up to each of them.
type digests struct {
	first int
	count []int    // count[i] is the number of ranks below first+i with a known state
	sum   []uint64 // of their digests
}

// digestsLocked returns the states of the ranks from that of this node on. Those below are left to the lowest of
// them.
func (s *stalls) digestsLocked() *digests {
	d := &digests{first: s.own.rank, count: []int{0}, sum: []uint64{0}}
	for rank := s.own.rank; rank < len(s.own.links); rank++ {
		n, sum := d.until(rank)
		if state, known := s.stateLocked(rank); known {
			n, sum = n+1, sum+wire.StateDigest(uint32(rank), state)
		}
		d.count, d.sum = append(d.count, n), append(d.sum, sum)
	}
	return d
}

// until returns the number of ranks below end with a known state, and the sum of their digests.
func (d *digests) until(end int) (n int, sum uint64) {
	i := min(max(end-d.first, 0), len(d.count)-1)
	return d.count[i], d.sum[i]
}

// proves reports whether rank, which w belongs to, has seen all ranks that it waits for in their last known
// states, with nothing in flight.
func (d *digests) proves(w *wire.Wait, rank int) bool {
	want, sum := 0, uint64(0)
	for _, r := range w.Ranges {
		if int(r.First) < d.first {
			return false
		}
		before, less := d.until(int(r.First))
		n, more := d.until(int(r.Last) + 1)
		want += int(r.Last-r.First) + 1 - (n - before)
		sum += more - less
		if int(r.First) <= rank && rank <= int(r.Last) { // States is without rank, which may be unknown here.
			n, more = d.until(rank + 1)
			before, less = d.until(rank)
			want += n - before - 1
			sum -= more - less
		}
	}
	return w.Quiet && want == 0 && sum == w.States
}

// needsNamed reports whether a call of a rank needs a certain rank, and is no receive from AnyRank.
func needsNamed(list []wire.Wait) bool {
	return slices.ContainsFunc(list, func(w wire.Wait) bool { return !w.Any })
}

// ownWaitsLocked returns the waits of this node, with the last answers of their peers.
func (s *stalls) ownWaitsLocked() []wire.Wait {
	list := make([]wire.Wait, len(s.own.list))
	for i := range list {
		list[i] = s.own.list[i].wire
		list[i].Peers, list[i].Site = append([]wire.WaitPeer(nil), list[i].Peers...), s.siteOfLocked(&s.own.list[i])
		s.setStatesLocked(&list[i], &s.own)
	}
	return list
}

// isProvenLocked reports whether a rank waits for a peer in its last known state, and nothing is in
// flight between them. Ranks below that of this node are left to the lowest of them.
func (s *stalls) isProvenLocked(rank int, p wire.WaitPeer) bool {
	if int(p.Rank) == rank {
		return true
	}
	state, known := s.stateLocked(int(p.Rank))
	return known && p.Quiet && p.State == state && int(p.Rank) >= s.own.rank
}

// breakLocked returns the effects that revoke the communicators of a deadlock. If this rank does not belong
// to one, it tells a rank that does. Those in which this rank waits come last: its calls return then, and the program may
// close the others at once, which would look to their ranks as if this rank had left.
func (s *stalls) breakLocked(list []wire.Wait) (fx []func()) {
	var last []func()
	own := make(map[uint64]*Comm)
	for i := range s.own.list {
		own[s.own.list[i].comm.id] = s.own.list[i].comm
	}
	text := wire.WaitsText(len(list), list)
	told := make(map[uint64]bool)
	for i := range list {
		w := &list[i]
		id := w.Call.Comm
		c := own[id]
		if c == nil {
			c = s.engine.known(id)
		}
		switch l := s.own.link(int(w.Rank)); {
		case told[id]:
		case own[id] != nil:
			last = append(last, func() { c.breakDeadlock(list, text) })
		case c != nil:
			fx = append(fx, func() { c.breakDeadlock(list, text) })
		case l != nil:
			fx = append(fx, func() { l.Revoke(wire.Revoke{Comm: id, Cause: wire.CauseDeadlock}, text) })
		}
		told[id] = true
	}
	return append(fx, last...)
}

// breakDeadlock ends the communicator on all ranks.
func (c *Comm) breakDeadlock(list []wire.Wait, text string) {
	c.update(func(fx *effects) {
		c.revokeLocked(fx, newDeadlockError(list), wire.Revoke{Cause: wire.CauseDeadlock}, text)
	})
}

// deadlockOf returns the error of a revocation with CauseDeadlock.
func deadlockOf(text string) error {
	ranks, list, err := wire.ParseWaitsText(text)
	if err != nil || len(list) == 0 {
		return protocolError(errors.Join(errors.New("a deadlock without ranks"), err))
	}
	return &DeadlockError{ranks, list[:min(len(list), namedMax)]}
}

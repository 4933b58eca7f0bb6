package membership

import (
	"fmt"
	"slices"
	"time"
)

// makePending makes the PendingJoins of a world that forms with n nodes.
func (w *simWorld) makePending(n int) {
	w.policy = Policy{World: n, Elastic: w.rng.IntN(4) > 0}
	if w.rng.IntN(3) == 0 {
		w.policy.Max = n + w.rng.IntN(3)
	}
	if w.rng.IntN(3) == 0 {
		w.policy.Min = 1 + w.rng.IntN(n)
	}
	w.pending = NewPendingJoins(w.makePolicy(), 0)
}

// makePolicy returns the policy of the seed, which may have a planted fault.
func (w *simWorld) makePolicy() Policy {
	t := w.policy
	switch w.fault {
	case isTooBig:
		t.World, t.Max = 2*t.World, 0
	case isTooSmall:
		t.Min = 0
	}
	return t
}

// arrive adds a candidate.
func (w *simWorld) arrive() {
	i := len(w.nodes)
	n := node(i)
	s := &simNode{id: n.ID, alive: true, attached: true, spare: w.rng.IntN(3) == 0, term: w.term, origin: fmt.Sprint(i)}
	w.nodes = append(w.nodes, s)
	w.apply(i)
	w.expectProgress(i)
}

// apply sends the join request of a candidate.
func (w *simWorld) apply(i int) {
	n, s := node(i), w.nodes[i]
	if w.arbiter == nil {
		s.term = -1 // No seed leads. The candidate tries again later.
		return
	}
	w.tell(i, func() {
		w.hear(func() {
			if err := w.pending.Admit(n, AnyRank, s.spare, s.origin); err != nil {
				s.refused = true
				if s.spare || w.policy.Elastic {
					w.failf("node %d is refused: %v", i, err)
				}
			}
		})
	})
}

// leaveQuiesced lets a node of the view leave at the next reconfiguration.
func (w *simWorld) leaveQuiesced() {
	i := w.rng.IntN(len(w.nodes))
	if s := w.nodes[i]; s.alive && s.attached && len(s.views) > 0 {
		s.leaving = true
		w.quiesceAll(s.views[len(s.views)-1].Epoch)
	}
}

// quiesceAll quiesces all nodes of a view once they have it, unless they have a later one
// already.
func (w *simWorld) quiesceAll(epoch uint64) {
	for i := range w.nodes {
		w.after(w.ms(50), func() { w.quiesce(i, epoch) })
	}
}

func (w *simWorld) quiesce(i int, epoch uint64) {
	s := w.nodes[i]
	switch {
	case !s.alive || !s.entered || s.removed || w.view.Epoch > epoch || s.rested == epoch:
		return
	case len(s.views) == 0 || s.views[len(s.views)-1].Epoch != epoch:
		if !s.attached || !has(w.view, s.id) {
			return // It never receives that view.
		}
		w.after(10*time.Millisecond, func() { w.quiesce(i, epoch) })
		return
	}
	if w.quiescing != epoch {
		w.quiescing = epoch
		w.quiesceAll(epoch) // All nodes reach a reconfiguration together.
	}
	leaves := s.leaving
	s.rested = epoch
	w.tell(i, func() {
		if w.view.Epoch == epoch && !(w.fault == forgetsQuiesced && i == 0) {
			w.hear(func() { w.arbiter.Quiesced(w.now, s.id, epoch, leaves, 10*time.Second) })
		}
	})
}

// announce carries out the part of a decision that concerns candidates.
func (w *simWorld) announce(r Decision) {
	if w.fault != neverForgets {
		for _, id := range r.Forgotten {
			for _, s := range w.nodes {
				delete(s.expected, w.index(id))
			}
		}
	}
	for id := range r.Dismissed {
		s := w.nodes[w.index(id)]
		s.refused, s.attached = true, false
		w.rejoin(w.index(id))
		if !w.harmed[w.index(id)] && !w.isCutOff(id) && w.isPopulated() {
			w.failf("node %d is dismissed, without a fault: %s", w.index(id), r.Dismissed[id])
		}
	}
	if r.Quiesce && w.fault != forgetsQuiesce {
		epoch := w.view.Epoch
		for i, s := range w.nodes {
			if s.term == w.term { // Other nodes receive it when they reconnect.
				w.after(w.ms(80), func() { w.quiesce(i, epoch) })
			}
		}
	}
	if v := r.Invitation; v != nil {
		w.invited++
		w.expect(v)
		switch {
		case w.fault == trustsAnyone:
			w.arbiter.Linked(v.Node.ID, v.Number)
			for _, n := range v.Circle {
				w.arbiter.Link(n.ID, v.Node.ID, true)
			}
			fallthrough
		case w.fault == forgetsInvitation && w.invited > 1:
		default:
			w.after(w.ms(30), func() { w.receiveInvitation(v) })
		}
	}
}

func (w *simWorld) index(id NodeID) int {
	return slices.IndexFunc(w.nodes, func(s *simNode) bool { return s.id == id })
}

// isPopulated reports whether a node of the view has a connection to the seed.
func (w *simWorld) isPopulated() bool {
	return slices.ContainsFunc(w.nodes, func(s *simNode) bool { return s.attached && s.term == w.term && has(w.view, s.id) })
}

// isCutOff reports whether a node has lost a link.
func (w *simWorld) isCutOff(id NodeID) bool {
	i := w.index(id)
	for link := range w.lost {
		if link[0] == i || link[1] == i {
			return true
		}
	}
	return false
}

// receiveInvitation makes a candidate close its links and make new ones, which the
// other ends report.
func (w *simWorld) receiveInvitation(v *Invitation) {
	i := w.index(v.Node.ID)
	if w.nodes[i].term != w.term {
		return // It has lost its connection.
	}
	if w.nodes[i].invited > v.Number {
		return // A newer invitation was received before.
	}
	w.nodes[i].invited = v.Number
	for j := range w.nodes {
		delete(w.linked, [2]int{i, j})
		if w.linked[[2]int{j, i}] {
			w.endLink(j, i)
		}
	}
	if w.nodes[i].lie != honest {
		w.lieAboutLinks(v)
		return
	}
	w.link(v, w.now.Add(30*time.Second))
}

// endLink ends one end of a link. Its node reports that if the other node is a candidate.
func (w *simWorld) endLink(at, other int) {
	link := [2]int{at, other}
	delete(w.linked, link)
	w.unlinked[link] = w.now
	if s := w.nodes[at]; s.alive && s.attached && !w.nodes[other].entered {
		w.tell(at, func() { w.reportLink(at, other, false) })
	}
}

// makeLink establishes one end of a link.
func (w *simWorld) makeLink(at, other int) {
	w.linked[[2]int{at, other}] = true
	if s := w.nodes[at]; s.alive && s.attached {
		w.tell(at, func() { w.reportLink(at, other, true) })
	}
}

// reportLink reports one end of a link to a candidate.
func (w *simWorld) reportLink(at, other int, up bool) {
	if w.fault == ignoresEnds && !up {
		return
	}
	w.hear(func() { w.arbiter.Link(w.nodes[at].id, w.nodes[other].id, up) })
}

// link links a candidate to its peers, and retries until it succeeds or end has passed. Links
// to other candidates are optional.
func (w *simWorld) link(v *Invitation, end time.Time) {
	i := w.index(v.Node.ID)
	s := w.nodes[i]
	if !s.alive || !s.attached || s.entered || s.invited > v.Number || w.err != nil {
		return
	}
	for k, n := range v.Circle[:len(v.Circle)-1] {
		j := w.index(n.ID)
		link := [2]int{i, j}
		if w.nodes[j].alive && !w.lost[[2]int{min(i, j), max(i, j)}] && !(w.nodes[j].lie != honest && k >= v.World) {
			if w.linked[link] = true; k >= v.World {
				w.makeLink(i, j)
			}
			if !w.linked[[2]int{j, i}] && !w.halfOpen[[2]int{j, i}] {
				w.makeLink(j, i)
			}
			continue
		}
		if k >= v.World {
			continue
		}
		if w.now.After(end) {
			w.tell(i, func() { w.hear(func() { w.arbiter.Lost(w.now, s.id, n.ID, "no answer") }) })
		} else {
			w.after(500*time.Millisecond, func() { w.link(v, end) })
		}
		return
	}
	w.tell(i, func() { w.hear(func() { w.arbiter.Linked(s.id, v.Number) }) })
}

// checkDecision checks a change of the world.
func (w *simWorld) checkDecision(r Decision, v View) {
	if v.Size() < w.policy.Min && v.Size() > 0 {
		w.failf("view %d has %d nodes, at least %d", v.Epoch, v.Size(), w.policy.Min)
	}
	for _, e := range r.Entries {
		if e.Kind != Join {
			continue
		}
		for _, n := range e.Nodes {
			rank, _ := v.Rank(n.ID)
			switch s := w.nodes[w.index(n.ID)]; {
			case s.spare && rank >= w.policy.World:
				w.failf("view %d has a spare as rank %d, in a world of %d", v.Epoch, rank, w.policy.World)
			case !s.spare && w.policy.Max > 0 && rank >= w.policy.Max:
				w.failf("view %d has %d nodes, at most %d", v.Epoch, v.Size(), w.policy.Max)
			}
			w.checkLinks(v, rank)
		}
	}
}

// checkLinks checks the links of a newcomer: its watchers have their ends, and it has its own,
// or had them recently.
func (w *simWorld) checkLinks(v View, rank int) {
	const moment = 200 * time.Millisecond // for messages and commits in flight
	stands := func(at, other int) bool {
		link := [2]int{at, other}
		ended, ok := w.unlinked[link]
		return w.linked[link] || ok && w.now.Sub(ended) < moment
	}
	i := w.index(v.Nodes[rank].ID)
	watchers := Watchers(v, rank, 0)
	for r, other := range v.Nodes[:rank] {
		j := w.index(other.ID)
		if w.nodes[i].lie == honest && w.nodes[j].lie == honest && !stands(i, j) && !stands(j, i) {
			w.failf("view %d has nodes %d and %d, which were never linked", v.Epoch, i, j)
		}
		if slices.Contains(watchers, r) && w.nodes[j].lie == honest && !stands(j, i) {
			w.failf("view %d has node %d, which watches node %d and has no link to it", v.Epoch, j, i)
		}
	}
}

// checkCandidate checks a candidate that has not entered a calm world.
func (w *simWorld) checkCandidate(i int) {
	s := w.nodes[i]
	room := w.policy.Elastic && !s.spare && (w.policy.Max == 0 || w.view.Size() < w.policy.Max) || s.spare && w.view.Size() < w.policy.World
	if !s.alive || !s.attached || s.refused || w.harmed[i] || !room || w.arbiter.held || s.lie != honest {
		return
	}
	for _, n := range w.view.Nodes {
		j := w.index(n.ID)
		// A node that has died for the seed alone, or is gone while the world is too small,
		// delays the others.
		if !w.nodes[j].alive || !w.nodes[j].attached || w.lost[[2]int{min(i, j), max(i, j)}] {
			return
		}
	}
	w.failf("node %d waits without end at view %d: %v", i, w.view.Epoch, w.nodes[i])
}

package membership

import (
	"fmt"
	"slices"
	"time"
)

// makePending makes the pending of a world that forms with n nodes.
func (w *simWorld) makePending(n int) {
	w.policy = Policy{World: n, Elastic: w.rng.IntN(4) > 0}
	if w.rng.IntN(3) == 0 {
		w.policy.Max = n + w.rng.IntN(3)
	}
	if w.rng.IntN(3) == 0 {
		w.policy.Min = 1 + w.rng.IntN(n)
	}
	w.pending = NewPendingJoins(w.lobbyTerms(), 0)
}

// lobbyTerms are those that the seed knows.
func (w *simWorld) lobbyTerms() Policy {
	t := w.policy
	switch w.fault {
	case isTooBig:
		t.World, t.Max = 2*t.World, 0
	case isTooSmall:
		t.Min = 0
	}
	return t
}

// arrive has a candidate come.
func (w *simWorld) arrive() {
	i := len(w.nodes)
	n := node(i)
	s := &simNode{id: n.ID, alive: true, attached: true, spare: w.rng.IntN(3) == 0, term: w.term, origin: fmt.Sprint(i)}
	w.nodes = append(w.nodes, s)
	w.apply(i)
	w.expectProgress(i)
}

// apply has a candidate ask for a place.
func (w *simWorld) apply(i int) {
	n, s := node(i), w.nodes[i]
	if w.arbiter == nil {
		s.term = -1 // There is nobody to ask; it tries again when there is.
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

// leaveAtRest has a node that has a view leave with the next one.
func (w *simWorld) leaveAtRest() {
	i := w.rng.IntN(len(w.nodes))
	if s := w.nodes[i]; s.alive && s.attached && len(s.views) > 0 {
		s.leaving = true
		w.restAll(s.views[len(s.views)-1].Epoch)
	}
}

// restAll has all nodes of a view come to rest, as soon as they have it, and
// unless they have another one by then.
func (w *simWorld) restAll(epoch uint64) {
	for i := range w.nodes {
		w.after(w.ms(50), func() { w.rest(i, epoch) })
	}
}

func (w *simWorld) rest(i int, epoch uint64) {
	s := w.nodes[i]
	switch {
	case !s.alive || !s.entered || s.removed || w.view.Epoch > epoch || s.rested == epoch:
		return
	case len(s.views) == 0 || s.views[len(s.views)-1].Epoch != epoch:
		if !s.attached || !has(w.view, s.id) {
			return // It never has that view.
		}
		w.after(10*time.Millisecond, func() { w.rest(i, epoch) })
		return
	}
	if w.resting != epoch {
		w.resting = epoch
		w.restAll(epoch) // Who comes to a checkpoint does so with all others.
	}
	leaves := s.leaving
	s.rested = epoch
	w.tell(i, func() {
		if w.view.Epoch == epoch && !(w.fault == forgetsRest && i == 0) {
			w.hear(func() { w.arbiter.Rest(w.now, s.id, epoch, leaves, 10*time.Second) })
		}
	})
}

// welcome does what a decision says of candidates.
func (w *simWorld) welcome(r Decision) {
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
		w.comeAgain(w.index(id))
		if !w.harmed[w.index(id)] && !w.isCutOff(id) && w.isPopulated() {
			w.failf("node %d is dismissed, and nothing was wrong with it: %s", w.index(id), r.Dismissed[id])
		}
	}
	if r.Call && w.fault != forgetsCall {
		epoch := w.view.Epoch
		for i, s := range w.nodes {
			if s.term == w.term { // Others hear of it when they are back.
				w.after(w.ms(80), func() { w.rest(i, epoch) })
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

// receiveInvitation has a candidate give up the links that it has, and make others. The
// other ends tell the seed.
func (w *simWorld) receiveInvitation(v *Invitation) {
	i := w.index(v.Node.ID)
	if w.nodes[i].term != w.term {
		return // It has no connection any more.
	}
	if w.nodes[i].invited > v.Number {
		return // An older one has been overtaken.
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

// endLink has the end of a link be lost at one node, which tells the seed if the other one
// is a candidate.
func (w *simWorld) endLink(at, other int) {
	link := [2]int{at, other}
	delete(w.linked, link)
	w.unlinked[link] = w.now
	if s := w.nodes[at]; s.alive && s.attached && !w.nodes[other].entered {
		w.tell(at, func() { w.say(at, other, false) })
	}
}

// makeLink has one end of a link stand.
func (w *simWorld) makeLink(at, other int) {
	w.linked[[2]int{at, other}] = true
	if s := w.nodes[at]; s.alive && s.attached {
		w.tell(at, func() { w.say(at, other, true) })
	}
}

// say tells the seed of one end of a link to a candidate.
func (w *simWorld) say(at, other int, up bool) {
	if w.fault == ignoresEnds && !up {
		return
	}
	w.hear(func() { w.arbiter.Link(w.nodes[at].id, w.nodes[other].id, up) })
}

// link has a candidate link itself to a circle, again and again until that works
// or is too late. It need not reach other candidates.
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

// checkRuling looks at a change of the world.
func (w *simWorld) checkRuling(r Decision, v View) {
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

// checkLinks looks at the links of a newcomer: those that watch it have their ends, and it
// has its own, or had them a moment ago.
func (w *simWorld) checkLinks(v View, rank int) {
	const moment = 200 * time.Millisecond // for messages and agreement on their way
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

// checkCandidate looks at one who has not entered a world that has become calm.
func (w *simWorld) checkCandidate(i int) {
	s := w.nodes[i]
	room := w.policy.Elastic && !s.spare && (w.policy.Max == 0 || w.view.Size() < w.policy.Max) || s.spare && w.view.Size() < w.policy.World
	if !s.alive || !s.attached || s.refused || w.harmed[i] || !room || w.arbiter.held || s.lie != honest {
		return
	}
	for _, n := range w.view.Nodes {
		j := w.index(n.ID)
		// What has died for the seed alone, or has gone while the world is too
		// small, holds the others up.
		if !w.nodes[j].alive || !w.nodes[j].attached || w.lost[[2]int{min(i, j), max(i, j)}] {
			return
		}
	}
	w.failf("node %d waits for ever in front of view %d: %v", i, w.view.Epoch, w.nodes[i])
}

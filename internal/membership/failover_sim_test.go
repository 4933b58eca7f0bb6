package membership

import "time"

// propose commits a decision, which takes a while if there are other seeds.
func (w *simWorld) propose(r Decision) {
	if w.fault == actsTooEarly {
		before := w.state
		w.change(r)
		if w.rng.IntN(8) == 0 { // The others have not agreed, and this seed no longer leads.
			w.state = before
			w.replaceSeed()
		}
		return
	}
	term := w.term
	w.inFlight, w.proposed = true, r
	w.after(w.ms(20), func() {
		if w.term == term && w.arbiter != nil {
			w.inFlight = false
			w.change(r)
			w.decide()
			return
		}
		// Another seed leads. The proposal was committed before its term began, or
		// never will be.
	})
}

// replaceSeed ends the leading seed. Another one leads after a while. A pending
// proposal is committed, which only the next seed learns, or it is lost.
func (w *simWorld) replaceSeed() {
	if w.arbiter == nil {
		return
	}
	if w.inFlight && w.rng.IntN(2) == 0 {
		w.recoverView()
	}
	w.term++
	w.arbiter, w.inFlight = nil, false
	w.after(w.ms(1000), func() {
		w.pending = NewPendingJoins(w.makePolicy(), uint64(w.term)<<32)
		w.arbiter = NewArbiter(w.view, w.pending)
		for i, s := range w.nodes {
			if s.attached {
				w.after(w.ms(500), func() { w.reconnect(i) })
			}
		}
		w.decide()
		term := w.term
		w.after(3*time.Second, func() { w.missAbsent(term) })
	})
}

// missAbsent reports to the arbiter the nodes that have not connected to the leading seed.
func (w *simWorld) missAbsent(term int) {
	if w.term != term || w.arbiter == nil {
		return
	}
	for _, n := range w.view.Nodes {
		if s := w.nodes[w.index(n.ID)]; s.term != term || !s.attached {
			w.hear(func() { w.arbiter.Gone(w.now, n.ID, false, "it has not come back") })
		}
	}
}

// missEntered reports to the arbiter the nodes of a view that have gone while it was committed.
func (w *simWorld) missEntered(v View) {
	for _, n := range v.Nodes {
		if s := w.nodes[w.index(n.ID)]; !s.entered && s.gone && w.fault != ignoresGone {
			w.arbiter.Gone(w.now, n.ID, s.left, "it was gone when it had just entered")
		}
	}
}

// recoverView adopts the view that no node has received yet.
func (w *simWorld) recoverView() {
	if w.fault == neverAdopts || w.fault == reusesEpoch {
		return
	}
	r := w.proposed
	cutTest, err := RestoreState(w.state.View(), w.state.Used())
	if err != nil {
		w.failf("the state cannot be restored: %v", err)
		return
	}
	v, err := cutTest.ApplyAll(r.Entries)
	if err != nil {
		w.failf("an invalid decision: %v", err)
		return
	}
	w.checkDecision(r, v)
	w.state, w.view = cutTest, v
}

// reconnect connects a node to the leading seed. The node repeats its reports and
// receives the news that it has missed.
func (w *simWorld) reconnect(i int) {
	s := w.nodes[i]
	if !s.alive || !s.attached || s.removed || w.arbiter == nil || s.term == w.term {
		return
	}
	s.term = w.term
	if !has(w.view, s.id) {
		if s.entered || w.state.Knows(s.id) { // It was in a view, possibly without having received it.
			s.removed, s.entered = true, true
			return
		}
		if !s.refused {
			w.apply(i)
		}
		return
	}
	s.entered = true
	w.tell(i, func() { w.hear(func() { w.arbiter.Reconnected(w.now, s.id) }) })
	view := w.view
	w.after(w.ms(30), func() {
		if w.term == s.term {
			w.receive(i, view)
		}
	})
	_, called := w.arbiter.Missed()
	if called = called && w.fault != forgetsMissed; called || w.quiescing == view.Epoch {
		w.after(w.ms(50), func() { w.quiesce(i, view.Epoch) })
	}
	if w.fault == forgetsReports {
		return
	}
	for j, other := range w.nodes {
		if w.linked[[2]int{i, j}] && !other.entered {
			w.tell(i, func() { w.reportLink(i, j, true) })
		}
	}
	for _, j := range s.noticed {
		w.tell(i, func() { w.hear(func() { w.report(i, j) }) })
	}
	if s.rested == view.Epoch {
		w.tell(i, func() {
			w.hear(func() { w.arbiter.Quiesced(w.now, s.id, view.Epoch, s.leaving, 10*time.Second) })
		})
	}
}

// ping makes the seed ask all nodes whether they live, every 5 seconds until nothing else happens.
func (w *simWorld) ping() {
	if len(w.eventQueue) == 0 {
		return
	}
	asked, term := w.now, w.term
	for _, s := range w.nodes {
		if s.alive && s.attached && s.term == term {
			w.after(20*time.Millisecond, func() {
				if w.arbiter != nil && term == w.term {
					w.arbiter.Heard(asked, s.id)
				}
			})
		}
	}
	w.after(5*time.Second, w.ping)
}

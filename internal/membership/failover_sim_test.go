package membership

import "time"

// propose has a decision agreed on, which takes a while, if there are others to ask.
func (w *simWorld) propose(r Decision) {
	if w.fault == actsTooEarly {
		before := w.state
		w.change(r)
		if w.rng.IntN(8) == 0 { // The others have not agreed, and this seed is none any more.
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
		// Another seed leads by now. What the one before has proposed was agreed on before
		// that one began, or never will be.
	})
}

// replaceSeed has the seed die that leads, and another one lead a while later. What the
// first has proposed is agreed on, of which nobody hears but the next, or it is not.
func (w *simWorld) replaceSeed() {
	if w.arbiter == nil {
		return
	}
	if w.inFlight && w.rng.IntN(2) == 0 {
		w.orphan()
	}
	w.term++
	w.arbiter, w.inFlight = nil, false
	w.after(w.ms(1000), func() {
		w.pending = NewPendingJoins(w.lobbyTerms(), uint64(w.term)<<32)
		w.arbiter = NewArbiter(w.view, w.pending)
		for i, s := range w.nodes {
			if s.attached {
				w.after(w.ms(500), func() { w.comeBack(i) })
			}
		}
		w.decide()
		term := w.term
		w.after(3*time.Second, func() { w.missAbsent(term) })
	})
}

// missAbsent tells the arbiter who has not come to the seed that leads.
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

// missEntered tells the arbiter which nodes of a view have gone while it was agreed on.
func (w *simWorld) missEntered(v View) {
	for _, n := range v.Nodes {
		if s := w.nodes[w.index(n.ID)]; !s.entered && s.gone && w.fault != missesNobody {
			w.arbiter.Gone(w.now, n.ID, s.left, "it has gone when it had just been let in")
		}
	}
}

// orphan makes the view of which nobody has heard yet.
func (w *simWorld) orphan() {
	if w.fault == neverAdopts || w.fault == reusesEpoch {
		return
	}
	r := w.proposed
	trial, err := RestoreState(w.state.View(), w.state.Used())
	if err != nil {
		w.failf("the state cannot be restored: %v", err)
		return
	}
	v, err := trial.ApplyAll(r.Entries)
	if err != nil {
		w.failf("a decision that makes no sense: %v", err)
		return
	}
	w.checkRuling(r, v)
	w.state, w.view = trial, v
}

// comeBack has a node find the seed that leads, tell it what it knows, and hear what it
// has missed.
func (w *simWorld) comeBack(i int) {
	s := w.nodes[i]
	if !s.alive || !s.attached || s.removed || w.arbiter == nil || s.term == w.term {
		return
	}
	s.term = w.term
	if !has(w.view, s.id) {
		if s.entered || w.state.Knows(s.id) { // It was in a view, perhaps without a word.
			s.removed, s.entered = true, true
			return
		}
		if !s.refused {
			w.apply(i)
		}
		return
	}
	s.entered = true
	w.tell(i, func() { w.hear(func() { w.arbiter.Back(w.now, s.id) }) })
	view := w.view
	w.after(w.ms(30), func() {
		if w.term == s.term {
			w.receive(i, view)
		}
	})
	_, called := w.arbiter.Missed()
	if called = called && w.fault != forgetsMissed; called || w.resting == view.Epoch {
		w.after(w.ms(50), func() { w.rest(i, view.Epoch) })
	}
	if w.fault == forgetsReports {
		return
	}
	for j, other := range w.nodes {
		if w.linked[[2]int{i, j}] && !other.entered {
			w.tell(i, func() { w.say(i, j, true) })
		}
	}
	for _, j := range s.noticed {
		w.tell(i, func() { w.hear(func() { w.report(i, j) }) })
	}
	if s.rested == view.Epoch {
		w.tell(i, func() {
			w.hear(func() { w.arbiter.Rest(w.now, s.id, view.Epoch, s.leaving, 10*time.Second) })
		})
	}
}

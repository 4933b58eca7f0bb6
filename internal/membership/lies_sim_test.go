package membership

import (
	"time"
)

// A lie is the behavior of a hostile candidate that holds the token.
type lie int

const (
	honest        lie = iota
	claimsLinks       // reports that it is linked, and has no links
	linksToSome       // has links to some nodes, and reports links to all
	saysNothing       // accepts its invitation, and is silent
	quits             // accepts its invitation, ends, and joins again as another node
	accuses           // enters, and accuses one node after the other
	breaksLinks       // enters, and ends one link after the other
	accusesBeside     // accuses nodes of the world and other candidates before it enters
	lies
)

const (
	// simSettle is how long a node waits for the link to a newcomer.
	simSettle = 2 * time.Second
	// liesEnd is the end of all lies, after which the world becomes calm.
	liesEnd = 40 * time.Second
	// progressMax bounds the time until the links of an honest candidate are confirmed.
	progressMax = 20 * time.Second
	// quitsMax bounds the invitations of one origin to candidates that quit.
	quitsMax = 20
)

// plantInArbiter plants the faults of the Arbiter and its PendingJoins.
func (w *simWorld) plantInArbiter() {
	switch w.fault {
	case trustsCandidates:
		for _, c := range w.pending.list {
			for _, n := range w.view.Nodes {
				c.reports[n.ID] = struct{}{}
			}
		}
	case forgetsStrikes:
		clear(w.arbiter.strikes)
	case invitesInTurn:
		w.pending.stall = time.Hour
	case forgetsFailures:
		w.pending.failures = newHoldoff()
	}
}

// arriveLying adds a hostile candidate.
func (w *simWorld) arriveLying() {
	i := len(w.nodes)
	w.nodes = append(w.nodes, &simNode{
		id: node(i).ID, alive: true, attached: true, term: w.term, origin: "liar",
		lie: claimsLinks + lie(w.rng.IntN(int(lies-claimsLinks))),
	})
	w.harmed[i] = true
	w.apply(i)
}

// rejoin adds a hostile candidate that has gone again, as another node of the same
// origin.
func (w *simWorld) rejoin(i int) {
	s := w.nodes[i]
	if s.lie == honest || s.tries > 60 || w.now.After(start.Add(liesEnd)) {
		return
	}
	again := len(w.nodes)
	w.nodes = append(w.nodes, &simNode{
		id: node(again).ID, alive: true, attached: true, term: w.term, origin: s.origin, lie: s.lie, tries: s.tries + 1,
	})
	w.harmed[again] = true
	w.after(w.ms(100), func() { w.apply(again) })
}

// lieAboutLinks handles an invitation of a hostile candidate.
func (w *simWorld) lieAboutLinks(v *Invitation) {
	i := w.index(v.Node.ID)
	s := w.nodes[i]
	if !s.alive || !s.attached || s.entered {
		return
	}
	linked := func() { w.tell(i, func() { w.hear(func() { w.arbiter.Linked(s.id, v.Number) }) }) }
	switch s.lie {
	case saysNothing:
		return
	case quits:
		if w.tried[s.origin]++; w.tried[s.origin] > quitsMax && w.term == 0 {
			w.failf("a candidate that quits each time is invited for the %d. time", w.tried[s.origin])
		}
		s.alive = false
		w.end(i, false)
		w.rejoin(i)
		return
	case claimsLinks:
		linked()
		w.after(time.Second, func() { w.lieAboutLinks(v) })
		return
	}
	for k, n := range v.Circle[:len(v.Circle)-1] {
		j := w.index(n.ID)
		if !w.nodes[j].alive || s.lie == linksToSome && w.rng.IntN(4) == 0 {
			continue
		}
		if w.linked[[2]int{i, j}] = true; k >= v.World {
			w.makeLink(i, j)
		}
		if !w.lost[[2]int{min(i, j), max(i, j)}] {
			w.makeLink(j, i)
		}
	}
	linked()
	w.after(w.ms(1000), func() { w.accuse(i) })
}

// accuse repeats the accusations of a hostile node.
func (w *simWorld) accuse(i int) {
	s := w.nodes[i]
	if !s.alive || !s.attached || s.removed || w.now.After(start.Add(liesEnd)) || w.err != nil {
		return
	}
	w.after(time.Second+w.ms(2000), func() { w.accuse(i) })
	j := w.rng.IntN(len(w.nodes))
	victim := w.nodes[j]
	inside := has(w.view, s.id)
	if j == i || !victim.alive || victim.lie != honest || !inside && s.lie != accusesBeside || inside && !has(w.view, victim.id) {
		return
	}
	switch s.lie {
	case accuses, accusesBeside:
		if inside {
			w.suspect(i, j)
		}
		w.tell(i, func() { w.hear(func() { w.report(i, j) }) })
	case breaksLinks:
		w.suspect(i, j)
		w.lose(i, j, 50)
	}
}

// suspect records that a node lies about another.
func (w *simWorld) suspect(liar, victim int) {
	if w.accusers[victim] == nil {
		w.accusers[victim] = make(map[int]bool)
	}
	w.accusers[victim][liar] = true
}

// checkRemovals records, before a view is made, the nodes that are removed because of a lie.
// Each liar causes at most one removal while the same seed leads and no other fault concerns
// the node.
func (w *simWorld) checkRemovals(r Decision) {
	if w.term > 0 {
		return // Nodes that have not connected to the next seed yet do not answer it.
	}
	for id := range r.Reasons {
		i := w.index(id)
		if w.harmed[i] || w.nodes[i].leaving || len(w.accusers[i]) != 1 || w.arbiter.strikes[id] > 0 {
			continue // If it has a strike, another hostile node has been removed for it before.
		}
		for liar := range w.accusers[i] {
			if !w.arbiter.hadLink(w.nodes[liar].id, id) {
				continue // A node of the world can always exclude newcomers.
			}
			if w.victims[liar]++; w.victims[liar] > 1 {
				w.failf("node %d has had %d nodes removed, the last is %d: %s", liar, w.victims[liar], i, r.Reasons[id])
			}
		}
	}
}

// halfOpenLink adds an honest candidate with a link that the other end never has, or
// only for a moment.
func (w *simWorld) halfOpenLink() {
	j := w.rng.IntN(len(w.nodes))
	i := len(w.nodes)
	w.arrive()
	w.harmed[i] = true
	if w.rng.IntN(2) == 0 {
		w.halfOpen[[2]int{j, i}] = true
		return
	}
	w.after(w.ms(400), func() {
		if w.linked[[2]int{j, i}] && !w.nodes[i].entered {
			w.halfOpen[[2]int{j, i}] = true
			w.endLink(j, i)
		}
	})
}

// missLinks makes a node wait for the links to newcomers that it lacks in a view, and
// report them in the end, which leads to another view.
func (w *simWorld) missLinks(i int, v View) {
	s := w.nodes[i]
	for _, n := range v.Nodes {
		j := w.index(n.ID)
		if i == j || w.nodes[j].origin == "" || w.linked[[2]int{i, j}] || w.linked[[2]int{j, i}] && s.origin != "" && s.lie == honest || s.lie != honest {
			continue
		}
		lacks := func() bool {
			return s.alive && s.attached && !s.removed && has(w.view, s.id) && has(w.view, n.ID) && !w.linked[[2]int{i, j}]
		}
		w.after(simSettle, func() {
			if !lacks() {
				return
			}
			w.lost[[2]int{min(i, j), max(i, j)}] = true
			s.noticed = append(s.noticed, j)
			w.tell(i, func() { w.hear(func() { w.report(i, j) }) })
			term := w.term
			w.after(cutPatience+500*time.Millisecond, func() {
				if lacks() && w.term == term && w.arbiter != nil && !w.arbiter.held && !w.inFlight {
					w.failf("node %d waits for the link to node %d for longer than %v", i, j, simSettle)
				}
			})
		})
	}
}

// expect makes nodes expect a candidate.
func (w *simWorld) expect(v *Invitation) {
	for _, n := range v.Circle[:len(v.Circle)-1] {
		s := w.nodes[w.index(n.ID)]
		if s.expected == nil {
			s.expected = make(map[int]struct{})
		}
		s.expected[w.index(v.Node.ID)] = struct{}{}
	}
}

// checkExpected finds candidates that nodes of a calm world expect and that will not
// enter.
func (w *simWorld) checkExpected() {
	if w.term > 0 || !w.isPopulated() {
		return // A seed that replaces another announces all candidates again.
	}
	for i, s := range w.nodes {
		for j := range s.expected {
			if id := w.nodes[j].id; w.pending.find(id) == nil && !w.state.Knows(id) {
				w.failf("node %d expects node %d, which will not join", i, j)
				return
			}
		}
	}
}

// expectProgress checks that the links of an honest candidate are confirmed in time.
func (w *simWorld) expectProgress(i int) {
	s := w.nodes[i]
	w.after(progressMax, func() {
		c := w.pending.find(s.id)
		if w.term > 0 || c == nil || c.proven || w.harmed[i] || !s.alive || w.isCutOff(s.id) || !w.isPopulated() {
			return
		}
		for _, n := range w.view.Nodes {
			if j := w.index(n.ID); !w.nodes[j].alive || !w.nodes[j].attached || w.nodes[j].lie != honest {
				return
			}
		}
		w.failf("node %d has waited for %v, and its links are not confirmed: %+v", i, progressMax, *c)
	})
}

package membership

import (
	"fmt"
	"testing"
)

// A pairWorld is a search over two nodes and the connection between them. Nodes 0 and 1 carry out the effects of the table on their own.
type pairWorld struct {
	next func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects)
	pairSetting
	seen  map[pairState]bool
	stack []pairState
	err   error
}

// A pairSetting is what does not change in a pairWorld.
type pairSetting struct {
	relays     bool // there are relays
	neighbors  bool // the nodes connect without them
	silent     bool // a dial to a node that has ended is not refused
	memory     bool // the connection lasts as long as the processes
	joins      bool // node 1 is in no view yet
	faults     uint8
	wasNeeded  bool
	mayRejoin  bool // the path comes back after a cut
	viewChange bool // the seed may make a view without a node that is reported as lost, or has left, or with a neighbor that joins
}

type life uint8

const (
	lives  life = iota
	closes      // it waits for the connections that it needs
	parts       // it says goodbye, and stays until that was read
	hasLeft
	hasDied
)

// A pairNode is a node with what it knows of the other one.
type pairNode struct {
	Peer
	life    life
	over    bool // its link has ended
	dials   bool
	works   bool      // operations wait for the next connection
	noticed PeerEvent // that the loop has not handled yet
	told    bool      // another node has told it that the peer has left, or will
	awaits  bool      // AwaitProposal or AwaitGoodbye
	adopted bool      // the next view, without the peer
	entered bool      // the peer, in a view of this node
	done    PeerEffects
	fails   uint8 // times that the program hears of a failure
}

type pairState struct {
	nodes     [2]pairNode
	connected bool
	cut       bool    // no path leads from one node to the other
	bye       [2]bool // the goodbye of the other node is on its way
	faults    uint8
}

func (w *pairWorld) facts(s *pairState, at int) PeerFacts {
	return IsNeighbor.If(w.neighbors) | HasRelays.If(w.relays) | SelfLeaves.If(s.nodes[at].isLeaving()) |
		SharesMemory.If(w.memory) | RefusesDials.If(!w.silent) | WasNeeded.If(w.wasNeeded)
}

// isLeaving reports whether the node has begun to leave, and has not ended.
func (n *pairNode) isLeaving() bool { return n.life == closes || n.life == parts }

func (w *pairWorld) failf(s pairState, format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format+"; %+v; %+v", append(args, w.pairSetting, s)...)
	}
}

// apply applies an event to the peer of a node, and carries out the effects on the link.
func (w *pairWorld) apply(s *pairState, at int, e PeerEvent, more PeerFacts) {
	n := &s.nodes[at]
	before := n.Peer
	p, effects := w.next(before, e, more|w.facts(s, at))
	n.Peer, n.done = p, n.done|effects
	if p.Departure < before.Departure && e != Expected {
		w.failf(*s, "node %d: the departure of the peer goes back", at)
	}
	if effects.Has(NotifyFailed) || effects.Has(NotifyLost) {
		n.fails++
	}
	w.checkStep(s, at, before, e, more, effects)
	if effects.Has(EndComms) && !n.isLeaving() && !before.State.IsMember() {
		w.failf(*s, "node %d ends communicators with a peer in no view", at)
	}
	if effects.Has(Redial) {
		if before.HasStopped() || before.State.IsGone() && n.life != parts {
			w.failf(*s, "node %d dials a peer that is %v", at, before.State)
		}
		n.dials = true
	}
	if effects.Has(AwaitProposal) || effects.Has(AwaitGoodbye) {
		n.awaits = true
	}
	if effects.Has(EndLink) {
		w.end(s, at, LinkLost, 0)
	}
	if effects.Has(DropLink) {
		n.over, n.dials = true, false
		w.disconnect(s, ConnClosed, ConnClosed)
	}
	if effects.Has(Relink) {
		n.over, n.dials = false, false
	}
}

// checkStep checks the effects of an event.
func (w *pairWorld) checkStep(s *pairState, at int, before Peer, e PeerEvent, f PeerFacts, effects PeerEffects) {
	n, other := s.nodes[at], s.nodes[1-at]
	isEnd := e == ConnClosed || e == ConnStalled || e == ConnBroke
	switch {
	case !w.neighbors && n.Departure == Stopped && before.Departure != Stopped && (e == Goodbye || e == NoGoodbyeYet):
		w.failf(*s, "node %d takes the peer for one that forwards nothing any more, and it still relays", at)
	case effects.Has(ReportLost) && other.life < hasLeft && !s.cut && !other.over && !w.joins:
		w.failf(*s, "node %d reports a living peer as lost", at)
	case effects.Has(ReportLost) && other.life == hasLeft && before.Conn.IsBroken() && w.neighbors && !s.cut && !w.mayRejoin && !w.joins:
		w.failf(*s, "node %d reports a peer as lost that has left, and a path has led to it", at)
	case effects.Has(ReportLost) && n.isLeaving() && !w.neighbors:
		w.failf(*s, "node %d leaves, and reports a peer as lost although the relays to it may have left alone", at)
	case effects.Has(ReportLost) && f.Has(NoWay):
		w.failf(*s, "node %d reports a peer as lost, and only the relays to it are", at)
	case e == Goodbye && effects.Has(NotifyFailed):
		w.failf(*s, "node %d takes a goodbye for a failure", at)
	case e == LinkLost && effects.Has(ReportLeft):
		w.failf(*s, "node %d takes a loss for a goodbye", at)
	case e == ReportedGone && effects.Has(EndOperations):
		w.failf(*s, "node %d ends operations although data of the peer may still come", at)
	case e == ConnReleased && effects.Has(Redial):
		w.failf(*s, "node %d dials although both sides have closed the connection", at)
	case isEnd && w.neighbors && n.life == lives && before.State.IsMember() && effects&(Redial|EndLink) == 0:
		w.failf(*s, "node %d does not dial a neighbor again", at)
	}
}

// end ends the link of a node.
func (w *pairWorld) end(s *pairState, at int, e PeerEvent, more PeerFacts) {
	n := &s.nodes[at]
	n.over, n.dials = true, false
	w.apply(s, at, e, more)
}

// disconnect ends the connection. The nodes notice it by these events.
func (w *pairWorld) disconnect(s *pairState, events ...PeerEvent) {
	if !s.connected {
		return
	}
	s.connected, s.bye = false, [2]bool{}
	for at, e := range events {
		if n := &s.nodes[at]; n.life < hasLeft && !n.over {
			n.noticed = e
		}
	}
}

func (w *pairWorld) explore(s pairState) {
	if !w.seen[s] {
		w.seen[s] = true
		w.stack = append(w.stack, s)
	}
}

func (w *pairWorld) run() (states int, err error) {
	w.seen = make(map[pairState]bool)
	first := pairState{connected: true, faults: w.faults}
	for at := range first.nodes {
		w.connect(&first, at)
	}
	if w.joins {
		first.nodes[0].State = PeerExpected
	}
	w.explore(first)
	for len(w.stack) > 0 && w.err == nil {
		s := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		moved := w.fault(s)
		for at := range s.nodes {
			moved = w.move(s, at) || moved
		}
		if !moved {
			w.check(s)
		}
	}
	return len(w.seen), w.err
}

func (w *pairWorld) connect(s *pairState, at int) {
	e := Connected
	if !w.neighbors {
		e = ConnectedOverRelays
	}
	s.nodes[at].dials, s.nodes[at].works = false, false
	w.apply(s, at, e, 0)
}

// fault explores the faults that may happen.
func (w *pairWorld) fault(from pairState) (moved bool) {
	if from.faults == 0 {
		return false
	}
	from.faults--
	if from.connected {
		for _, events := range [][]PeerEvent{{ConnClosed, ConnStalled}, {ConnStalled, ConnClosed}, {ConnBroke, ConnClosed}, {ConnReleased, ConnReleased}} {
			if w.memory || events[0] == ConnBroke && w.silent { // Such connections end with a process or after the silence of a node that has stopped.
				continue
			}
			s := from
			w.disconnect(&s, events...)
			w.explore(s)
		}
	}
	if !w.memory {
		s := from
		s.cut = true
		w.disconnect(&s, ConnStalled, ConnStalled)
		w.explore(s)
	}
	for at := range from.nodes {
		if from.nodes[at].life != lives {
			continue
		}
		s := from
		s.nodes[at].life, s.nodes[at].noticed = hasDied, 0
		w.disconnect(&s, ConnBroke, ConnBroke)
		w.explore(s)
		s = from
		s.nodes[at].life = closes
		w.explore(s)
	}
	return true
}

// move explores what a node does next.
func (w *pairWorld) move(from pairState, at int) (moved bool) {
	n, other := from.nodes[at], from.nodes[1-at]
	if n.life >= hasLeft {
		return false
	}
	step := func(f func(s *pairState)) {
		s := from
		f(&s)
		w.explore(s)
		moved = true
	}
	if n.noticed != 0 {
		for _, hasWork := range []bool{false, true} {
			step(func(s *pairState) {
				s.nodes[at].noticed = 0
				w.apply(s, at, n.noticed, 0)
				if me := &s.nodes[at]; !me.over && hasWork {
					me.dials, me.works = true, true
				}
			})
		}
		return true
	}
	if from.bye[at] { // The goodbye of the peer, over the connection.
		step(func(s *pairState) {
			s.bye[at], s.nodes[at].awaits = false, false
			w.end(s, at, Goodbye, 0)
			if s.nodes[1-at].life == parts {
				w.leave(s, 1-at)
			}
		})
	}
	if n.dials && !n.over {
		w.dial(from, at, step)
	}
	if n.life == closes && (from.connected || !n.dials) {
		step(func(s *pairState) {
			s.nodes[at].life = parts
			w.apply(s, at, SelfClosing, 0)
		})
	}
	if n.life == parts {
		w.part(from, at, step)
	}
	if n.told && other.life == hasLeft {
		step(func(s *pairState) {
			s.nodes[at].told = false
			w.apply(s, at, ReportedGone, 0)
		})
	}
	if n.awaits {
		step(func(s *pairState) {
			switch s.nodes[at].awaits = false; {
			case s.nodes[at].over:
				if w.apply(s, at, ReportedGone, LinkOver); s.nodes[at].awaits {
					w.failf(*s, "node %d waits for a goodbye again and again", at)
				}
			case !s.bye[at]:
				w.end(s, at, NoGoodbye, 0)
			}
		})
	}
	if w.viewChange && !n.adopted && (n.done.Has(ReportLost) || n.done.Has(ReportLeft)) {
		step(func(s *pairState) {
			s.nodes[at].adopted = true
			w.apply(s, at, AdoptedOut, 0)
		})
	}
	if w.viewChange && w.joins && w.neighbors && at == 0 && !n.entered && !n.adopted { // The seed may not know that the peer has left.
		step(func(s *pairState) {
			s.nodes[at].entered = true
			s.nodes[at].done &^= ReportLost | ReportLeft
			w.apply(s, at, AdoptedIn, 0)
			s.nodes[at].dials = !s.connected && !s.nodes[at].over // It is watched.
		})
	}
	return moved
}

// part explores what a node does next that says goodbye.
func (w *pairWorld) part(from pairState, at int, step func(func(s *pairState))) {
	n, other := from.nodes[at], from.nodes[1-at]
	switch isSaid := from.bye[1-at]; {
	case from.connected && !other.over && !isSaid:
		step(func(s *pairState) { s.bye[1-at] = true })
	case isSaid: // It does not wait for ever.
		step(func(s *pairState) { w.leave(s, at) })
		if !w.neighbors { // Relays that leave as well lose a goodbye.
			step(func(s *pairState) {
				s.bye[1-at] = false
				w.leave(s, at)
			})
		}
	case n.over || other.over || !n.dials:
		step(func(s *pairState) { w.leave(s, at) })
	}
}

// leave is the end of a node that has left. Another node knows.
func (w *pairWorld) leave(s *pairState, at int) {
	s.nodes[at].life, s.connected, s.nodes[1-at].told = hasLeft, false, true
}

// dial explores the results of a dial.
func (w *pairWorld) dial(from pairState, at int, step func(func(s *pairState))) {
	other := from.nodes[1-at]
	switch {
	case from.cut || other.life >= hasLeft:
		step(func(s *pairState) {
			more := NoWay.If(!w.neighbors && other.life < hasLeft)
			w.end(s, at, LinkLost, more)
		})
	case other.over && !w.joins && other.isLeaving() && other.done&ReportLeft == 0: // It refuses the connection, and others tell that it leaves.
		return
	case other.over && !w.joins: // It answers that the link has ended.
		step(func(s *pairState) { w.end(s, at, LinkClosed, 0) })
	case other.noticed != 0: // An earlier connection ends first.
	default:
		step(func(s *pairState) {
			s.connected = true
			w.connect(s, at)
			w.connect(s, 1-at)
		})
	}
	if from.cut && w.mayRejoin {
		step(func(s *pairState) { s.cut = false })
	}
}

// check checks a state in which nothing happens any more.
func (w *pairWorld) check(s pairState) {
	for at := range s.nodes {
		n, other := s.nodes[at], s.nodes[1-at]
		if n.life >= hasLeft {
			continue
		}
		hasHeard := n.done.Has(EndComms) || n.done.Has(EndOperations) || n.done.Has(Relink)
		isBothThere := other.life < hasLeft && !s.cut
		switch {
		case other.life == hasDied && !n.over && (n.works || w.neighbors && n.Conn.IsBroken() || n.Conn == Direct || n.Conn == OverRelays) && n.State.IsMember():
			w.failf(s, "node %d does not notice the end of the peer", at)
		case other.life == hasDied && n.over && !hasHeard && n.State != PeerRemoved:
			w.failf(s, "operations of node %d wait for a peer that has died", at)
		case other.life == hasLeft && n.over && !hasHeard && n.State != PeerRemoved:
			w.failf(s, "operations of node %d wait for a peer that has left", at)
		case other.life == hasLeft && !n.over && n.State.IsMember():
			w.failf(s, "node %d keeps its link to a peer that has left", at)
		case other.life == hasDied && n.over && w.neighbors && n.life == lives && n.State.IsMember() && n.done&(ReportLost|ReportLeft) == 0:
			w.failf(s, "the seed does not learn from node %d that the peer has died", at)
		case other.life == hasLeft && n.entered && n.over && n.State.IsMember() && n.done&(ReportLost|ReportLeft) == 0:
			w.failf(s, "the seed does not learn from node %d that a peer of the view has left", at)
		case isBothThere && n.over && !other.over && !w.joins && n.State != PeerRemoved:
			w.failf(s, "node %d has ended its link, and its peer has not", at)
		case isBothThere && !n.over && n.Conn.IsBroken() && !s.connected && n.State.IsMember() && !w.joins && w.neighbors:
			w.failf(s, "node %d has a broken link that nobody dials", at)
		}
		if n.fails > 1 {
			w.failf(s, "the program of node %d hears of %d failures", at, n.fails)
		}
		if n.done.Has(ReportLeft) && n.fails > 0 && n.State != PeerLeftLost && n.State != PeerRemoved {
			w.failf(s, "node %d has the goodbye of the peer, and takes it for failed", at)
		}
		if n.done.Has(EndOperations) && n.done.Has(ReportLeft) && n.Departure != Stopped && n.Conn != OverRelays {
			w.failf(s, "node %d has the goodbye of the peer, and takes it for a relay", at)
		}
		if w.joins && at == 0 && !n.entered && (n.fails > 0 || n.done.Has(EndComms)) {
			w.failf(s, "node %d takes the end of a peer in no view for a failure", at)
		}
	}
}

// pairSettings returns the worlds that are searched.
func pairSettings() (list []pairSetting) {
	for i := range 1 << 7 {
		bit := func(n int) bool { return i>>n&1 == 1 }
		s := pairSetting{relays: bit(0), neighbors: bit(1), silent: bit(2), joins: bit(3), wasNeeded: bit(4), viewChange: bit(5), mayRejoin: bit(6), faults: 3}
		if !s.relays && !s.neighbors {
			s.memory, s.neighbors = true, true
		}
		list = append(list, s)
	}
	return list
}

// In all orders of three faults of two nodes, the table keeps its promises.
func TestPeers(t *testing.T) {
	total := 0
	for _, s := range pairSettings() {
		w := &pairWorld{next: Peer.Next, pairSetting: s}
		states, err := w.run()
		if err != nil {
			t.Fatal(err)
		}
		total += states
	}
	t.Logf("%d states of %d worlds", total, len(pairSettings()))
}

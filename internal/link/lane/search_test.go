package lane

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// randomLimits returns the limits of a random history.
func randomLimits(rnd *rand.Rand) limits {
	l := limits{frames: rnd.IntN(9), grants: rnd.IntN(5), dials: 3 + rnd.IntN(8), cuts: rnd.IntN(7), faults: rnd.IntN(4), links: 2}
	switch rnd.IntN(4) {
	case 0: // Links end often.
		l.byes, l.links, l.frames, l.grants, l.dials = 2+rnd.IntN(3), 4, rnd.IntN(3), 0, 12
	case 1: // So do connections.
		l.frames, l.grants, l.dials, l.cuts = 1, 0, 12, 10
	}
	if rnd.IntN(3) == 0 {
		l.byes = max(l.byes, 1+rnd.IntN(2))
	}
	return l
}

const stepsMax = 150

// history makes up to most random steps, then lets the world settle, and returns the world.
func history(seed uint64, most int, trace bool) *world {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(rnd, randomLimits(rnd))
	if trace {
		w.trace = []string{fmt.Sprintf("%+v", w.limits)}
	}
	for range most {
		list := w.steps(rnd.IntN(6) == 0)
		if len(list) == 0 {
			break
		}
		if w.do(list[rnd.IntN(len(list))]); w.err != nil {
			return w
		}
		w.checkMemory()
	}
	w.settle()
	return w
}

// checkMemory checks the bound of the buffers, by the bytes kept.
func (w *world) checkMemory() {
	for _, p := range w.procs {
		if p.link == nil {
			continue
		}
		for lane := range p.link.lanes {
			h := &p.link.lanes[lane]
			if kept, memory := h.out.Kept(), h.out.Memory(); memory > 4*kept+16<<10 {
				w.failf("%d bytes are kept in %d bytes", kept, memory)
			}
		}
	}
}

// settle lets everything arrive, without further faults, and checks the result. Half of the worlds do not see the ends of
// connections that were cut before: a side that makes no progress dials.
func (w *world) settle() {
	sees := w.upTo(1) == 1
	for dials := 0; w.err == nil; {
		if w.trace != nil {
			w.trace = append(w.trace, "settle")
		}
		for some := true; some && w.err == nil; {
			some = false
			for _, s := range append([]step(nil), w.calm(sees)...) {
				if w.isPossible(s) && w.do(s) {
					some = true
				}
			}
		}
		if w.checkCalm(sees); w.err != nil || !w.redial() {
			break
		}
		if dials++; dials > 60 {
			w.failf("no progress")
		}
	}
	if w.err == nil {
		w.checkSettled()
	}
}

// calm returns the steps that a world without further faults makes.
func (w *world) calm(sees bool) []step {
	w.limits.frames, w.limits.grants, w.limits.dials, w.limits.byes, w.limits.links = 0, 0, 0, 0, 0
	list := w.steps(false)
	n := 0
	for _, s := range list {
		if s.kind != stepSee || sees && w.hasRead(s.pair.ends[s.side]) {
			list[n] = s
			n++
		}
	}
	for side, p := range w.procs { // The program withdraws grants whose transfers were recalled.
		if p.link != nil {
			for i, s := range p.link.open {
				if s.recalled {
					return append(list[:n], step{kind: stepWithdraw, side: int8(side), at: int8(i)})
				}
			}
		}
	}
	return list[:n]
}

// hasRead reports whether everything that can be read at an end was read.
func (w *world) hasRead(e *end) bool {
	if e.reading {
		return len(slices.Concat(e.in[:]...)) == 0
	}
	return true
}

// isPossible reports whether a step of a list is still possible after others of it.
func (w *world) isPossible(s step) bool {
	l := w.procs[s.side].link
	if s.pair != nil {
		e := s.pair.ends[s.side]
		switch {
		case s.kind == stepRead:
			return true
		case e.dead, s.kind == stepEndWrite && !e.holds[s.at], s.kind == stepEndSegment && e.bulk[s.at] == nil:
			return false
		case s.kind == stepState:
			return e.phase == begun
		case s.kind == stepAdmit:
			return e.phase == arrived && e.canAdmit()
		}
		return true
	}
	if l == nil {
		return false
	}
	switch s.kind {
	case stepStopped:
		return l.halting
	case stepWrite:
		return l.works() && !l.at.holds[s.at]
	case stepAck:
		return l.works()
	case stepSegment:
		return l.works() && l.at.bulk[s.at] == nil && w.nextTransfer(l, l.at, int(s.at)) != nil
	case stepStart:
		return int(s.at) < len(l.announced) && !l.bye
	case stepWithdraw:
		return int(s.at) < len(l.open) && l.open[s.at].recalled
	}
	return false
}

// checkCalm checks the connections when nothing is on its way.
func (w *world) checkCalm(sees bool) {
	for side, p := range w.procs {
		if l, other := p.link, w.procs[1-side].link; l != nil {
			if l.dialed && other != nil && l.isPeer(other) && other.isPeer(l) && (l.at == nil || other.at == nil || l.at.pair != other.at.pair) {
				w.failf("%v was dialed and has no connection", l.session.Self)
			}
			l.dialed = false
		}
	}
	for _, p := range w.conns {
		for _, e := range p.ends {
			if sees && !e.dead && (e.of.link == nil || e.of.link.at != e) {
				w.failf("a connection is not closed")
			}
		}
	}
}

// isPeer reports whether another link can be the peer of l.
func (l *link) isPeer(other *link) bool {
	return l.session.Peer == (wire.LinkID{}) || l.session.Peer == other.session.Self
}

// redial dials for the links that have something to send, after timeouts have ended what makes no progress. It reports whether there are any.
func (w *world) redial() (some bool) {
	for side, p := range w.procs {
		l := p.link
		if l == nil || !l.isWaiting() {
			continue
		}
		some = true
		for _, c := range w.conns {
			for _, e := range c.ends {
				if c.cut && !e.dead && (e.phase != bound || e == l.at) { // The peer may believe that it has a connection.
					w.lose(e)
				}
			}
		}
		if l.halting || l.at != nil {
			continue
		}
		if w.procs[1-side].link == nil && l.session.Peer == (wire.LinkID{}) { // The peer is told of the node, too.
			w.newLink(1 - side)
		}
		if l.dialed = w.dial(side); w.upTo(3) > 0 {
			break
		}
	}
	return some
}

// isWaiting reports whether the link has something to send.
func (l *link) isWaiting() bool {
	return l.lanes[0].out.Kept()+l.lanes[1].out.Kept() > 0 || len(l.transfers.All()) > 0
}

// checkSettled checks that everything has arrived and nothing is left over.
func (w *world) checkSettled() {
	for i := range w.old {
		if !w.old[i].check() {
			w.failf("the bytes of a writer of an earlier connection have changed")
		}
	}
	for _, p := range w.procs {
		l := p.link
		if l == nil {
			continue
		}
		if len(l.active)+len(l.announced) > 0 && !l.bye {
			w.failf("%d transfers and %d announcements are left", len(l.active), len(l.announced))
		}
		peer := w.truth[l.session.Peer]
		if peer != nil && peer.ended && l.isWaiting() {
			w.failf("%v waits for its peer, which has ended", l.session.Self)
		}
		if peer != nil && !peer.ended {
			w.checkAll(l.truth)
			w.checkAll(peer)
			if len(l.open) > 0 && w.procs[1-p.side].link != nil && !w.procs[1-p.side].link.bye {
				w.failf("%d grants are left", len(l.open))
			}
		}
		for lane := range l.lanes {
			h := &l.lanes[lane]
			if h.out.Trim(); h.out.Memory() > 2*idleMax {
				w.failf("an idle lane keeps %d bytes", h.out.Memory())
			}
		}
	}
}

// Random histories keep the promises of the package. SEARCH is their number.
func TestSearch(t *testing.T) {
	n := 10_000
	if s := os.Getenv("SEARCH"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	var frames, grants, filled int
	for seed := range uint64(n) {
		w := history(seed, stepsMax, false)
		if w.err != nil {
			fail(t, seed)
		}
		for _, l := range w.truth {
			frames += l.handled[0] + l.handled[1]
			for _, k := range l.sinks {
				if grants++; k.filled {
					filled++
				}
			}
		}
	}
	report(t, "random         %d histories: %d frames handled once and in order, %d grants made, %d filled", n, frames, grants, filled)
}

// report logs a line, and adds it to the file REPORT.
func report(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	name := os.Getenv("REPORT")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
}

// fail reports the shortest failing beginning of a history.
func fail(t *testing.T, seed uint64) {
	t.Helper()
	for most := range stepsMax + 1 {
		if w := history(seed, most, true); w.err != nil {
			for i, s := range w.trace {
				t.Logf("%3d %s", i, s)
			}
			t.Fatalf("history %d after %d steps: %v", seed, most, w.err)
		}
	}
}

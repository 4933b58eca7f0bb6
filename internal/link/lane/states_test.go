package lane

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// key returns a hash of everything that the future of a world depends on.
func (w *world) key(seed maphash.Seed) uint64 {
	w.steps(true) // It removes connections that are over.
	var b []byte
	num := func(list ...int) {
		for _, n := range list {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	flag := func(list ...bool) {
		for _, f := range list {
			n := 0
			if f {
				n = 1
			}
			num(n)
		}
	}
	bytes := func(p []byte) {
		num(len(p))
		b = append(b, p...)
	}
	id := func(x wire.LinkID) { num(int(x.Process), int(x.Link)) }
	place := func(e *end) int {
		return slices.IndexFunc(w.conns, func(p *pair) bool { return e != nil && e.pair == p })
	}
	l := w.limits
	num(l.frames, l.grants, l.dials, l.cuts, l.faults, l.links)
	for _, p := range w.conns {
		flag(p.cut)
		for _, e := range p.ends {
			num(int(e.phase), int(e.claim.number), int(e.claim.ended))
			if e.phase == arrived || e.phase == accepted {
				bytes(appendOpening(nil, &e.theirs))
			}
			flag(e.dead, e.reading)
			for pipe, in := range e.in {
				bytes(in)
				g := &e.segment[pipe]
				num(int(g.grant), g.left)
				flag(g.isSet, g.sink != nil && !g.sink.withdrawn)
			}
		}
	}
	for _, p := range w.procs {
		num(int(p.numbers))
		l := p.link
		if l == nil {
			num(-1)
			continue
		}
		s := &l.session
		id(s.Self)
		id(s.Peer)
		id(l.truth.handler)
		num(int(s.newest), int(s.ended), place(l.at))
		flag(s.inUse, s.proposing, s.answering, l.halting)
		h := &l.lanes[1]
		o := &h.out
		num(int(o.acked), int(o.written), int(o.batch), int(o.high), int(o.end), l.truth.sent[1], l.truth.handled[1], int(h.in.received.Load()), int(h.in.stated.Load()))
		bytes(o.transient[o.passed:])
		for _, g := range l.open {
			num(int(g.id), g.got)
			flag(g.recalled)
		}
		for _, a := range l.announced {
			num(int(a.grant))
		}
		for _, t := range l.active {
			u := t.Of.(*usage)
			num(int(t.grant), t.sent, t.begun, place(u.at), u.pipe)
		}
	}
	return maphash.Bytes(seed, b)
}

// A path is the choices that lead to a state.
type path []uint8

// replay returns the world after the choices of a path.
func replay(l limits, p path, trace bool) *world {
	w := newWorld(nil, l)
	if trace {
		w.trace = []string{fmt.Sprintf("%+v", l)}
	}
	for _, i := range p {
		w.do(w.steps(true)[i])
	}
	return w
}

// explore visits every state that a world with some limits can reach, in the order of their distance, and lets each of them
// settle. It returns the number of states and transitions.
func explore(t *testing.T, l limits) (states, transitions int) {
	t.Helper()
	seed := maphash.MakeSeed()
	seen := map[uint64]struct{}{replay(l, nil, false).key(seed): {}}
	queue := []path{nil}
	for ; len(queue) > 0; states++ {
		from := queue[0]
		queue = queue[1:]
		w := replay(l, from, false)
		n := len(w.steps(true))
		if w.settle(); w.err != nil {
			w = replay(l, from, true)
			w.settle()
			t.Fatalf("%d states: %v\n%v", states, w.err, w.trace)
		}
		for i := range n {
			to := append(slices.Clone(from), uint8(i))
			w := replay(l, to, false)
			if transitions++; w.err != nil {
				t.Fatalf("%d states: %v\n%v", states, w.err, replay(l, to, true).trace)
			}
			key := w.key(seed)
			if _, ok := seen[key]; !ok {
				seen[key] = struct{}{}
				queue = append(queue, to)
			}
		}
	}
	return states, transitions
}

// From every state that small worlds can reach everything arrives. SEARCH makes the worlds larger.
func TestEveryState(t *testing.T) {
	small := []limits{
		{frames: 1, dials: 2},
	}
	large := []limits{
		{dials: 2, cuts: 1},
		{frames: 1, dials: 2, cuts: 1},
		{grants: 1, dials: 2, cuts: 1},
		{frames: 2, dials: 2, cuts: 1},
		{frames: 1, dials: 3, links: 1},
	}
	if os.Getenv("SEARCH") != "" && os.Getenv("MUTANT") == "" {
		small = append(small, large...)
	}
	for _, l := range small {
		states, transitions := explore(t, l)
		report(t, "every state    frames %d, grants %d, dials %d, cuts %d, links %d: %8d states, %8d transitions", l.frames, l.grants, l.dials, l.cuts, l.links, states, transitions)
	}
}

package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestArrivalsInAnyOrder: lanes overtake each other, and ranks begin at different times. Steps,
// grants and data arrive before their operation, before its communicator, and in any order.
func TestArrivalsInAnyOrder(t *testing.T) {
	const n = 4
	algorithms := []choice{
		{plan.AllReduce, "ring", 3, 0}, {plan.AllReduce, "recursive-doubling", 1, 0}, {plan.AllReduce, "rabenseifner", 2, 0},
		{plan.AllReduce, "direct", 1, 0}, {plan.AllReduce, "circulant", 1, 0}, {plan.AllReduce, "flat", 2, 0},
	}
	seeds := int64(12)
	if testing.Short() {
		seeds = 6 // Each length meets each algorithm.
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, n, overSim(sim.Config{Seed: seed, Delay: time.Millisecond, Jitter: 80 * time.Millisecond}), Config{}, 3)
			noError(t, w.on(func(rank int, _ *Comm) error {
				rng := rand.New(rand.NewPCG(uint64(seed), uint64(rank)))
				if rank == 3 {
					time.Sleep(200 * time.Millisecond)
					w.open(3)
				}
				var data [][]byte
				var ops []*Op
				for i, count := range []int{1, 700, 30_000, 90_000, 0, 5} {
					if rank%2 == 0 {
						time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
					}
					data = append(data, vector(rank, count))
					op, err := w.comms[rank].start(w.work(rank, algorithms[(i+int(seed))%len(algorithms)], data[i]))
					if err != nil {
						return err
					}
					ops = append(ops, op)
				}
				for i, op := range ops {
					if err := op.Wait(t.Context()); err != nil {
						return fmt.Errorf("operation %d: %w", i, err)
					}
					if err := checkSum(data[i], n); err != nil {
						return fmt.Errorf("operation %d: %w", i, err)
					}
				}
				return nil
			}))
		})
	}
}

// pairwise is a plan of two ranks with one step in each direction.
var pairwise = choice{plan.AllReduce, "recursive-doubling", 1, 0}

// stepOf returns the i-th step to a rank in the operation with a sequence number.
func stepOf(work exec.Work, seq uint64, i int) wire.Step {
	s := wire.Step{Call: work.Call, Index: uint32(i)}
	s.Call.Comm, s.Call.Seq = commID, seq
	return s
}

// TestEarlyAndLateSteps: a step may arrive before the communicator, before the
// operation, after it has begun, or after the communicator is closed. Its credit is always
// returned.
func TestEarlyAndLateSteps(t *testing.T) {
	const count = 15_000 // The payload is shorter than the maximum of a step.
	w, peers, _ := newFakePeers(t, 2)
	p := peers[1]
	payload := vector(1, count)
	for seq := uint64(1); seq <= 100; seq++ {
		data := vector(0, count)
		work := w.workOf(pairwise, data)
		send := func() {
			p.credit(wire.Collectives, len(payload))
			p.link.SendStep(stepOf(work, seq, 0), payload)
		}
		if seq%2 == 1 {
			send()
		}
		if seq == 1 {
			until(t, "the step", func() bool { return w.engines[0].known(commID) != nil })
			w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
		}
		if seq%4 == 1 {
			time.Sleep(100 * time.Microsecond)
		}
		op, err := w.comms[0].start(work)
		if err != nil {
			t.Fatal(err)
		}
		if seq%2 == 0 {
			send()
		}
		if err := op.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := checkSum(data, 2); err != nil {
			t.Fatal(err)
		}
		if got := p.expect("step"); !bytes.Equal(got.payload, vector(0, count)) {
			t.Fatal("the other way: a wrong payload")
		}
	}
	w.comms[0].Close()
	for range 100 {
		p.credit(wire.Collectives, len(payload))
		p.link.SendStep(stepOf(w.workOf(pairwise, payload), 7, 0), payload)
		p.credit(wire.Messages, len(payload))
		p.link.SendMessage(wire.Message{Comm: commID}, payload)
	}
}

// TestCreditOfHeldSteps: steps that are held when an operation fails, for it or for
// a later one, return their credit.
func TestCreditOfHeldSteps(t *testing.T) {
	w, peers, _ := newFakePeers(t, 3)
	p := peers[2]
	data := vector(0, 3*14_976)
	for id := range uint64(60) {
		c := w.engines[0].NewComm(100+id, 0, w.links[0])
		work := w.workOf(ring, data)
		op, err := c.start(work)
		if err != nil {
			t.Fatal(err)
		}
		// The fourth step of the first operation depends on steps that have not
		// arrived.
		for _, s := range []wire.Step{stepOf(work, 1, 3), stepOf(work, 2, 0)} {
			s.Call.Comm = 100 + id
			p.credit(wire.Collectives, 59_904)
			p.link.SendStep(s, make([]byte, 59_904))
		}
		until(t, "the step", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.early) > 0
		})
		c.Close()
		if err := op.Wait(t.Context()); err != ErrClosed {
			t.Fatal(err)
		}
	}
}

// A peer that revokes a communicator which this rank has not made gets the credit for its
// steps and messages back at once: for those before the revocation, and for those that arrive
// after it, since lanes overtake each other.
func TestCreditOfRevokedComm(t *testing.T) {
	w, peers, _ := newFakePeers(t, 2)
	p := peers[1]
	payload := vector(1, 15_000)
	send := func(id uint64) {
		p.credit(wire.Collectives, len(payload))
		s := stepOf(w.workOf(pairwise, payload), 1, 0)
		s.Call.Comm = id
		p.link.SendStep(s, payload)
		p.credit(wire.Messages, len(payload))
		p.link.SendMessage(wire.Message{Comm: id}, payload)
	}
	for id := uint64(100); id < 160; id++ {
		send(id)
		p.link.Revoke(wire.Revoke{Comm: id, Cause: wire.CauseCancelled, Rank: 1}, "x")
		until(t, "the revocation", func() bool { return hasHeardOfEnd(w.engines[0], id) })
		send(id)
	}
	c := w.engines[0].NewComm(100, 0, w.links[0])
	if !isType[*RevokedError](c.Err()) {
		t.Errorf("made later: %v, want a RevokedError", c.Err())
	}
}

// TestCreditOfMismatchedSteps: the steps that reveal a mismatch, and all others that arrived before
// their operations, return their credit.
func TestCreditOfMismatchedSteps(t *testing.T) {
	const count = 15_000
	w, peers, _ := newFakePeers(t, 2)
	p := peers[1]
	payload := vector(1, count)
	for id := range uint64(60) {
		c := w.engines[0].NewComm(100+id, 0, w.links[0])
		work := w.workOf(pairwise, vector(0, count))
		for seq := range uint64(2) {
			s := stepOf(work, 1+seq, 0)
			s.Call.Comm = 100 + id
			s.Call.Root++ // This makes it another call.
			p.credit(wire.Collectives, len(payload))
			p.link.SendStep(s, payload)
		}
		until(t, "the steps", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.early) == 2
		})
		op, err := c.start(work)
		if err != nil {
			t.Fatal(err)
		}
		if err := op.Wait(t.Context()); !isType[*MismatchError](err) {
			t.Fatalf("round %d: %v, want a MismatchError", id, err)
		}
		c.Close()
	}
}

// TestMismatch: when a rank makes another call than the others, all ranks get a MismatchError
// that names it, whenever the first frame arrives.
func TestMismatch(t *testing.T) {
	base := choice{plan.AllReduce, "ring", 1, 0}
	for name, test := range map[string]struct {
		a, b           choice
		countA, countB int
	}{
		"another length":         {base, base, 100, 101},
		"another long length":    {base, base, 100_000, 100_001},
		"short and long":         {base, base, 1, 300_000},
		"another collective":     {base, choice{plan.Barrier, "dissemination", 1, 0}, 100, 0},
		"another root":           {choice{plan.Broadcast, "binomial", 1, 0}, choice{plan.Broadcast, "binomial", 1, 1}, 10, 10},
		"another algorithm":      {base, choice{plan.AllReduce, "circulant", 1, 0}, 100, 100},
		"another channel":        {base, choice{plan.AllReduce, "ring", 2, 0}, 100, 100},
		"long, another channel":  {base, choice{plan.AllReduce, "ring", 2, 0}, 100_000, 100_000},
		"long, another one":      {base, choice{plan.AllReduce, "circulant", 1, 0}, 300_000, 300_000},
		"nothing and something":  {base, base, 0, 10},
		"a barrier, and nothing": {choice{plan.Barrier, "dissemination", 1, 0}, base, 0, 0},
	} {
		for _, n := range []int{2, 3} {
			for late := range n {
				t.Run(fmt.Sprintf("%s/%d ranks/%d late", name, n, late), func(t *testing.T) {
					w := newWorld(t, n, overMem, Config{})
					mismatch(t, w, late, func(rank int) exec.Work {
						if rank == 1 {
							return w.work(rank, test.b, vector(rank, test.countB))
						}
						return w.work(rank, test.a, vector(rank, test.countA))
					})
				})
			}
		}
	}
}

// mismatch runs an operation. Rank 1 makes another call.
func mismatch(t *testing.T, w *world, late int, work func(rank int) exec.Work) {
	t.Helper()
	errs := w.on(func(rank int, c *Comm) error {
		if rank == late {
			time.Sleep(2 * time.Millisecond)
		}
		op, err := c.start(work(rank))
		if err == nil {
			err = op.Wait(t.Context())
		}
		if err == nil { // A root may have ended before: then the next call fails.
			until(t, "the end of the communicator", func() bool { return c.Err() != nil })
			err = c.Err()
		}
		return err
	})
	for rank, err := range errs {
		m, ok := errors.AsType[*MismatchError](err)
		if !ok {
			t.Errorf("rank %d: %v, want a MismatchError", rank, err)
			continue
		}
		if !isRank(m.Rank, 1) && !isRank(m.Peer, 1) {
			t.Errorf("rank %d: the error names ranks %d and %d, want rank 1", rank, m.Rank, m.Peer)
		}
		if m.Ours == m.Theirs || m.Ours.Seq != m.Theirs.Seq {
			t.Errorf("rank %d: %+v and %+v, want different calls of the same number", rank, m.Ours, m.Theirs)
		}
	}
}

// TestMismatchAfterTheEnd: a rank remembers calls that have ended.
func TestMismatchAfterTheEnd(t *testing.T) {
	w, peers, _ := newFakePeers(t, 2)
	w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
	broadcast := w.workOf(choice{plan.Broadcast, "binomial", 1, 0}, vector(0, 10))
	for range 50 {
		op, err := w.comms[0].start(broadcast)
		if err != nil {
			t.Fatal(err)
		}
		if err := op.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	other := stepOf(w.workOf(pairwise, vector(0, 10)), 3, 0)
	peers[1].credit(wire.Collectives, 40)
	peers[1].link.SendStep(other, make([]byte, 40))
	r := peers[1].expect("revoke").revoke
	if r.Cause != wire.CauseMismatch || r.Ours.Kind != uint8(plan.Broadcast) || r.Theirs != other.Call || r.Rank != 0 || r.Peer != 1 {
		t.Errorf("got %+v", r)
	}
	if !isType[*MismatchError](w.comms[0].Err()) {
		t.Errorf("rank 0: %v", w.comms[0].Err())
	}
}

// TestProtocolErrorsOfSteps: frames that break the protocol end the link, and do not touch the
// memory of the operation.
func TestProtocolErrorsOfSteps(t *testing.T) {
	const small, large = 10, 100_000
	step := func(p *fakePeer, s wire.Step, n int) {
		p.credit(wire.Collectives, n)
		p.link.SendStep(s, make([]byte, n))
	}
	for name, test := range map[string]struct {
		count int
		send  func(p *fakePeer, s wire.Step)
	}{
		"a step twice":                {small, func(p *fakePeer, s wire.Step) { step(p, s, 40); s.Index = 0; step(p, s, 40) }},
		"a step of the wrong length":  {small, func(p *fakePeer, s wire.Step) { step(p, s, 41) }},
		"a step beyond the plan":      {small, func(p *fakePeer, s wire.Step) { s.Index = 9; step(p, s, 40) }},
		"a channel beyond the plan":   {small, func(p *fakePeer, s wire.Step) { s.Channel = 1; step(p, s, 40) }},
		"an offer, and then a step":   {small, func(p *fakePeer, s wire.Step) { p.link.OfferStep(s); step(p, s, 40) }},
		"an offer twice":              {small, func(p *fakePeer, s wire.Step) { p.link.OfferStep(s); p.link.OfferStep(s) }},
		"an offer without need":       {large, func(p *fakePeer, s wire.Step) { p.link.OfferStep(s) }},
		"a step that must be granted": {large, func(p *fakePeer, s wire.Step) { step(p, s, wire.PayloadMax) }},
		"a grant without an offer":    {small, func(p *fakePeer, s wire.Step) { s.Grant = 1; p.link.GrantStep(s) }},
		"a grant twice": {large, func(p *fakePeer, s wire.Step) {
			s.Grant = p.link.Grant(newSink(3 * 4 * large)) // so that the peer accepts the payload
			p.link.GrantStep(s)
			p.link.GrantStep(s)
		}},
		"a grant beyond the plan": {large, func(p *fakePeer, s wire.Step) { s.Index, s.Grant = 3, 1; p.link.GrantStep(s) }},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/early %v", name, early), func(t *testing.T) {
				// Rank 2 is silent, so the operation does not end.
				w, peers, lost := newFakePeers(t, 3)
				w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
				work := w.workOf(choice{plan.AllReduce, "direct", 1, 0}, vector(0, 3*test.count))
				s := stepOf(work, 1, 0)
				var op *Op
				var err error
				if !early {
					op, err = w.comms[0].start(work)
				}
				test.send(peers[1], s)
				if early {
					time.Sleep(time.Millisecond)
					op, err = w.comms[0].start(work)
				}
				if err != nil {
					t.Fatal(err)
				}
				select {
				case err = <-lost:
					if !strings.Contains(err.Error(), "protocol error") {
						t.Errorf("the link is lost: %v", err)
					}
				case <-time.After(time.Minute):
					t.Fatal("the link does not end within a minute")
				}
				if err := op.Wait(t.Context()); !isType[*PeerError](err) {
					t.Errorf("got %v, want a PeerError", err)
				}
			})
		}
	}
}

// TestQuery: a rank answers a query with its last call. A query of a call that it has not made
// becomes a mismatch when it makes another call in its place.
func TestQuery(t *testing.T) {
	w, peers, _ := newFakePeers(t, 2)
	p := peers[1]
	call := stepOf(w.workOf(pairwise, vector(0, 10)), 2, 0).Call
	p.link.Query(wire.Query{Call: call})
	if got := p.expect("where").where; got.Seq != 2 || got.Active || got.Last != (wire.Call{Comm: commID}) {
		t.Errorf("before the communicator: %+v", got)
	}
	w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
	op, err := w.comms[0].start(w.workOf(choice{plan.Broadcast, "binomial", 1, 1}, vector(0, 10)))
	if err != nil {
		t.Fatal(err)
	}
	p.link.Query(wire.Query{Call: call})
	if got := p.expect("where").where; got.Seq != 2 || !got.Active || got.Last.Seq != 1 || got.Last.Kind != uint8(plan.Broadcast) {
		t.Errorf("in the first operation: %+v", got)
	}
	if _, err := w.comms[0].start(w.workOf(pairwise, vector(0, 11))); err != nil {
		t.Fatal(err)
	}
	if r := p.expect("revoke").revoke; r.Cause != wire.CauseMismatch || r.Theirs != call {
		t.Errorf("got %+v, want a mismatch", r)
	}
	if err := op.Wait(t.Context()); !isType[*MismatchError](err) {
		t.Errorf("the operation before it: %v", err)
	}
}

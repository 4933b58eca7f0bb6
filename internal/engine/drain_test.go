package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/sim"
)

// linkLost is the end of the link to a rank whose process has ended.
func (w *world) linkLost(of, peer int) {
	l := w.links[of][peer]
	w.engines[of].PeerChanged(PeerChange{Peer: l.Peer, Link: l, Err: errGone, LinkEnded: true})
}

// names reports whether an error is the failure of a rank.
func names(err error, rank int) bool {
	p, ok := errors.AsType[*PeerError](err)
	return ok && isRank(p.Rank, rank) && !p.Left
}

// TestFailureOfAnUnneededRank: a process ends after its part of a collective. The collective succeeds on a rank that needs nothing
// more from it, also if another rank is late. No further call begins, and messages end.
func TestFailureOfAnUnneededRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, overSim(sim.Config{}), Config{})
		c := w.comms[0]
		op, err := c.start(w.work(0, choice{plan.Broadcast, "flat", 1, 2}, vector(0, 10)))
		if err != nil {
			t.Fatal(err)
		}
		w.linkLost(0, 1)
		time.Sleep(drainMax / 2)
		if err := w.run(t.Context(), 2, choice{plan.Broadcast, "flat", 1, 2}, vector(2, 10)); err != nil {
			t.Errorf("root: %v", err)
		}
		if err := op.Wait(t.Context()); err != nil {
			t.Errorf("the broadcast of rank 2: %v, although rank 1 is not needed", err)
		}
		if err := w.run(t.Context(), 0, choice{plan.Broadcast, "flat", 1, 2}, vector(0, 10)); !names(err, 1) {
			t.Errorf("the next collective: got error %v, want the failure of rank 1", err)
		}
		if !names(c.Err(), 1) {
			t.Errorf("got error %v, want the failure of rank 1", c.Err())
		}
	})
}

// TestFailureOfANeededRank: the collective fails at once on the rank that needs the failed one, which tells those that wait for it. They
// know the failure, and name the rank as well.
func TestFailureOfANeededRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, overSim(sim.Config{}), Config{})
		begun := time.Now()
		ch := choice{plan.Broadcast, "chain", 1, 2} // from rank 2 to 0 to 1
		var ops [2]*Op
		for rank := range ops {
			op, err := w.comms[rank].start(w.work(rank, ch, vector(rank, 10)))
			if err != nil {
				t.Fatal(err)
			}
			ops[rank] = op
		}
		w.linkLost(1, 2) // Rank 1 waits for rank 0.
		w.linkLost(0, 2)
		for rank, op := range ops {
			if err := op.Wait(t.Context()); !names(err, 2) {
				t.Errorf("rank %d: got error %v, want the failure of rank 2", rank, err)
			}
		}
		if took := time.Since(begun); took >= drainMax {
			t.Errorf("took %v", took)
		}
	})
}

// TestDrainEnds: a rank that is needed knows of the failure, and begins no collective any more. The others wait for it until it says so, and
// at most drainMax.
func TestDrainEnds(t *testing.T) {
	for name, refuses := range map[string]bool{"silent": false, "refuses": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3, overSim(sim.Config{}), Config{})
				begun := time.Now()
				ch := choice{plan.Broadcast, "flat", 1, 2}
				op, err := w.comms[0].start(w.work(0, ch, vector(0, 10)))
				if err != nil {
					t.Fatal(err)
				}
				w.linkLost(0, 1)
				w.linkLost(2, 1)
				want := drainMax
				if refuses {
					want = 0
					if err := w.run(t.Context(), 2, ch, vector(2, 10)); !names(err, 1) {
						t.Errorf("rank 2: got error %v, want the failure of rank 1", err)
					}
				}
				if err := op.Wait(t.Context()); !names(err, 1) {
					t.Errorf("got error %v, want the failure of rank 1", err)
				}
				if took := time.Since(begun); took < want || took > want+time.Millisecond {
					t.Errorf("took %v, want %v", took, want)
				}
			})
		})
	}
}

// TestCloseWhileDraining: a communicator is closed while a collective goes on after the failure of a rank, as for the next epoch. The
// collective ends with the failure.
func TestCloseWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, overSim(sim.Config{}), Config{})
		op, err := w.comms[0].start(w.work(0, choice{plan.Broadcast, "flat", 1, 2}, vector(0, 10)))
		if err != nil {
			t.Fatal(err)
		}
		w.linkLost(0, 1)
		w.comms[0].Close()
		if err := op.Wait(t.Context()); !names(err, 1) {
			t.Errorf("got error %v, want the failure of rank 1", err)
		}
	})
}

// TestReportedFailure: another rank reports the failure of a rank whose link works. What that rank has sent before may still arrive.
func TestReportedFailure(t *testing.T) {
	w, peers, _ := newFakePeers(t, 3)
	w.open(0)
	work := w.workOf(choice{plan.Broadcast, "flat", 1, 1}, vector(0, 10))
	op, err := w.comms[0].start(work)
	if err != nil {
		t.Fatal(err)
	}
	l := w.links[0][1]
	w.engines[0].PeerChanged(PeerChange{Peer: l.Peer, Link: l, Err: errGone})
	call := op.call.Call
	peers[1].credit(wire.Collectives, 40)
	peers[1].link.SendStep(wire.Step{Call: call, Length: 40}, vector(1, 10))
	if err := op.Wait(t.Context()); err != nil {
		t.Errorf("the payload has arrived: %v", err)
	}
}

// TestFirstFailureIsNamed: a rank ends because of its error after the failure of another one, while a collective that needs it goes on. The
// collective ends with the first failure.
func TestFirstFailureIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, overSim(sim.Config{}), Config{})
		op, err := w.comms[0].start(w.work(0, choice{plan.Broadcast, "flat", 1, 2}, vector(0, 10)))
		if err != nil {
			t.Fatal(err)
		}
		w.linkLost(0, 1)
		time.Sleep(drainMax / 2)
		w.linkLost(0, 2)
		if err := op.Wait(t.Context()); !names(err, 1) {
			t.Errorf("got error %v, want the failure of rank 1", err)
		}
		if !names(w.comms[0].Err(), 1) {
			t.Errorf("the communicator has the error %v, want the failure of rank 1", w.comms[0].Err())
		}
	})
}

// TestDrainPassesRefusalOn: not all ranks are linked. A rank that begins no collective any more tells its neighbors, and these tell theirs:
// a collective of any of them may wait for it.
func TestDrainPassesRefusalOn(t *testing.T) {
	w, peers, _ := newFakePeers(t, 4)
	self, dead := w.engines[0], w.links[0][1]
	t.Cleanup(dead.Abort)
	w.links[0][1] = link.NewCommon(self, link.Config{}, nil).NewPending(1)
	w.open(0)
	op, err := w.comms[0].start(w.workOf(choice{plan.Broadcast, "flat", 1, 3}, vector(0, 10)))
	if err != nil {
		t.Fatal(err)
	}
	w.linkLost(0, 1)
	refusal := wire.Revoke{Comm: commID, Cause: wire.CauseFailed, Rank: 2, Peer: 1}
	peers[2].link.Revoke(refusal, "gone")
	if got := peers[3].expect("revoke").revoke; got.Cause != refusal.Cause || got.Rank != refusal.Rank || got.Peer != refusal.Peer {
		t.Errorf("rank 3 is told %+v, want %+v", got, refusal)
	}
	if err := op.Wait(t.Context()); !names(err, 1) {
		t.Errorf("got error %v, want the failure of rank 1", err)
	}
}

// TestLostNodeWithoutRank: the failure of a node that has no rank here ends the communicator on this rank, and the others are not told
// that any rank has failed.
func TestLostNodeWithoutRank(t *testing.T) {
	w := newWorld(t, 3, overSim(sim.Config{}), Config{})
	c := w.comms[0]
	stranger := link.NewCommon(w.engines[0], link.Config{}, nil).NewPending(99)
	t.Cleanup(stranger.Abort)
	for what, member := range map[string]p2p.Member{"a rank": c.member(1), "none": p2p.NewMember(stranger, 0)} {
		c.mu.Lock()
		c.err, c.refused = &PeerError{Rank: member, Err: errors.New("gone")}, false
		fx, err := c.refuseLocked()
		c.mu.Unlock()
		told := fx != nil && fx.revoke != nil && fx.revoke.Peer == 1
		if told != (what == "a rank") || !told && fx != nil || !errors.Is(err, c.err) {
			t.Errorf("a node with %s: the others are told %+v, error %v", what, fx, err)
		}
	}
}

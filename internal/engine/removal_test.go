package engine

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// revoked returns the revocations that a peer has received on a link.
func (p *fakePeer) revoked(l *link.Link) (list []wire.Revoke) {
	<-l.ConfirmedPing()
	for {
		select {
		case h := <-p.in:
			if h.kind == "revoke" {
				list = append(list, h.revoke)
			}
		default:
			return list
		}
	}
}

// TestRemoved: a peer says that this rank is removed. A failure before may be the cause of the removal, and collectives still go on.
// The calls end with the removal, and the other ranks are not told, although they are not linked to all: they go on.
func TestRemoved(t *testing.T) {
	for name, lost := range map[string]bool{"without a failure": false, "after a failure": true} {
		t.Run(name, func(t *testing.T) {
			w, peers, _ := newFakePeers(t, 4)
			self, dead := w.engines[0], w.links[0][1]
			t.Cleanup(dead.Abort)
			w.links[0][1] = link.NewCommon(self, link.Config{}, nil).NewPending(1)
			w.open(0)
			c := w.comms[0]
			op, err := c.start(w.workOf(choice{plan.Broadcast, "flat", 1, 3}, vector(0, 10)))
			if err != nil {
				t.Fatal(err)
			}
			if lost {
				w.linkLost(0, 1)
			}
			peers[2].link.Revoke(wire.Revoke{Comm: commID, Cause: wire.CauseExcluded, Rank: 2, Peer: 0}, "")
			if err := op.Wait(t.Context()); !IsRemoval(err) {
				t.Errorf("got error %v, want a removal", err)
			}
			if r, ok := errors.AsType[*RevokedError](c.Err()); !ok || r.Cause != wire.CauseExcluded || !isRank(r.Rank, 2) {
				t.Errorf("the communicator has the error %v, want the exclusion by rank 2", c.Err())
			}
			c.Close()
			if got := peers[3].revoked(w.links[0][3]); len(got) > 0 {
				t.Errorf("rank 3 is told %+v, want nothing", got)
			}
		})
	}
}

// TestRemove: the removed rank alone is told, for each communicator with it, and the communicators go on.
func TestRemove(t *testing.T) {
	w, peers, _ := newFakePeers(t, 4)
	e := w.engines[0]
	c, d := e.NewComm(7, 0, w.links[0]), e.NewComm(8, 0, w.links[0][:2])
	e.Remove(w.links[0][2], wire.CauseRemoved)
	for rank, want := range map[int][]wire.Revoke{1: nil, 2: {{Comm: 7, Cause: wire.CauseRemoved, Peer: 2}}, 3: nil} {
		if got := peers[rank].revoked(w.links[0][rank]); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("rank %d is told %+v, want %+v", rank, got, want)
		}
	}
	for _, comm := range []*Comm{c, d} {
		if comm.Err() != nil {
			t.Errorf("a communicator of %d ranks has ended: %v", comm.Size(), comm.Err())
		}
		comm.Close()
	}
}

// TestRemoveSelf: the seed has removed this rank. Its calls end with the removal, also if it has learned before that another rank was
// removed. The other ranks that are linked are told that this one has failed.
func TestRemoveSelf(t *testing.T) {
	for name, other := range map[string]bool{"alone": false, "after another rank": true} {
		t.Run(name, func(t *testing.T) {
			w, peers, _ := newFakePeers(t, 4)
			w.open(0)
			c := w.comms[0]
			if other {
				peers[2].link.Revoke(wire.Revoke{Comm: commID, Cause: wire.CauseFailed, Rank: 2, Peer: 2}, "removed")
				<-peers[2].link.ConfirmedPing()
			}
			w.engines[0].RemoveSelf(true, "excluded", "it is excluded")
			_, err := c.start(w.workOf(choice{plan.Broadcast, "flat", 1, 3}, vector(0, 10)))
			if ended, ok := errors.AsType[*EndedError](err); !ok || !IsRemoval(ended.Err) || !IsRemoval(c.Err()) {
				t.Errorf("got errors %v and %v, want the removal", err, c.Err())
			}
			got := peers[3].revoked(w.links[0][3])
			if !other && (len(got) != 1 || got[0].Comm != commID || got[0].Cause != wire.CauseFailed || got[0].Rank != 0 || got[0].Peer != 0) {
				t.Errorf("rank 3 is told %+v, want the failure of rank 0", got)
			}
			c.Close()
		})
	}
}

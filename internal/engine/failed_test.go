package engine

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

var errGone = errors.New("gone")

// TestCancelByAFailure: a call that is cancelled because a rank has failed ends the communicator on
// this rank with that failure. The other ranks, which detect the failure themselves, are not
// told of a cancelled call.
func TestCancelByAFailure(t *testing.T) {
	w, peers, _ := newFakePeers(t, 3)
	e := w.engines[0]
	c, other := e.NewComm(1, 0, w.links[0]), e.NewComm(2, 0, w.links[0])
	c.Cancel(&PeerError{Rank: c.member(1), Err: errGone})
	other.Cancel(errors.New("x"))
	if p, ok := errors.AsType[*PeerError](c.Err()); !ok || !isRank(p.Rank, 1) || p.Left {
		t.Errorf("got error %v, want the failure of rank 1", c.Err())
	}
	if r := peers[2].expect("revoke").revoke; r.Comm != 2 || r.Cause != wire.CauseCancelled {
		t.Errorf("rank 2 is told that communicator %d is revoked, cause %v, want communicator 2 alone", r.Comm, r.Cause)
	}
	c.Close()
	other.Close()
}

// TestDoubtOutlivesGoodbye: a peer that another node has lost says goodbye. A
// communicator that is made later ends with the failure, as it does on that node.
func TestDoubtOutlivesGoodbye(t *testing.T) {
	w, peers, _ := newFakePeers(t, 2)
	e, l := w.engines[0], w.links[0][1]
	e.PeerChanged(PeerChange{Peer: l.Peer, Link: l, Err: errGone})
	peers[1].link.Close(t.Context())
	until(t, "the goodbye", func() bool {
		e.mu.RLock()
		defer e.mu.RUnlock()
		_, ended := e.ended[l]
		return ended
	})
	c := e.NewComm(1, 0, w.links[0])
	if p, ok := errors.AsType[*PeerError](c.Err()); !ok || !isRank(p.Rank, 1) || p.Left || !errors.Is(p, errGone) {
		t.Errorf("got error %v, want the failure of rank 1", c.Err())
	}
	c.Close()
}

type blames int

func (b blames) Error() string { return "the peer doubts this node" }
func (b blames) Blames() int   { return int(b) }

// TestDoubtNamesTheCause: a peer ends its communicators with this node because another peer
// has lost it. The error names the other peer, unless the communicator does not contain it.
func TestDoubtNamesTheCause(t *testing.T) {
	w, _, _ := newFakePeers(t, 3)
	e := w.engines[0]
	c, d := e.NewComm(1, 0, w.links[0]), e.NewComm(2, 0, w.links[0][:2])
	e.PeerChanged(PeerChange{Peer: 1, Link: w.links[0][1], Err: blames(w.links[0][2].Peer)})
	for want, comm := range map[int]*Comm{2: c, 1: d} {
		if p, ok := errors.AsType[*PeerError](comm.Err()); !ok || !isRank(p.Rank, want) {
			t.Errorf("communicator of %d ranks: got error %v, want one that names rank %d", comm.Size(), comm.Err(), want)
		}
		comm.Close()
	}
}

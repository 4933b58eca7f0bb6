package server

import (
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

// The loop applies the changes that a seed without a replica proposes in their order, after
// the function that proposes them, including those that are proposed while it applies one.
func TestQueuedChanges(t *testing.T) {
	s := newSeed(t, 1, nil)
	node := membership.Node{ID: membership.NodeID{1}, Addrs: []string{"127.0.0.1:1"}}
	s.call(func() {
		s.propose(change{Kind: changeView, Entries: []membership.Entry{{Kind: membership.Form, Nodes: []membership.Node{node}}}})
		s.propose(change{Kind: changeFormed})
		s.propose(change{Kind: changeAnew}) // Its leader state proposes changes.
		if c := &s.state.cluster; c.Begun || s.state.inFlight != 3 || len(s.state.queue) != 3 {
			t.Errorf("begun %v with %d changes in flight, want none applied and 3 in flight", c.Begun, s.state.inFlight)
		}
	})
	s.read(func() {
		if c := &s.state.cluster; c.Begun || c.Formed || c.view.Epoch != 0 || c.state.View().Epoch == 0 || s.state.inFlight != 0 {
			t.Errorf("begun %v, formed %v, view %v after %d epochs, %d changes in flight, want a new world", c.Begun, c.Formed, c.view, c.state.View().Epoch, s.state.inFlight)
		}
	})
}

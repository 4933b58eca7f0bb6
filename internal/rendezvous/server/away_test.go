package server

import (
	"errors"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
)

// A node that was removed while it had no connection learns so when it connects again.
func TestRemovedWhileAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3, nil)
	sessions := c.form(3)
	s := c.seeds[0]
	// Its conn ends, and the view may change before it has another one.
	away := sessions[2]
	node := s.conn(away.ID)
	sessions[0].Lost(away.ID, errors.New("silent"))
	sessions[1].Lost(away.ID, errors.New("silent"))
	node.Close()
	for e := uint64(1); ; e++ { // It may have reconnected before the view changed.
		v, err := away.Next(t.Context(), e)
		if _, removed := errors.AsType[*client.RemovedError](err); removed {
			says(t, err, nil, "has lost it: silent")
			return
		}
		if err != nil {
			t.Fatalf("view %v, error %v", v, err)
		}
	}
}

// A node with a lost connection to the seed is in the next view if it reconnects in time.
func TestConnEndsForAMoment(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 4, func(cfg *Config) { cfg.Limits.Away = 2 * patience })
	sessions := c.form(4)
	s := c.seeds[0]
	id := sessions[1].ID
	for i := range 3 {
		node := s.conn(id)
		node.Close()
		if i == 2 {
			kill(sessions[3], sessions[0], sessions[2])
		}
		until(t, "the node is back", func() bool {
			again := s.conn(id)
			return again != nil && again != node
		}, c)
	}
	if v := next(t, sessions[1], 1); v.Size() != 3 {
		t.Errorf("view %v", v)
	}
}

// Each loss of the connection of a node restarts its time to reconnect.
func TestConnEndsAgain(t *testing.T) {
	t.Parallel()
	const away = 600 * time.Millisecond
	c := newCluster(t, 1, 3, func(cfg *Config) { cfg.Limits.Away = away })
	sessions := c.form(3)
	s := c.seeds[0]
	id := sessions[1].ID
	node := s.conn(id)
	again := *node // the same node on another conn
	awaitNode := func() time.Time {
		s.call(func() {
			delete(s.state.leader.nodes, id)
			s.awaitNode(s.state.leader, id, "its conn has ended")
		})
		return time.Now()
	}
	awaitNode()
	time.Sleep(away / 2)
	s.call(func() { s.reconnect(&again, 1) })
	second := awaitNode()
	until(t, "its time is up", func() (up bool) {
		s.call(func() { up = s.state.leader.away[id] == nil })
		return up
	}, c)
	if took := time.Since(second); took < away {
		t.Errorf("its time was up after %v, want %v", took, away)
	}
	sessions[0].Lost(id, errors.New("silent"))
	sessions[2].Lost(id, errors.New("silent"))
	if v := next(t, sessions[0], 1); v.Size() != 2 {
		t.Errorf("view %v, want one without the node", v)
	}
}

// Nodes that do not connect to the leading seed do not delay a view that needs all to quiesce.
func TestAbsentNodeDoesNotQuiesce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3, elastic(3, func(cfg *Config) { cfg.Limits.Away = 3 * time.Second }))
	sessions := c.form(3)
	c.stop(0)
	gone := sessions[2]
	gone.Close()
	c.start(0)
	for _, s := range sessions[:2] {
		s.Quiesced(1, false, 0)
	}
	if v := next(t, sessions[0], 1); v.Size() != 2 {
		t.Errorf("view %v", v)
	}
}

// conn returns the connection of a node, nil if it has none.
func (s *testSeed) conn(id membership.NodeID) (c *nodeConn) {
	s.call(func() { c = s.state.leader.nodes[id] })
	return c
}

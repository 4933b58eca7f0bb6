package server

import (
	"errors"
	"strings"
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

// TestRemovedWithoutReason: a seed without state has removed a node and closed its connection, and the reason was lost: the process of the node
// was stopped meanwhile. The node asks the seed for it. When the seed has ended, another node says that.
func TestRemovedWithoutReason(t *testing.T) {
	t.Parallel()
	s, log := newSeed(t, 3, nil), new(logbook)
	var sessions []*client.Session
	for i := range 3 {
		req := s.request(i)
		req.Log = log.logger()
		session, err := client.Seeds{Addrs: []string{s.addr}, Dial: s.dial}.Join(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		sessions = append(sessions, session)
	}
	s.form(t, sessions...)
	removed := sessions[2]
	node := s.conn(removed.ID)
	s.call(func() { delete(s.state.leader.nodes, removed.ID) }) // No message reaches it.
	sessions[0].Lost(removed.ID, errors.New("silent"))
	sessions[1].Lost(removed.ID, errors.New("silent"))
	next(t, sessions[0], 1)
	node.Close()
	_, err := removed.Next(t.Context(), 1)
	if _, told := errors.AsType[*client.RemovedError](err); !told {
		t.Errorf("error %v, want the removal", err)
	}
	const gone = "seed is gone; the world continues without it"
	if strings.Contains(log.String(), gone) {
		t.Errorf("a node says that the seed is gone:\n%v", log)
	}
	s.Close()
	_, err = sessions[0].Next(t.Context(), 2)
	says(t, err, client.ErrSeedGone, "and there is no other")
	log.wait(t, gone)
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

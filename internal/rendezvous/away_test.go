package rendezvous

import (
	"errors"
	"testing"
	"time"
)

// A node that was removed while it had no seed hears of it when it has one.
func TestRemovedWhileAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3, nil)
	sessions := c.form(3)
	s := c.seeds[0]
	// Its conn ends, and it may not come back before the others have had their way.
	away := sessions[2]
	s.mu.Lock()
	g := s.guests[away.ID]
	s.mu.Unlock()
	sessions[0].Lost(away.ID, errors.New("silent"))
	sessions[1].Lost(away.ID, errors.New("silent"))
	g.conn.Close()
	for e := uint64(1); ; e++ { // It may have been back in time to be heard.
		v, err := away.Next(t.Context(), e)
		if _, removed := errors.AsType[*RemovedError](err); removed {
			says(t, err, nil, "has lost it: silent")
			return
		}
		if err != nil {
			t.Fatalf("view %v, error %v", v, err)
		}
	}
}

// A node whose conn to the seed has ended is in the next view, if it has another one
// soon.
func TestConnEndsForAMoment(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 4, nil)
	sessions := c.form(4)
	s := c.seeds[0]
	for i := range 3 {
		s.mu.Lock()
		g := s.guests[sessions[1].ID]
		s.mu.Unlock()
		if g == nil {
			t.Fatal("the node is not back")
		}
		g.conn.Close()
		if i == 2 {
			kill(sessions[3], sessions[0], sessions[2])
		}
		time.Sleep(300 * time.Millisecond)
	}
	if v := next(t, sessions[1], 1); v.Size() != 3 {
		t.Errorf("view %v", v)
	}
}

// The time in which a node has to be back begins anew each time that its conn ends.
func TestConnEndsAgain(t *testing.T) {
	t.Parallel()
	const away = 600 * time.Millisecond
	c := newCluster(t, 1, 3, func(cfg *Config) { cfg.limits.away = away })
	sessions := c.form(3)
	s := c.seeds[0]
	s.mu.Lock()
	id := sessions[1].ID
	g := s.guests[id]
	again := *g // the same node on another conn
	s.mu.Unlock()
	depart := func(g *guest) time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.guests, id)
		s.forgetLater(g, "its conn has ended")
		return time.Now()
	}
	depart(g)
	time.Sleep(away / 2)
	s.mu.Lock()
	s.takeBack(&again, 1)
	s.mu.Unlock()
	second := depart(&again)
	until(t, "its time is up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.office.departed[id] == nil
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

// Nodes that do not turn to the seed that leads do not keep others from what all have
// to be at rest for.
func TestAbsentAtRest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3, elastic(3, func(cfg *Config) { cfg.limits.away = 3 * time.Second }))
	sessions := c.form(3)
	c.stop(0)
	gone := sessions[2]
	gone.once.Do(func() { close(gone.closing) })
	gone.Close()
	c.start(0)
	for _, s := range sessions[:2] {
		s.Rest(1, false, 0)
	}
	if v := next(t, sessions[0], 1); v.Size() != 2 {
		t.Errorf("view %v", v)
	}
}

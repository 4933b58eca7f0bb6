package seed

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A gate bounds how many conns there are whose peer has not proved the token.
// Who proves it does so within milliseconds, so when all places are taken it
// is the longest silent that has to go, but not before it has had its grace:
// neither a crowd of honest nodes nor one of silent strangers shuts the gate.
type gate struct {
	max   int
	grace time.Duration
	freed chan struct{} // one token: somebody has left

	mu     sync.Mutex
	inside []*stranger // in order of arrival
}

// A stranger is a conn whose peer has not proved the token.
type stranger struct {
	conn  transport.Conn
	since time.Time
}

func newGate(max int, grace time.Duration) *gate {
	return &gate{max: max, grace: grace, freed: make(chan struct{}, 1)}
}

// enter takes a place for conn, and waits for one at most as long as the
// grace. It closes the conn that it pushes out, and returns it.
func (g *gate) enter(ctx context.Context, conn transport.Conn) (s, pushed *stranger, err error) {
	s = &stranger{conn, time.Now()}
	for {
		pushed, wait := g.try(s)
		if wait <= 0 {
			if pushed != nil {
				pushed.conn.Close()
			}
			return s, pushed, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-g.freed:
		case <-t.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
		t.Stop()
		if err != nil {
			return nil, nil, err
		}
	}
}

// try takes a place, or says how long it takes until one can be taken.
func (g *gate) try(s *stranger) (pushed *stranger, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.inside) >= g.max {
		if wait := g.grace - time.Since(g.inside[0].since); wait > 0 {
			return nil, wait
		}
		pushed = g.inside[0]
		g.inside = slices.Delete(g.inside, 0, 1)
	}
	g.inside = append(g.inside, s)
	return pushed, 0
}

// leave gives the place of s free. Only the first call counts.
func (g *gate) leave(s *stranger) {
	g.mu.Lock()
	if i := slices.Index(g.inside, s); i >= 0 {
		g.inside = slices.Delete(g.inside, i, i+1)
	}
	g.mu.Unlock()
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

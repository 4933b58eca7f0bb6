package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

// A seed that starts without its state, and learns of a world only when that is over, ends
// with the others, which wait for it.
func TestSeedLearnsOfWorldThatIsOver(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 3 * handshake.Tick / 2} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			c := newCluster(t, 3, 2, func(cfg *Config) { cfg.Limits.End = patience })
			sessions := c.formOnTwo()
			late := c.startMute(2)
			for _, s := range sessions {
				s.Close()
			}
			until(t, "the world is over", func() bool {
				s := c.seeds[c.leader()]
				over := false
				s.call(func() { over = s.state.cluster.Over })
				return over
			}, c)
			time.Sleep(after)
			close(late)
			c.allEnd()
		})
	}
}

// formOnTwo has a world of two nodes form on the first two of three seeds. The third is
// down, and has lost its state.
func (c *testCluster) formOnTwo() (sessions []*client.Session) {
	c.t.Helper()
	c.stop(2)
	if err := os.RemoveAll(filepath.Join(c.dir, "2")); err != nil {
		c.t.Fatal(err)
	}
	for i := range 2 {
		s, err := c.join(i, i, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	c.sessionsReady(sessions)
	return sessions
}

// startMute starts a seed that has lost its state. The others reach it, but it reaches no other
// until the channel is closed.
func (c *testCluster) startMute(i int) (reach chan struct{}) {
	c.t.Helper()
	reach = make(chan struct{})
	c.forget = true
	change := c.change
	c.change = func(cfg *Config) {
		change(cfg)
		cfg.Replication.Dial = func(ctx context.Context, addr string) (transport.Conn, error) {
			select {
			case <-reach:
				return dialTLS(ctx, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	c.start(i)
	c.forget, c.change = false, change
	until(c.t, "the seed is reached", func() bool {
		p := c.seeds[i].peers
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.in) == 2
	}, c)
	return reach
}

// allEnd waits until the world is over for all seeds.
func (c *testCluster) allEnd() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for i, s := range c.seeds {
		wg.Go(func() {
			s.Follow(ctx, nil)
			if ctx.Err() != nil {
				c.t.Errorf("seed %d continues", i)
			} else if err := s.Wait(ctx); err != nil {
				c.t.Errorf("seed %d: %v", i, err)
			}
			c.stop(i)
		})
	}
	wg.Wait()
	if c.t.Failed() {
		c.t.Log(c)
	}
}

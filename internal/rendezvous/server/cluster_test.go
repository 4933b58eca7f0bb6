package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/raftlog"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/transport"
)

// A testCluster is several seeds.
type testCluster struct {
	t      testing.TB
	token  pki.Token
	addrs  []string
	dir    string
	change func(*Config)
	seeds  []*testSeed // nil: it is not running
	forget bool        // seeds start with ForgetState
	trs    []*tlsTransport

	mu    sync.Mutex
	kills map[*client.Session]func() // end the process of a node
}

// newCluster starts seeds for a world.
func newCluster(t testing.TB, seeds, world int, change func(*Config)) *testCluster {
	t.Helper()
	c := &testCluster{t: t, token: pki.NewToken(), dir: t.TempDir(), seeds: make([]*testSeed, seeds), kills: make(map[*client.Session]func()), trs: make([]*tlsTransport, seeds)}
	c.change = func(cfg *Config) {
		cfg.World, cfg.Limits.Return = world, 2*time.Second
		if change != nil {
			change(cfg)
		}
	}
	for i := range seeds {
		c.trs[i] = c.listen(testhost.FreePort(t))
		c.addrs = append(c.addrs, c.trs[i].Addr())
	}
	for i := range seeds {
		c.serve(i)
	}
	t.Cleanup(c.stopAll)
	return c
}

func openLog(cfg consensus.Config) (consensus.Log, error) { return raftlog.Open(cfg) }

func (c *testCluster) listen(addr string) *tlsTransport {
	c.t.Helper()
	joining, err := newAuthority(c.t).Joining()
	if err != nil {
		c.t.Fatal(err)
	}
	return listenTLS(c.t, addr, joining)
}

func (c *testCluster) serve(i int) {
	c.t.Helper()
	s := &testSeed{addr: c.addrs[i], token: c.token, log: &logbook{}, dial: dialTLS}
	cfg := Config{
		Transport: c.trs[i], Authority: newAuthority(c.t), Adopt: c.trs[i].creds.Use, Token: c.token, Log: s.log.logger(), Limits: quick,
		Replication: &Replication{Self: c.addrs[i], Seeds: c.addrs, Dir: filepath.Join(c.dir, fmt.Sprint(i)), ForgetState: c.forget, Dial: dialTLS, Open: openLog},
	}
	c.change(&cfg)
	var err error
	if s.Server, err = Serve(cfg); err != nil {
		c.t.Fatal(err)
	}
	c.seeds[i] = s
}

// stop ends a seed.
func (c *testCluster) stop(i int) {
	if s := c.seeds[i]; s != nil {
		s.Close()
		c.trs[i].Close()
		c.seeds[i] = nil
	}
}

func (c *testCluster) stopAll() {
	for i := range c.seeds {
		c.stop(i)
	}
}

// restart ends all seeds, and starts them again after a moment.
func (c *testCluster) restart() {
	c.t.Helper()
	c.stopAll()
	time.Sleep(50 * time.Millisecond)
	for i := range c.seeds {
		c.start(i)
	}
}

// start starts a seed again.
func (c *testCluster) start(i int) {
	c.t.Helper()
	c.trs[i] = c.listen(c.addrs[i])
	c.serve(i)
}

// leader waits for a seed that leads.
func (c *testCluster) leader() (leader int) {
	c.t.Helper()
	until(c.t, "a seed leads", func() bool {
		leader = slices.IndexFunc(c.seeds, func(s *testSeed) bool {
			if s == nil {
				return false
			}
			_, here := s.findLeader()
			return here
		})
		return leader >= 0
	}, c)
	return leader
}

func (c *testCluster) String() string {
	var b strings.Builder
	for i, s := range c.seeds {
		if s != nil {
			fmt.Fprintf(&b, "seed %d:\n%v\n", i, s.log)
		}
	}
	return b.String()
}

// join has the i-th node join at one of the seeds.
func (c *testCluster) join(i, seed int, change func(*client.Request)) (*client.Session, error) {
	c.t.Helper()
	req := (&testSeed{token: c.token}).request(i)
	req.Log = (&logbook{}).logger()
	if change != nil {
		change(&req)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var dead atomic.Bool
	dial := func(ctx context.Context, addr string) (transport.Conn, error) {
		if dead.Load() {
			return nil, errors.New("the process is dead")
		}
		return dialTLS(ctx, addr)
	}
	s, err := client.Seeds{Addrs: []string{c.addrs[seed]}, Dial: dial}.Join(ctx, req)
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { s.Close() })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kills[s] = func() {
		dead.Store(true)
		s.Break()
		go s.Close() // Cleanup waits for it.
	}
	return s, nil
}

// form has n nodes, the size of the world, join at all seeds in turn and form it.
func (c *testCluster) form(n int) (sessions []*client.Session) {
	c.t.Helper()
	for i := range n {
		s, err := c.join(i, i%len(c.seeds), nil)
		if err != nil {
			c.t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() {
			if err := s.Ready(c.t.Context()); err != nil {
				c.t.Errorf("node %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i, s := range c.seeds {
		if s == nil {
			continue
		}
		if err := s.Wait(c.t.Context()); err != nil {
			c.t.Errorf("seed %d: %v", i, err)
		}
	}
	return sessions
}

// die ends the processes of nodes, without a goodbye.
func (c *testCluster) die(sessions ...*client.Session) {
	for _, s := range sessions {
		c.kills[s]()
	}
}

// kill closes a node, and has all others report that they have lost it.
func kill(victim *client.Session, others ...*client.Session) {
	victim.Close()
	for _, s := range others {
		s.Lost(victim.ID, errors.New("killed"))
	}
}

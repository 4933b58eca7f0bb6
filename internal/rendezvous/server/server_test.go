package server

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

func TestWorldForms(t *testing.T) {
	const world = 4
	s := newSeed(t, world, nil)
	sessions := make([]*client.Session, world)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() { sessions[i] = s.mustJoin(t, i) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	var views []membership.View
	for i, session := range sessions {
		v, err := session.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rank, ok := v.Rank(session.ID)
		if !ok || v.Size() != world || v.Epoch != 1 || session.World != world {
			t.Fatalf("view %v of a world of %d, node in it: %v", v, session.World, ok)
		}
		if got, want := v.Nodes[rank].Name, s.request(i).Name; got != want {
			t.Errorf("name %q, want %q", got, want)
		}
		if session.Identity.ID() != session.ID || session.Identity.Cluster() != s.cfg.Authority.Cluster() {
			t.Errorf("identity of node %v in cluster %s", session.Identity.ID(), session.Identity.Cluster())
		}
		if got := v.Nodes[rank].Addrs; got[0] != session.Observed || got[1] != s.request(i).Alternates[0] {
			t.Errorf("addresses %v, want the observed %s, then the alternate", got, session.Observed)
		}
		views = append(views, v)
	}
	for _, v := range views {
		if !reflect.DeepEqual(v, views[0]) {
			t.Errorf("one node has view %v, another %v", v, views[0])
		}
	}
	if st := s.Status(); st.Phase != membership.Connecting || st.Joined != world || !reflect.DeepEqual(st.View, views[0]) || st.Deadline.IsZero() {
		t.Errorf("status %+v", st)
	}
	s.form(t, sessions...)
	if st := s.Status(); st.Phase != membership.Formed || st.Attached != world || !st.Deadline.IsZero() || st.Err != nil {
		t.Errorf("status %+v", st)
	}
	s.log.wait(t, "world has formed", "nodes=4")
}

// Many nodes join at once, as a launcher starts them.
func TestLargerWorld(t *testing.T) {
	const world = 64
	s := newSeed(t, world, nil)
	sessions := make([]*client.Session, world)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() {
			d := client.Seeds{Addrs: []string{s.addr}, Dial: s.dial}
			var err error
			if sessions[i], err = d.Join(t.Context(), s.request(i)); err != nil {
				t.Errorf("node %d: %v", i, err)
				return
			}
			t.Cleanup(func() { sessions[i].Close() })
		})
	}
	wg.Wait()
	if !t.Failed() {
		s.form(t, sessions...)
	}
}

// No node learns that the world has formed before all are ready.
func TestReadyWaitsForAll(t *testing.T) {
	s := newSeed(t, 2, nil)
	a, b := s.mustJoin(t, 0), s.mustJoin(t, 1)
	early := make(chan error, 1)
	go func() { early <- a.Ready(t.Context()) }()
	select {
	case err := <-early:
		t.Fatalf("ready alone: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-early; err != nil {
		t.Error(err)
	}
}

func TestRanks(t *testing.T) {
	s := newSeed(t, 3, nil)
	joinAs := func(i int, rank int) (*client.Session, error) {
		req := s.request(i)
		req.Rank = &rank
		return s.join(t, req)
	}
	two, err := joinAs(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = joinAs(1, 2)
	says(t, err, membership.ErrRank, "2 is already taken", "host0:1000")
	_, err = joinAs(1, 3)
	says(t, err, membership.ErrRank, "3 is not below", "size of 3")
	any1 := s.mustJoin(t, 1)
	zero, err := joinAs(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := two.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for want, session := range []*client.Session{zero, any1, two} {
		if got, _ := v.Rank(session.ID); got != want {
			t.Errorf("rank %d, want %d", got, want)
		}
	}
	_, err = s.join(t, s.request(3))
	says(t, err, membership.ErrFull, "all 3 places are taken", "seed "+s.addr+" refused this node")
	if r, ok := errors.AsType[*handshake.RefusedError](err); !ok || r.Unproved {
		t.Errorf("error %#v, want a refusal of a seed that has proved the token", err)
	}
	s.form(t, zero, any1, two)
	_, err = s.join(t, s.request(4))
	says(t, err, membership.ErrOver, "world of 3 has formed")
	s.log.wait(t, "node refused", "reason=", "addr=127.0.0.1:", "2 is already taken")
}

// A pod that Kubernetes has started again on another host gets its rank, and the pod before, which still lives, an error that names it.
func TestRankOfAPodThatMoves(t *testing.T) {
	s := newSeed(t, 2, nil)
	rank := 1
	joinAs := func(i int, name, host string) (*client.Session, error) {
		req := s.request(i)
		req.Rank, req.Name, req.Host, req.Place = &rank, name, host, "1/train-1"
		return s.join(t, req)
	}
	old, err := joinAs(0, "train-1:1", "a")
	if err != nil {
		t.Fatal(err)
	}
	moved, err := joinAs(1, "train-1:1", "b")
	if err != nil {
		t.Fatal(err)
	}
	_, err = old.View(t.Context())
	says(t, err, membership.ErrRank, "1 was taken over by "+moved.Observed+" (train-1:1): the launcher has started 1/train-1 on another host")
	s.log.wait(t, "node has lost its rank", "addr="+old.Observed, moved.Observed)
	_, err = joinAs(2, "train-1:2", "b")
	says(t, err, membership.ErrRank, "1 is already taken", "train-1:1")
	s.form(t, s.mustJoin(t, 3), moved)
}

// The addresses of a node in a view are never empty, and for nodes of other hosts never only
// loopback.
func TestObservedAddressOfAnotherHost(t *testing.T) {
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	tr := newTLSTransport(t, joining)
	tr.remote = func(addr string) string { return strings.Replace(addr, "127.0.0.1", "192.0.2.7", 1) }
	s := serveOver(t, tr, ca, dialTLS, 1, nil)
	req := s.request(0)
	req.Alternates = []string{"127.0.0.1:7000", "0.0.0.0:7000", ":7000"}
	session, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	v, err := session.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := v.Nodes[0].AddrsFrom("another host")
	if len(got) != 1 || !strings.HasPrefix(got[0], "192.0.2.7:") || got[0] != session.Observed {
		t.Errorf("from another host the node is at %v, want where the seed sees it, %s", got, session.Observed)
	}
}

func TestLoopbackOnlyOnTwoHosts(t *testing.T) {
	s := newSeed(t, 2, nil)
	first, err := s.join(t, client.Request{Token: s.token, Host: "a", Name: "a:1", Limits: quick})
	if err != nil {
		t.Fatal(err)
	}
	second := s.mustJoin(t, 1)
	for _, session := range []*client.Session{first, second} {
		_, err := session.View(t.Context())
		says(t, err, nil, "rank 0", "(a:1) has only loopback addresses", "rank 1", "on another host")
		if _, ok := errors.AsType[*client.FailedError](err); !ok {
			t.Errorf("error %v, want a *FailedError", err)
		}
	}
	says(t, s.Wait(t.Context()), membership.ErrAddress, "has only loopback addresses")
}

// Nodes of one host need only loopback.
func TestLoopbackOnlyOnOneHost(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Token = pki.Token{} })
	req := client.Request{Limits: quick}
	a, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	s.form(t, a, b)
}

func TestAdvertisedAddressThatLeadsNowhere(t *testing.T) {
	s := newSeed(t, 1, nil)
	req := s.request(0)
	req.Advertise = []string{"0.0.0.0:7000"}
	_, err := s.join(t, req)
	says(t, err, membership.ErrAddress, `advertised address "0.0.0.0:7000"`, "names no host")
}

func TestServeRefuses(t *testing.T) {
	ca := newAuthority(t)
	near, far := fakeListener("127.0.0.1:7946"), fakeListener("0.0.0.0:7946")
	for name, cfg := range map[string]Config{
		"no transport":     {Authority: ca, World: 1, Token: pki.NewToken()},
		"no authority":     {Transport: near, World: 1, Token: pki.NewToken()},
		"no world":         {Transport: near, Authority: ca, Token: pki.NewToken()},
		"no token, far":    {Transport: far, Authority: ca, World: 1},
		"world of minus 1": {Transport: near, Authority: ca, World: -1, Token: pki.NewToken()},
	} {
		s, err := Serve(cfg)
		if err == nil {
			t.Errorf("%s: accepted", name)
			s.Close()
		}
		if strings.Contains(name, "token") && !errors.Is(err, handshake.ErrToken) {
			t.Errorf("%s: error %v, want %v", name, err, handshake.ErrToken)
		}
	}
	s, err := Serve(Config{Transport: near, Authority: ca, World: 1})
	if err != nil {
		t.Fatalf("no token on loopback: %v", err)
	}
	s.Close()
}

// fakeListener is a transport without peers.
type fakeListener string

func (f fakeListener) Name() string { return "fake" }
func (f fakeListener) Addr() string { return string(f) }
func (f fakeListener) Close() error { return nil }
func (f fakeListener) Dial(context.Context, string, string) (transport.Conn, error) {
	return nil, transport.ErrPeerGone
}
func (f fakeListener) Accept(ctx context.Context) (transport.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestListenerBreaks(t *testing.T) {
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	tr := newTLSTransport(t, joining)
	s := serveOver(t, tr, ca, dialTLS, 2, nil)
	a := s.mustJoin(t, 0)
	tr.Close()
	says(t, s.Wait(t.Context()), transport.ErrClosed, "can no longer be reached")
	_, err = a.View(t.Context())
	says(t, err, nil, "the seed can no longer be reached")
}

func TestCloseFailsFormation(t *testing.T) {
	s := newSeed(t, 2, nil)
	a := s.mustJoin(t, 0)
	s.Close()
	_, err := a.View(t.Context())
	if _, ok := errors.AsType[*client.FailedError](err); !ok {
		t.Errorf("error %v, want a *FailedError", err)
	}
	says(t, err, nil, "the seed was closed; 1 of 2 nodes had joined")
	says(t, s.Wait(t.Context()), handshake.ErrClosed)
	s.Close()
}

// Close leaves no timer running, although connections of nodes end meanwhile: a durable seed
// would wait for these nodes to reconnect.
func TestCloseStopsTimers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3, nil)
	c.form(3)
	s := c.seeds[0]
	s.call(func() {
		if n := len(s.timers); n == 0 {
			t.Error("no timer runs before Close")
		}
	})
	s.Close()
	s.read(func() {
		if n := len(s.state.leader.nodes); n > 0 {
			t.Errorf("%d nodes are still connected", n)
		}
		if n := len(s.timers); n > 0 {
			t.Errorf("%d timers still run", n)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s := newSeed(t, 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

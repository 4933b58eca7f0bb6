package rendezvous

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// A world that has formed does not need its seed.
func TestSeedDiesAfterFormation(t *testing.T) {
	s := newSeed(t, 2, nil)
	log := &logbook{}
	req := s.request(0)
	req.Log = log.logger()
	a, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	b := s.mustJoin(t, 1)
	s.form(t, a, b)
	s.Close()
	log.wait(t, "seed is gone; the world goes on without it")
	if err := a.Ready(t.Context()); err != nil {
		t.Errorf("ready again: %v", err)
	}
	if _, err := a.View(t.Context()); err != nil {
		t.Errorf("view again: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestSeedDiesBeforeFormation(t *testing.T) {
	s := newSeed(t, 2, nil)
	a := s.mustJoin(t, 0)
	s.mu.Lock()
	for _, g := range s.guests {
		go g.conn.Close() // as a kill would, without a word
	}
	s.mu.Unlock()
	_, err := a.View(t.Context())
	says(t, err, ErrSeedGone, "seed "+s.addr+" went away before the world had formed")
}

// A node that leaves after the world has formed is noticed by the seed.
func TestSeedNoticesWhoLeaves(t *testing.T) {
	s := newSeed(t, 2, nil)
	a, b := s.mustJoin(t, 0), s.mustJoin(t, 1)
	s.form(t, a, b)
	a.Close()
	s.log.wait(t, "node left", "host0:1000", "rank=0", "phase=formed")
	b.line.conn.Close()
	s.log.wait(t, "node is gone", "host1:1001", "rank=1")
	if err := s.Wait(t.Context()); err != nil {
		t.Errorf("the world had formed: %v", err)
	}
	until(t, "nobody is attached", func() bool { return s.Status().Attached == 0 }, s.log)
	_, err := s.join(t, s.request(2))
	says(t, err, membership.ErrOver, "the world is over")
}

func TestSessionRenewsItsCertificate(t *testing.T) {
	t.Parallel()
	s := newSeed(t, 1, func(c *Config) { c.CertificateLife = 3 * time.Second })
	a := s.mustJoin(t, 0)
	first := a.Identity.NotAfter()
	until(t, "the certificate is renewed", func() bool { return a.Identity.NotAfter().After(first) }, s.log)
	s.log.wait(t, "certificate renewed", a.ID.String())
	s.form(t, a)
}

func TestSessionCloseWhileWaiting(t *testing.T) {
	s := newSeed(t, 2, nil)
	a := s.mustJoin(t, 0)
	waiting := make(chan error, 1)
	go func() {
		_, err := a.View(t.Context())
		waiting <- err
	}()
	a.Close()
	if err := <-waiting; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrSeedGone) {
		t.Errorf("error %v, want %v", err, ErrClosed)
	}
	a.Close()
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	s := newSeed(t, 2, nil)
	a := s.mustJoin(t, 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := a.View(ctx); !errors.Is(err, why) || !strings.Contains(err.Error(), "of 2 nodes") {
		t.Errorf("view: error %v, want %v and how many nodes have come", err, why)
	}
	if err := a.Ready(ctx); !errors.Is(err, why) {
		t.Errorf("ready: error %v, want %v", err, why)
	}
	// The session is as good as before.
	b := s.mustJoin(t, 1)
	s.form(t, a, b)
}

// What a seed that has proved the token, but is broken, must not do.
func TestSessionChecksTheSeed(t *testing.T) {
	node := func(b byte) wire.JoinNode { return wire.JoinNode{ID: [16]byte{b}, Addrs: []string{"10.0.0.1:1"}} }
	self := node(1)
	view := wire.JoinView{Epoch: 1, Nodes: []wire.JoinNode{self, node(2)}}
	for name, messages := range map[string][]wire.JoinMessage{
		"a view without this node": {wire.JoinView{Epoch: 1, Nodes: []wire.JoinNode{node(2), node(3)}}},
		"a node twice":             {wire.JoinView{Epoch: 1, Nodes: []wire.JoinNode{self, self}}},
		"no address":               {wire.JoinView{Epoch: 1, Nodes: []wire.JoinNode{self, {ID: [16]byte{2}}}}},
		"too small a world":        {wire.JoinView{Epoch: 1, Nodes: []wire.JoinNode{self}}},
		"epoch zero":               {wire.JoinView{Nodes: view.Nodes}},
		"two views":                {view, view},
		"formed without a view":    {wire.JoinFormed{Epoch: 1}},
		"another view has formed":  {view, wire.JoinFormed{Epoch: 2}},
		"formed twice":             {view, wire.JoinFormed{Epoch: 1}, wire.JoinFormed{Epoch: 1}},
		"a message of nodes":       {wire.JoinReady{}},
	} {
		s := newSession(&tlsConn{remote: "10.0.0.9:7946"}, Request{})
		s.ID, s.World = membership.NodeID(self.ID), 2
		var err error
		for _, m := range messages {
			if err != nil {
				t.Errorf("%s: too early: %v", name, err)
			}
			err = s.handle(m)
		}
		if err == nil || !strings.Contains(err.Error(), "seed 10.0.0.9:7946") {
			t.Errorf("%s: error %v, want one that names the seed", name, err)
		}
	}
}

// A certificate that is of no use does not replace one that is.
func TestSessionKeepsItsCertificate(t *testing.T) {
	s := newSeed(t, 1, nil)
	a := s.mustJoin(t, 0)
	before := a.Identity.NotAfter()
	if err := a.handle(wire.JoinRenewed{Certificate: []byte("garbage")}); err != nil {
		t.Error(err)
	}
	if got := a.Identity.NotAfter(); got != before {
		t.Errorf("valid until %v, want %v", got, before)
	}
}

package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// A formed world continues without its seed.
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
	log.wait(t, "seed is gone; the world continues without it")
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
	s.call(func() {
		for _, c := range s.state.leader.nodes {
			go c.Close() // like a kill, without a last message
		}
	})
	_, err := a.View(t.Context())
	says(t, err, client.ErrSeedGone, "seed "+s.addr+" went away before the world had formed")
}

// The seed notices a node that leaves after the world has formed.
func TestSeedNoticesNodeThatLeaves(t *testing.T) {
	s := newSeed(t, 2, nil)
	a, b := s.mustJoin(t, 0), s.mustJoin(t, 1)
	s.form(t, a, b)
	a.Close()
	s.log.wait(t, "node left", "host0:1000", "rank=0", "phase=formed")
	b.Break()
	s.log.wait(t, "node is gone", "host1:1001", "rank=1")
	if err := s.Wait(t.Context()); err != nil {
		t.Errorf("the world had formed: %v", err)
	}
	until(t, "no node is attached", func() bool { return s.Status().Attached == 0 }, s.log)
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
	if err := <-waiting; !errors.Is(err, handshake.ErrClosed) && !errors.Is(err, client.ErrSeedGone) {
		t.Errorf("error %v, want %v", err, handshake.ErrClosed)
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
	// The session can still be used.
	b := s.mustJoin(t, 1)
	s.form(t, a, b)
}

// An invalid certificate does not replace a valid one.
func TestSessionKeepsItsCertificate(t *testing.T) {
	s := newSeed(t, 1, nil)
	log := &logbook{}
	req := s.request(0)
	req.Log = log.logger()
	a, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	before := a.Identity.NotAfter()
	s.call(func() { s.send(a.ID, wire.JoinRenewed{Certificate: []byte("garbage")}) })
	log.wait(t, "new certificate cannot be used")
	if got := a.Identity.NotAfter(); got != before {
		t.Errorf("valid until %v, want %v", got, before)
	}
}

package faults

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// A hostileCandidate has the token. It joins at the seed and repeatedly reports that it
// is linked to the world, although it has no link. After its dismissal it joins as
// another node.
type hostileCandidate struct {
	claims  atomic.Int64
	entered atomic.Bool // it has been in a view
	reasons chan string // of its dismissals
}

// runHostileCandidate runs a hostile candidate until the test ends.
func runHostileCandidate(t *testing.T, addr string, token pki.Token) *hostileCandidate {
	t.Helper()
	end, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostileCandidate{reasons: make(chan string, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
		end.Close()
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			h.attempt(ctx, end, addr, token)
		}
	}()
	return h
}

// attempt makes one attempt to enter the world.
func (h *hostileCandidate) attempt(ctx context.Context, end *quic.Endpoint, addr string, token pki.Token) {
	seeds := client.Seeds{Addrs: []string{addr}, Dial: func(ctx context.Context, addr string) (transport.Conn, error) {
		return end.Dial(ctx, addr, pki.Joining{}.Client(""))
	}}
	s, err := seeds.Join(ctx, client.Request{Token: token, Host: "hostile", Name: "hostile:1"})
	if err != nil {
		return
	}
	defer s.Close()
	for number := uint64(0); ctx.Err() == nil; {
		within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		v, i, err := s.Begin(within, number)
		cancel()
		var dismissed *client.DismissedError
		switch {
		case err == nil && v.Epoch > 0:
			h.entered.Store(true)
			return
		case err == nil:
			number = i.Number
		case errors.As(err, &dismissed):
			h.reasons <- dismissed.Text
			return
		case within.Err() == nil:
			return
		}
		if number > 0 {
			s.Linked(number)
			h.claims.Add(1)
		}
	}
}

// TestHostileCandidate: while a candidate claims to be linked to the world and has no
// link, the world works, and an honest candidate enters it. The hostile one does not
// enter; the seed logs the nodes that have not confirmed its links, and holds it off.
func TestHostileCandidate(t *testing.T) {
	token := pki.NewToken()
	log := new(testlog.Buffer)
	w := newElasticWorld(t, nexar.SeedConfig{World: 3, Elastic: true, Token: token.Reveal(), Log: slog.New(slog.NewTextHandler(log, nil))}, nexar.Config{})
	cfg := nexar.Config{Token: token.Reveal()}
	nodes := []*worldNode{w.join(cfg), w.join(cfg), w.join(cfg)}
	w.waitForSizes(3)
	h := runHostileCandidate(t, w.seed.Addr(), token)
	eventually(t, "the hostile candidate claims to be linked", func() bool { return h.claims.Load() > 3 })
	before := w.steps()
	eventually(t, "the world makes 200 steps", func() bool { return w.steps() > before+200 })
	nodes = append(nodes, w.join(cfg))
	w.waitForSizes(3, 4)
	select {
	case why := <-h.reasons:
		for _, want := range []string{"not confirmed within", "no link to it is confirmed by rank 0", "rank 2", "held off"} {
			if !strings.Contains(why, want) {
				t.Errorf("dismissed with %q, want the text %q", why, want)
			}
		}
	case <-time.After(worldtest.Patience):
		t.Errorf("the hostile candidate is not dismissed after %d claims", h.claims.Load())
	}
	if got := log.String(); !strings.Contains(got, "node is not admitted to the world") || !strings.Contains(got, "no link to it is confirmed by rank 0") {
		t.Errorf("the log of the seed does not name the nodes that have not confirmed the links:\n%s", got)
	}
	w.stopAll(nodes...)
	if h.entered.Load() {
		t.Error("the hostile candidate was in a view")
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, event string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(worldtest.Patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen within %v: %s", worldtest.Patience, event)
		}
	}
}

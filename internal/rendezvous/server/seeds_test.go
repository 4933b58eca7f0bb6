package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/transport"
)

func TestSeedsFindsTheOneThatLives(t *testing.T) {
	s := newSeed(t, 1, nil)
	d := client.Seeds{Addrs: []string{testhost.FreePort(t), testhost.FreePort(t), s.addr}, Dial: dialTLS}
	session, err := d.Join(t.Context(), s.request(0))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	s.form(t, session)
}

// Nodes may start before their seed.
func TestSeedsWaitsForTheSeed(t *testing.T) {
	s := newSeed(t, 1, nil)
	dials := 0
	d := client.Seeds{Addrs: []string{s.addr}, MinPause: time.Millisecond, MaxPause: 4 * time.Millisecond,
		Dial: func(ctx context.Context, addr string) (transport.Conn, error) {
			dials++
			if dials < 10 {
				return nil, errors.New("connection refused")
			}
			conn, err := dialTLS(ctx, addr)
			if dials == 10 && err == nil {
				conn.Close() // breaks before the seed has answered
			}
			return conn, err
		}}
	session, err := d.Join(t.Context(), s.request(0))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if dials != 11 {
		t.Errorf("%d attempts, want 11", dials)
	}
}

func TestSeedsNamesAllThatItTried(t *testing.T) {
	a, b := testhost.FreePort(t), testhost.FreePort(t)
	d := client.Seeds{Addrs: []string{a, b}, Dial: dialTLS, Timeout: 300 * time.Millisecond, MinPause: time.Millisecond, MaxPause: time.Millisecond}
	_, err := d.Join(t.Context(), client.Request{})
	says(t, err, context.DeadlineExceeded, "no seed could be reached", a+" (nothing listens there)", b+" (nothing listens there)")
}

// The error for a node without a token names the variable, before the node contacts a seed.
func TestSeedsWithoutToken(t *testing.T) {
	d := client.Seeds{Addrs: []string{"192.0.2.1:7000"}, Dial: func(context.Context, string) (transport.Conn, error) {
		t.Error("it has asked a seed")
		return nil, errors.New("no")
	}}
	_, err := d.Join(t.Context(), client.Request{})
	says(t, err, handshake.ErrToken, "NEXAR_CLUSTER_TOKEN is not set", "192.0.2.1:7000", "nexar token")
}

// The errors for a seed that does not answer say so.
func TestSeedsWithoutAnswer(t *testing.T) {
	d := client.Seeds{Addrs: []string{"127.0.0.1:1"}, Timeout: 50 * time.Millisecond, Dial: func(ctx context.Context, _ string) (transport.Conn, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("dial: %w", ctx.Err())
	}}
	_, err := d.Join(t.Context(), client.Request{})
	says(t, err, context.DeadlineExceeded, "is one running? 127.0.0.1:1 (no answer)")
}

// An address that does not answer does not use up the time of the others.
func TestSeedsLeavesABlackHole(t *testing.T) {
	s := newSeed(t, 1, nil)
	d := client.Seeds{Addrs: []string{"127.0.0.1:1", s.addr}, Attempt: 100 * time.Millisecond,
		Dial: func(ctx context.Context, addr string) (transport.Conn, error) {
			if addr == "127.0.0.1:1" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dialTLS(context.WithoutCancel(ctx), addr)
		}}
	req := s.request(0)
	session, err := d.Join(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	session.Close()
}

func TestSeedsDoesNotAskAgainAfterARefusal(t *testing.T) {
	s := newSeed(t, 1, nil)
	dials := 0
	count := func(ctx context.Context, addr string) (transport.Conn, error) {
		dials++
		return dialTLS(ctx, addr)
	}
	d := client.Seeds{Addrs: []string{s.addr, s.addr}, Dial: count}
	req := s.request(0)
	req.Token = pki.NewToken()
	_, err := d.Join(t.Context(), req)
	says(t, err, handshake.ErrToken, "seed "+s.addr+" refused this node: wrong cluster token")

	req = s.request(0)
	req.Name = "\x1b[2J"
	_, err = d.Join(t.Context(), req)
	says(t, err, handshake.ErrRequest)

	req = s.request(0)
	req.Port = 70000
	_, err = d.Join(t.Context(), req)
	says(t, err, handshake.ErrRequest, "port 70000")

	bad := -7
	req = s.request(0)
	req.Rank = &bad
	_, err = d.Join(t.Context(), req)
	says(t, err, handshake.ErrRequest, "rank -7")
	if dials != 4 {
		t.Errorf("%d conns for 4 requests that are refused", dials)
	}
}

func TestSeedsEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := client.Seeds{Addrs: []string{testhost.FreePort(t)}, Dial: func(context.Context, string) (transport.Conn, error) {
		cancel()
		return nil, errors.New("connection refused")
	}}
	_, err := d.Join(ctx, client.Request{})
	says(t, err, context.Canceled, "connection refused")
}

func TestSeedsWithout(t *testing.T) {
	_, err := client.Seeds{}.Join(t.Context(), client.Request{})
	says(t, err, nil, "no address of a seed")
	_, err = client.Seeds{Addrs: []string{"10.0.0.1:7946"}}.Join(t.Context(), client.Request{})
	says(t, err, handshake.ErrToken, "10.0.0.1:7946")
}

// A cancelled Join ends the conn, so that the seed frees the place.
func TestJoinIsCancelled(t *testing.T) {
	s := newSeed(t, 1, nil)
	conn, err := dialTLS(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Join(ctx, conn, s.request(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Error("the connection is still open")
	}
}

// A seed of an earlier world, with the same token, still listens at one of the derived addresses, and its world is complete or over: a node
// goes on until it finds the seed of its own world. If there is none, the error contains the answer of the other one.
func TestSeedsPassesAnEarlierWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := pki.NewToken()
		serve := func() (*testSeed, *pipeListener) {
			ca := newAuthority(t)
			l := newPipeListener(t, ca)
			s := serveOver(t, l, ca, l.dial, 1, func(c *Config) { c.Token = token })
			s.token = token
			return s, l
		}
		earlier, first := serve()
		own, second := serve()
		defer func() {
			earlier.Close()
			own.Close()
			first.Close()
			second.Close()
		}()
		asked := 0
		dial := func(ctx context.Context, addr string) (transport.Conn, error) {
			if addr == "earlier" {
				return earlier.dial(ctx, addr)
			}
			if asked++; asked < 5 {
				return nil, errors.New("not started yet")
			}
			return own.dial(ctx, addr)
		}
		member := earlier.mustJoin(t, 0)
		defer member.Close()
		earlier.form(t, member)
		const answer = "formation is over: the world of 1 has formed"
		d := client.Seeds{Addrs: []string{"earlier"}, Dial: dial, Timeout: time.Second, MinPause: 100 * time.Millisecond, Shared: true}
		_, err := d.Join(t.Context(), earlier.request(1))
		says(t, err, context.DeadlineExceeded, "no seed has admitted this node in ", " attempts", answer)
		d.Shared = false
		_, err = d.Join(t.Context(), earlier.request(1))
		says(t, err, membership.ErrOver, answer)

		d.Addrs, d.Shared, d.Timeout = append(d.Addrs, "own"), true, time.Minute
		session, err := d.Join(t.Context(), own.request(0))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		own.form(t, session)
		if asked != 5 {
			t.Errorf("the seed of the world was asked %d times, want 5", asked)
		}
	})
}

package server

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

func TestWorldNeverFills(t *testing.T) {
	t.Parallel()
	s := newSeed(t, 4, func(c *Config) { c.FormTimeout = 2 * time.Second })
	sessions := []*client.Session{s.mustJoin(t, 0), s.mustJoin(t, 1), s.mustJoin(t, 2)}
	for _, session := range sessions {
		_, err := session.View(t.Context())
		says(t, err, nil, "3 of 4 nodes joined within 2s", "host0:1000", "host1:1001", "host2:1002", sessions[0].Observed, "missing 1")
	}
	says(t, s.Wait(t.Context()), nil, "3 of 4 nodes joined within 2s")
	_, err := s.join(t, s.request(3))
	says(t, err, membership.ErrOver, "it failed", "3 of 4")
}

func TestNoTimeout(t *testing.T) {
	s := newSeed(t, 1, func(c *Config) { c.FormTimeout = -1 })
	if st := s.Status(); !st.Deadline.IsZero() {
		t.Errorf("deadline %v, want none", st.Deadline)
	}
	s.form(t, s.mustJoin(t, 0))
}

func TestNoLinks(t *testing.T) {
	t.Parallel()
	s := newSeed(t, 2, func(c *Config) { c.FormTimeout = 2 * time.Second })
	a, b := s.mustJoin(t, 0), s.mustJoin(t, 1)
	err := a.Ready(t.Context())
	says(t, err, nil, "all 2 nodes joined", "within 2s", "host1:1001")
	if strings.Contains(err.Error(), "host0:1000") {
		t.Errorf("error %q names a node that was ready", err)
	}
	_, err = b.View(t.Context()) // which it got before
	if err != nil {
		t.Error(err)
	}
	says(t, b.Ready(t.Context()), nil, "host1:1001")
}

// A node that dies or leaves before the world is full frees its rank.
func TestCandidateIsReplaced(t *testing.T) {
	for name, end := range map[string]func(*client.Session){
		"dies":   func(s *client.Session) { s.Break() },
		"leaves": func(s *client.Session) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeed(t, 2, nil)
			rank := 1
			req := s.request(0)
			req.Rank = &rank
			lost, err := s.join(t, req)
			if err != nil {
				t.Fatal(err)
			}
			end(lost)
			until(t, "its rank is free", func() bool { return s.Status().Joined == 0 }, s.log)
			if name == "dies" {
				s.log.wait(t, "node is gone", "host0:1000")
			} else {
				s.log.wait(t, "node left", "host0:1000")
			}
			req.Name = "host0:2000"
			again, err := s.join(t, req)
			if err != nil {
				t.Fatal(err)
			}
			other := s.mustJoin(t, 1)
			v, err := other.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if v.Nodes[1].ID != again.ID || v.Nodes[0].ID != other.ID {
				t.Errorf("view %v", v)
			}
			s.form(t, again, other)
		})
	}
}

func TestMemberDiesWhileConnecting(t *testing.T) {
	s := newSeed(t, 3, nil)
	a, b, c := s.mustJoin(t, 0), s.mustJoin(t, 1), s.mustJoin(t, 2)
	if _, err := b.View(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Break()
	for _, session := range []*client.Session{a, c} {
		err := session.Ready(t.Context())
		says(t, err, nil, "rank 1", "host1:1001", "went away before the world was formed")
	}
	says(t, s.Wait(t.Context()), nil, "rank 1")
	says(t, b.Ready(t.Context()), client.ErrSeedGone)
}

// unreachable has a node of a full world report that it cannot reach another one, and returns the error of the formation.
func unreachable(t *testing.T, by *client.Session, peer membership.NodeID, cause error) error {
	t.Helper()
	if _, err := by.View(t.Context()); err != nil {
		return err
	}
	by.Lost(peer, cause)
	return by.AwaitFailure(t.Context(), peer, cause)
}

func TestUnreachableIsReportedToAll(t *testing.T) {
	s := newSeed(t, 3, nil)
	sessions := []*client.Session{s.mustJoin(t, 0), s.mustJoin(t, 1), s.mustJoin(t, 2)}
	want := []string{"rank 2", "(host2:1002) cannot reach rank 0", "(host0:1000): no route to host"}
	says(t, unreachable(t, sessions[2], sessions[0].ID, errors.New("no route to host")), nil, want...)
	for _, session := range sessions {
		err := session.Ready(t.Context())
		says(t, err, nil, want...)
		if f, ok := errors.AsType[*client.FailedError](err); !ok || f.Seed != s.addr {
			t.Errorf("error %#v, want a *client.FailedError of seed %s", err, s.addr)
		}
	}
	says(t, s.Wait(t.Context()), nil, want...)
	says(t, s.Status().Err, nil, want...)
}

// inForming calls f with the seed of a world of n nodes that connect to each other, in fake time.
func inForming(t *testing.T, n int, f func(t *testing.T, s *testSeed, sessions []*client.Session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		l := newPipeListener(t, ca)
		s := serveOver(t, l, ca, l.dial, n, func(c *Config) {
			c.Limits = handshake.Limits{Hello: time.Minute, Step: time.Minute, Ping: time.Second, Silence: time.Hour}
		})
		var sessions []*client.Session
		for i := range n {
			sessions = append(sessions, s.mustJoin(t, i))
		}
		defer func() {
			for _, session := range sessions {
				session.Close()
			}
			s.Close()
			l.Close()
		}()
		for _, session := range sessions {
			if _, err := session.View(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f(t, s, sessions)
	})
}

// A node that gives up leaves before it ends its links. The seed may read the reports about these links first, and names the node.
func TestLeaverIsNamed(t *testing.T) {
	const want = "rank 1 10.1.0.2:7000 (host1:1001) went away before the world was formed: it left"
	t.Run("lost link", func(t *testing.T) {
		inForming(t, 3, func(t *testing.T, s *testSeed, sessions []*client.Session) {
			var turn sync.WaitGroup
			turn.Go(func() { s.call(func() { time.Sleep(time.Millisecond) }) })
			synctest.Wait() // The loop is busy, and takes the messages of the nodes in order.
			sessions[0].Lost(sessions[1].ID, transport.ErrPeerClosed)
			synctest.Wait()
			turn.Go(func() { sessions[1].Close() })
			turn.Wait()
			says(t, sessions[2].Ready(t.Context()), nil, want)
		})
	})
	t.Run("goodbye", func(t *testing.T) {
		inForming(t, 3, func(t *testing.T, _ *testSeed, sessions []*client.Session) {
			sessions[0].LinksOf(0).Left(sessions[1].ID)
			says(t, sessions[2].Ready(t.Context()), nil, want)
		})
	})
}

// The seed waits for the answer of a node that another one cannot reach, for Limits.Poll at most.
func TestSilentPeerIsReported(t *testing.T) {
	inForming(t, 3, func(t *testing.T, s *testSeed, sessions []*client.Session) {
		s.call(func() { // Nothing reaches the node.
			silent := *s.state.leader.nodes[sessions[1].ID]
			silent.out = handshake.NewOutbox()
			s.state.leader.nodes[sessions[1].ID] = &silent
		})
		began := time.Now()
		sessions[0].Lost(sessions[1].ID, errors.New("no answer"))
		says(t, sessions[2].Ready(t.Context()), nil, "rank 0 10.1.0.1:7000 (host0:1000) cannot reach rank 1", "no answer")
		if took := time.Since(began).Round(time.Second); took != s.lim.Poll {
			t.Errorf("reported after %v, want %v", took, s.lim.Poll)
		}
	})
}

// The seed detects a node that hangs by its silence.
func TestSilentMember(t *testing.T) {
	t.Parallel()
	s := newSeed(t, 2, func(c *Config) { c.Limits.Silence = 300 * time.Millisecond })
	conn, err := dialTLS(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hung := handshake.New(conn)
	if _, err := hung.Call(t.Context(), s.token, patience); err != nil {
		t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := key.RequestOver(conn.(transport.TLSConn).ConnectionState())
	if err != nil {
		t.Fatal(err)
	}
	if err := hung.Write(time.Now().Add(patience), wire.JoinRequest{CSR: csr, Name: "host0:1000", Rank: wire.AnyRank}); err != nil {
		t.Fatal(err)
	}
	s.log.wait(t, "node is gone", "host0:1000", "silent for 300ms")
	until(t, "its rank is free", func() bool { return s.Status().Joined == 0 }, s.log)
}

// A node that answers pings stays for longer than Limits.Silence.
func TestPingsAreAnswered(t *testing.T) {
	t.Parallel()
	s := newSeed(t, 2, func(c *Config) { c.Limits.Silence = 2 * time.Second })
	log := &logbook{}
	req := s.request(0)
	req.Log = log.logger()
	if _, err := s.join(t, req); err != nil {
		t.Fatal(err)
	}
	log.wait(t, "waiting for the world", "joined=1", "world=2")
	time.Sleep(3 * time.Second)
	if st := s.Status(); st.Joined != 1 {
		t.Errorf("%d joined, want the node that answers\n%v", st.Joined, s.log)
	}
}

// An unexpected message of a node ends its conn, and not the seed.
func TestUnexpectedMessages(t *testing.T) {
	for name, m := range map[string]wire.JoinMessage{
		"an answer":           wire.JoinAnswer{},
		"a request to renew":  wire.JoinRenew{CSR: []byte("give me one")},
		"a view of its own":   wire.JoinView{Epoch: 9},
		"a refusal of others": wire.JoinRefusal{},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeed(t, 2, nil)
			a := s.mustJoin(t, 0)
			a.Post(m)
			s.log.wait(t, "node is gone", "host0:1000")
			s.form(t, s.mustJoin(t, 1), s.mustJoin(t, 2))
		})
	}
}

// The seed ignores reports about another view.
func TestReportsOfAnotherEpoch(t *testing.T) {
	s := newSeed(t, 2, nil)
	a := s.mustJoin(t, 0)
	a.Post(wire.JoinReady{Epoch: 1})
	a.Post(wire.JoinUnreachable{Epoch: 1, Peer: a.ID, Text: "x"})
	csr, err := a.Identity.Request()
	if err != nil {
		t.Fatal(err)
	}
	a.Post(wire.JoinRenew{CSR: csr})
	s.log.wait(t, "certificate renewed") // and earlier messages are read
	b := s.mustJoin(t, 1)
	a.Post(wire.JoinUnreachable{Epoch: 7, Peer: a.ID, Text: "x"})
	s.form(t, a, b)
}

// A node cannot renew the certificate of another node.
func TestRenewForAnother(t *testing.T) {
	s := newSeed(t, 3, nil)
	a, b := s.mustJoin(t, 0), s.mustJoin(t, 1)
	csr, err := b.Identity.Request()
	if err != nil {
		t.Fatal(err)
	}
	a.Post(wire.JoinRenew{CSR: csr})
	s.log.wait(t, "node is gone", "host0:1000", "is of node "+b.ID.String())
}

package server

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// ask asks the seed for the state of all nodes.
func (s *testSeed) ask(t testing.TB, token pki.Token) (client.Report, error) {
	t.Helper()
	d := client.Seeds{Addrs: []string{s.addr}, Dial: s.dial, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond}
	return d.Status(t.Context(), token)
}

// mustAsk is ask, which must succeed.
func (s *testSeed) mustAsk(t testing.TB) client.Report {
	t.Helper()
	r, err := s.ask(t, s.token)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// formed makes a world of nodes that answer.
func (s *testSeed) formed(t testing.TB, status ...func() []byte) (sessions []*client.Session) {
	t.Helper()
	for i, f := range status {
		req, rank := s.request(i), i
		req.Status, req.Rank = f, &rank
		session, err := s.join(t, req)
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, session)
	}
	s.form(t, sessions...)
	return sessions
}

func saying(text string) func() []byte { return func() []byte { return []byte(text) } }

// checkReports wants the reports in this order: "rank trace missing".
func checkReports(t testing.TB, r client.Report, want ...string) {
	t.Helper()
	var got []string
	for _, n := range r.Nodes {
		if n.Name == "" || !strings.Contains(n.Addr, ":") || n.ID == (membership.NodeID{}) {
			t.Errorf("report %+v, want name, address and id", n)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %s", n.Rank, n.Trace, n.Missing)))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("reports\n%q, want\n%q", got, want)
	}
}

func TestStatusWhileGathering(t *testing.T) {
	s := newSeed(t, 3, nil)
	checkReports(t, s.mustAsk(t))
	s.mustJoin(t, 0)
	req, rank := s.request(1), 2
	req.Rank = &rank
	if _, err := s.join(t, req); err != nil {
		t.Fatal(err)
	}
	r := s.mustAsk(t)
	checkReports(t, r, "2  has not joined the world yet", "-1  has not joined the world yet")
	if want := (wire.JoinWorldStatus{World: 3, Joined: 2}); r.JoinWorldStatus != want {
		t.Errorf("standing %+v, want %+v", r.JoinWorldStatus, want)
	}
	s.mustJoin(t, 2) // The client that has asked has no place.
	r = s.mustAsk(t)
	checkReports(t, r, "0  has not joined the world yet", "1  has not joined the world yet", "2  has not joined the world yet")
	if want := (wire.JoinWorldStatus{Epoch: 1, World: 3, Joined: 3}); r.JoinWorldStatus != want {
		t.Errorf("standing %+v, want %+v", r.JoinWorldStatus, want)
	}
}

func TestStatusOfAWorld(t *testing.T) {
	s := newSeed(t, 4, nil)
	sessions := s.formed(t, saying("\x1b[2J"), saying(""), nil, saying(strings.Repeat("x", wire.TraceBytesMax)))
	spare := s.request(4)
	spare.Spare = true
	if _, err := s.join(t, spare); err != nil {
		t.Fatal(err)
	}
	r := s.mustAsk(t)
	checkReports(t, r, "0 \x1b[2J", "1  has not joined the world yet", "2  has not joined the world yet",
		"3 "+strings.Repeat("x", wire.TraceBytesMax), "-1  waits to join the world")
	if want := (wire.JoinWorldStatus{Epoch: 1, World: 4, Joined: 4, Waiting: 1, Formed: true}); r.JoinWorldStatus != want {
		t.Errorf("standing %+v, want %+v", r.JoinWorldStatus, want)
	}
	if r.Nodes[3].ID != sessions[3].ID {
		t.Errorf("rank 3 is node %x, want %v", r.Nodes[3].ID, sessions[3].ID)
	}
	sessions[1].Close()
	s.log.wait(t, "node is no longer in the world")
	r = s.mustAsk(t)
	if r.Epoch != 2 || r.Joined != 3 {
		t.Errorf("standing %+v, want epoch 2 with 3 nodes", r.JoinWorldStatus)
	}
}

// A trace that is too long is left out, and ends neither side.
func TestStatusTooLong(t *testing.T) {
	s := newSeed(t, 1, nil)
	s.formed(t, saying(strings.Repeat("x", wire.TraceBytesMax+1)))
	checkReports(t, s.mustAsk(t), "0  has not joined the world yet")
}

// A poll does not wait for a node that does not answer, and its report says so. The node
// answers the next poll.
func TestStatusWithoutAnswer(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Limits.Poll = 500 * time.Millisecond })
	stuck := make(chan struct{})
	s.formed(t, saying("here"), func() []byte {
		<-stuck
		return []byte("late")
	})
	checkReports(t, s.mustAsk(t), "0 here", "1  has not answered within 500ms")
	checkReports(t, s.mustAsk(t), "0 here", "1  has not answered within 500ms")
	close(stuck)
	until(t, "the node answers", func() bool { return string(s.mustAsk(t).Nodes[1].Trace) == "late" }, s.log)
}

// A poll does not wait for a node that has gone.
func TestStatusOfNodeThatGoes(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Limits.Poll = patience })
	asked := make(chan struct{})
	gone := make(chan struct{})
	sessions := s.formed(t, saying("here"), func() []byte {
		close(asked)
		<-gone
		return nil
	})
	go func() {
		<-asked
		sessions[1].Break()
		s.log.wait(t, "node is gone")
		close(gone)
	}()
	checkReports(t, s.mustAsk(t), "0 here", "1  has gone")
}

func TestStatusNeedsTheToken(t *testing.T) {
	s := newSeed(t, 1, nil)
	asked := atomic.Int32{}
	s.formed(t, func() []byte {
		asked.Add(1)
		return nil
	})
	_, err := s.ask(t, pki.NewToken())
	says(t, err, handshake.ErrToken, "wrong cluster token", s.addr)
	_, err = s.ask(t, pki.Token{})
	says(t, err, handshake.ErrToken, "the node has no cluster token")
	if n := asked.Load(); n > 0 {
		t.Errorf("the node got %d status requests", n)
	}
}

// A status request ends at a peer that is not a seed.
func TestStatusWithoutASeed(t *testing.T) {
	addr := unusedAddr(t)
	_, err := client.Seeds{Addrs: []string{addr}, Dial: dialTLS}.Status(t.Context(), pki.NewToken())
	says(t, err, nil, "no seed could be reached; is one running? "+addr+" (nothing listens there)")
	_, err = client.Seeds{Addrs: []string{"10.0.0.1:7946"}, Dial: dialTLS}.Status(t.Context(), pki.Token{})
	says(t, err, handshake.ErrToken, "NEXAR_CLUSTER_TOKEN is not set")
}

func TestStatusOfAWorldThatFailed(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.FormTimeout = 50 * time.Millisecond })
	s.Wait(t.Context())
	_, err := s.ask(t, s.token)
	says(t, err, membership.ErrOver, "the world did not form", "0 of 2 nodes joined")
}

// Many clients share few polls, and all get an answer.
func TestStatusOfManyClients(t *testing.T) {
	const pause = 100 * time.Millisecond
	s := newSeed(t, 1, func(c *Config) { c.Limits.Pause = pause })
	var asked atomic.Int32
	s.formed(t, func() []byte {
		asked.Add(1)
		return []byte("here")
	})
	began := time.Now()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			r, err := s.ask(t, s.token)
			if err != nil || len(r.Nodes) != 1 || string(r.Nodes[0].Trace) != "here" {
				t.Errorf("got %+v (%v)", r, err)
			}
		})
	}
	wg.Wait()
	if most := int32(time.Since(began)/pause) + 1; asked.Load() > most {
		t.Errorf("the node was asked %d times, want at most %d", asked.Load(), most)
	}
}

// Clients beyond the limit are refused as busy.
func TestStatusBusy(t *testing.T) {
	s := newSeed(t, 1, func(c *Config) { c.Limits.Poll = patience })
	stuck, asked := make(chan struct{}), make(chan struct{}, 1)
	s.formed(t, func() []byte {
		asked <- struct{}{}
		<-stuck
		return []byte("here")
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stuck)
	for range clientsMax {
		wg.Go(func() {
			if _, err := s.ask(t, s.token); err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	until(t, "all requests are in progress", func() bool { return len(s.statusClients) == clientsMax }, s.log)
	conn, err := s.dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Status(t.Context(), conn, s.token)
	says(t, err, handshake.ErrBusy, "4 status requests are in progress")
	if client.IsFinal(err) {
		t.Errorf("the client tries again after %v", err)
	}
}

// The seed drops traces that it has not asked for.
func TestStatusUnasked(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Limits.Poll = 300 * time.Millisecond })
	hold := make(chan struct{})
	sessions := s.formed(t, saying("here"), func() []byte {
		<-hold
		return nil
	})
	for number := range uint64(4) {
		sessions[1].Post(wire.JoinTrace{Number: number << 40, Trace: []byte("of some other time")})
	}
	checkReports(t, s.mustAsk(t), "0 here", "1  has not answered within 300ms")
	close(hold)
}

// Close ends the connections of status clients.
func TestStatusOfASeedThatCloses(t *testing.T) {
	s := newSeed(t, 1, func(c *Config) { c.Limits.Poll = patience })
	asked, hold := make(chan struct{}), make(chan struct{})
	s.formed(t, func() []byte {
		close(asked)
		<-hold
		return nil
	})
	go func() {
		<-asked
		s.Close()
		close(hold)
	}()
	conn, err := s.dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Status(t.Context(), conn, s.token); err == nil || errors.Is(err, handshake.ErrBusy) {
		t.Errorf("error %v, want that the conn has ended", err)
	}
}

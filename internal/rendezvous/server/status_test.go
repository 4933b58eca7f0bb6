package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// ask asks the seed for the state of all nodes.
func (s *testSeed) ask(t testing.TB, token pki.Token) (client.Report, error) {
	t.Helper()
	return s.query(t, token, wire.JoinStatusRequest{})
}

// query is ask with a request.
func (s *testSeed) query(t testing.TB, token pki.Token, q wire.JoinStatusRequest) (client.Report, error) {
	t.Helper()
	d := client.Seeds{Addrs: []string{s.addr}, Dial: s.dial, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond}
	return d.Status(t.Context(), token, q)
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
func (s *testSeed) formed(t testing.TB, status ...func(wire.Detail) []byte) (sessions []*client.Session) {
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

func saying(text string) func(wire.Detail) []byte {
	return func(wire.Detail) []byte { return []byte(text) }
}

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

// checkStanding wants the state of the world, asked about just now and without changes but its formation.
func checkStanding(t testing.TB, r client.Report, want wire.JoinWorldStatus) {
	t.Helper()
	got := r.JoinWorldStatus
	if age := time.Since(time.Unix(0, int64(got.Asked))); age < 0 || age > patience {
		t.Errorf("the nodes were asked %v ago", age)
	}
	var changes []trace.Change
	if err := json.Unmarshal(got.Changes, &changes); want.Formed && (err != nil || len(changes) != 1 || changes[0].What != trace.Formed || changes[0].Size != int(want.Joined)) {
		t.Errorf("changes %s, want that the world has formed", got.Changes)
	}
	if got.Asked, got.Changes = 0, nil; !reflect.DeepEqual(got, want) {
		t.Errorf("standing %+v, want %+v", got, want)
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
	checkStanding(t, r, wire.JoinWorldStatus{World: 3, Joined: 2})
	s.mustJoin(t, 2) // The client that has asked has no place.
	r = s.mustAsk(t)
	checkReports(t, r, "0  waits for connections to other nodes", "1  waits for connections to other nodes", "2  waits for connections to other nodes")
	checkStanding(t, r, wire.JoinWorldStatus{Epoch: 1, World: 3, Joined: 3})
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
	checkStanding(t, r, wire.JoinWorldStatus{Epoch: 1, World: 4, Joined: 4, Waiting: 1, Formed: true})
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
	s.formed(t, saying("here"), func(wire.Detail) []byte {
		<-stuck
		return []byte("late")
	})
	checkReports(t, s.mustAsk(t), "0 here", "1  has not answered")
	r := s.mustAsk(t)
	checkReports(t, r, "0 here", "1  has not answered")
	if a, b := r.Nodes[0], r.Nodes[1]; a.Silent != 0 || a.Took == 0 || b.Silent < uint64(500*time.Millisecond) || b.Silent > uint64(patience) {
		t.Errorf("the nodes have been silent for %v and %v", time.Duration(a.Silent), time.Duration(b.Silent))
	}
	close(stuck)
	until(t, "the node answers", func() bool { return string(s.mustAsk(t).Nodes[1].Trace) == "late" }, s.log)
}

// A poll ends within the shortest wait of its clients, and a brief one serves no client that wants all.
func TestStatusWait(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Limits.Poll, c.Limits.Pause = patience, time.Millisecond })
	stuck := make(chan struct{})
	defer close(stuck)
	asked := make(chan bool, 8)
	s.formed(t, func(detail wire.Detail) []byte {
		asked <- detail == wire.Brief
		return []byte("here")
	}, func(wire.Detail) []byte {
		<-stuck
		return nil
	})
	check := func(q wire.JoinStatusRequest) {
		r, err := s.query(t, s.token, q)
		if err != nil {
			t.Error(err)
			return
		}
		checkReports(t, r, "0 here", "1  has not answered")
	}
	began, least := time.Now(), s.lim.Poll/20
	check(wire.JoinStatusRequest{Wait: 1, Detail: wire.Brief})
	if took := time.Since(began); took < least || !<-asked {
		t.Errorf("the poll took %v, want at least %v, and a brief trace", took, least)
	}
	var wg sync.WaitGroup
	wg.Go(func() { check(wire.JoinStatusRequest{}) })
	if <-asked {
		t.Error("a client that wants all got a brief trace")
	}
	wg.Go(func() { check(wire.JoinStatusRequest{Wait: 200, Detail: wire.Brief}) }) // It ends the poll of the other.
	wg.Wait()
	if took := time.Since(began); took > patience {
		t.Errorf("the polls took %v", took)
	}
}

// TestHistory: the changes of a world are in its log, and so with the seed that leads next.
func TestHistory(t *testing.T) {
	var r clusterState
	node := func(i byte) membership.Node {
		return membership.Node{ID: membership.NodeID{i}, Name: fmt.Sprintf("h%d:1", i), Addrs: []string{fmt.Sprintf("127.0.0.1:%d", i)}}
	}
	apply := func(c change) {
		t.Helper()
		c.Time = time.Unix(1000+int64(r.view.Epoch), 0).UTC()
		if err := r.apply(c); err != nil {
			t.Fatal(err)
		}
	}
	var first []membership.Node
	for i := range byte(20) {
		first = append(first, node(i+1))
	}
	apply(change{Kind: changeView, Entries: []membership.Entry{{Kind: membership.Form, Nodes: first}}})
	apply(change{Kind: changeFormed})
	gone := membership.Entry{Kind: membership.Fail}
	reasons := map[membership.NodeID]string{}
	for i := range byte(12) {
		gone.IDs = append(gone.IDs, node(i+1).ID)
		reasons[node(i+1).ID] = "it was silent for 30s"
	}
	apply(change{Kind: changeView, Entries: []membership.Entry{gone}, Reasons: reasons, Left: map[membership.NodeID]bool{node(2).ID: true}, Excluded: map[membership.NodeID]bool{node(3).ID: true}})
	apply(change{Kind: changeOver})
	b, err := r.marshal()
	if err != nil {
		t.Fatal(err)
	}
	next, err := parseClusterState(b)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range next.History {
		got = append(got, fmt.Sprintf("%d %d %s %d %s %s +%d", c.Time.Unix(), c.Epoch, c.What, c.Rank, c.Name, c.Why, c.More))
	}
	want := []string{"1001 1 formed 0   +0", "1001 2 lost 0 h1:1 it was silent for 30s +0", "1001 2 left 1 h2:1 it was silent for 30s +0", "1001 2 excluded 2 h3:1 it was silent for 30s +0"}
	for i := 4; i <= 10; i++ {
		more := 0
		if i == 10 {
			more = 2
		}
		want = append(want, fmt.Sprintf("1001 2 lost %d h%d:1 it was silent for 30s +%d", i-1, i, more))
	}
	want = append(want, "1002 2 over 0   +0")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range 2 * historyMax {
		next.note(trace.Change{What: trace.Joined, Why: strings.Repeat("ä", whyMax), Name: strings.Repeat("\x01", 255)})
	}
	if b := next.changes(); len(next.History) != historyMax || len(b) > wire.TraceBytesMax || !json.Valid(b) {
		t.Errorf("%d changes, %d bytes", len(next.History), len(b))
	}
}

// A poll does not wait for a node that has gone.
func TestStatusOfNodeThatGoes(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Limits.Poll = patience })
	asked := make(chan struct{})
	gone := make(chan struct{})
	sessions := s.formed(t, saying("here"), func(wire.Detail) []byte {
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
	s.formed(t, func(wire.Detail) []byte {
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
	addr := testhost.FreePort(t)
	_, err := client.Seeds{Addrs: []string{addr}, Dial: dialTLS}.Status(t.Context(), pki.NewToken(), wire.JoinStatusRequest{})
	says(t, err, nil, "no seed could be reached; is one running? "+addr+" (nothing listens there)")
	_, err = client.Seeds{Addrs: []string{"10.0.0.1:7946"}, Dial: dialTLS}.Status(t.Context(), pki.Token{}, wire.JoinStatusRequest{})
	says(t, err, handshake.ErrToken, "NEXAR_CLUSTER_TOKEN is not set")
}

func TestStatusOfAWorldThatFailed(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.FormTimeout = 50 * time.Millisecond })
	s.Wait(t.Context())
	_, err := s.ask(t, s.token)
	says(t, err, membership.ErrOver, "the world did not form", "0 of 2 nodes joined")
}

// Many clients share few polls, and all get an answer: four at a time, and the others when they try again.
func TestStatusOfManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 50 * time.Millisecond
		ca := newAuthority(t)
		l := newPipeListener(t, ca)
		s := serveOver(t, l, ca, l.dial, 1, func(c *Config) { c.Limits.Pause = pause })
		var asked atomic.Int32
		node := s.formed(t, func(wire.Detail) []byte {
			asked.Add(1)
			return []byte("here")
		})[0]
		defer func() {
			node.Close()
			s.Close()
			l.Close()
		}()
		began := time.Now()
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				r, err := s.ask(t, s.token)
				if err != nil || len(r.Nodes) != 1 || string(r.Nodes[0].Trace) != "here" {
					t.Errorf("got %+v (%v)", r, err)
				}
			})
		}
		wg.Wait()
		if most := int32(time.Since(began)/pause) + 1; asked.Load() > most {
			t.Errorf("the node was asked %d times within %v, want at most %d", asked.Load(), time.Since(began), most)
		}
	})
}

// Clients beyond the limit are refused as busy.
func TestStatusBusy(t *testing.T) {
	s := newSeed(t, 1, func(c *Config) { c.Limits.Poll = patience })
	stuck, asked := make(chan struct{}), make(chan struct{}, 1)
	s.formed(t, func(wire.Detail) []byte {
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
	_, err = client.Status(t.Context(), conn, s.token, wire.JoinStatusRequest{})
	says(t, err, handshake.ErrBusy, "4 status requests are in progress")
	if client.IsFinal(err) {
		t.Errorf("the client tries again after %v", err)
	}
}

// The seed drops traces that it has not asked for.
func TestStatusUnasked(t *testing.T) {
	s := newSeed(t, 2, func(c *Config) { c.Limits.Poll = 300 * time.Millisecond })
	hold := make(chan struct{})
	sessions := s.formed(t, saying("here"), func(wire.Detail) []byte {
		<-hold
		return nil
	})
	for number := range uint64(4) {
		sessions[1].Post(wire.JoinTrace{Number: number << 40, Trace: []byte("of some other time")})
	}
	checkReports(t, s.mustAsk(t), "0 here", "1  has not answered")
	close(hold)
}

// Close ends the connections of status clients.
func TestStatusOfASeedThatCloses(t *testing.T) {
	s := newSeed(t, 1, func(c *Config) { c.Limits.Poll = patience })
	asked, hold := make(chan struct{}), make(chan struct{})
	s.formed(t, func(wire.Detail) []byte {
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
	if _, err := client.Status(t.Context(), conn, s.token, wire.JoinStatusRequest{}); err == nil || errors.Is(err, handshake.ErrBusy) {
		t.Errorf("error %v, want that the conn has ended", err)
	}
}

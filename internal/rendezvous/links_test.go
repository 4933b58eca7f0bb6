package rendezvous

import (
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// A node cannot choose its origin by another port, or by another address of its network.
func TestOriginOf(t *testing.T) {
	for observed, want := range map[string]string{
		"10.0.0.1:7000":               "10.0.0.1",
		"10.0.0.1:7001":               "10.0.0.1",
		"[2001:db8:1:2:3:4:5:6]:7000": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:9":    "2001:db8:1:2::/64",
		"[::ffff:10.0.0.1]:7000":      "10.0.0.1",
		"[fe80::1%eth0]:7000":         "fe80::/64",
		"host.example:7000":           "host.example",
	} {
		if got := originOf(observed); got != want {
			t.Errorf("%s: got %q, want %q", observed, got, want)
		}
	}
}

// TestCandidatesThatNeverEnter: neither the seed nor the nodes remember candidates that
// have come and gone.
func TestCandidatesThatNeverEnter(t *testing.T) {
	s := newSeed(t, 1, elastic(1, nil))
	g := new(guests)
	req := s.request(0)
	req.Expect, req.Forget = g.add, g.remove
	a, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	s.form(t, a)
	for i := range 3 {
		late := s.mustJoin(t, 1+i)
		begin(t, late, 0)
		until(t, "the node expects it", func() bool { return g.has(late.ID) }, g)
		a.Link(late.ID, true)
		if err := late.Close(); err != nil {
			t.Error(err)
		}
		until(t, "the node forgets it", func() bool { return !g.has(late.ID) }, g)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(s.office.left) > 0 || len(s.guests) != 1 || s.pending.Waiting() > 0 || len(a.expected) > 0 || len(a.links) > 0 {
		t.Errorf("the seed remembers %v and %d nodes, the node %v and %v", s.office.left, len(s.guests), a.expected, a.links)
	}
}

// TestExpectedIsWhole: a node that gets the whole list of those to expect forgets others.
func TestExpectedIsWhole(t *testing.T) {
	g := new(guests)
	s := newSession(nowhere{}, Request{Expect: g.add, Forget: g.remove})
	one, two := membership.Node{ID: membership.NodeID{1}, Addrs: []string{"a"}}, membership.Node{ID: membership.NodeID{2}, Addrs: []string{"b"}}
	s.setExpected([]membership.Node{one}, false)
	s.setExpected([]membership.Node{two}, false)
	if !g.has(one.ID) || !g.has(two.ID) {
		t.Fatalf("it expects %v", g)
	}
	s.setExpected([]membership.Node{two}, true)
	if g.has(one.ID) || !g.has(two.ID) {
		t.Errorf("it expects %v, want the second", g)
	}
	s.setExpected(nil, true)
	if g.has(two.ID) || len(s.expected) > 0 {
		t.Errorf("it expects %v, want none", g)
	}
}

// nowhere is a connection of a Session that is not started.
type nowhere struct{ transport.Conn }

func (nowhere) RemoteAddr() string { return "nowhere" }

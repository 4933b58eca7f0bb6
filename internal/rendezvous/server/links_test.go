package server

import (
	"testing"
)

// The origin of a node does not depend on its port, or on its address within a network.
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

// TestJoinersThatNeverEnter: neither the seed nor the nodes keep state of joining nodes that
// have gone.
func TestJoinersThatNeverEnter(t *testing.T) {
	s := newSeed(t, 1, elastic(1, nil))
	g := new(joiners)
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
	s.call(func() {
		if l := s.state.leader; len(l.left) > 0 || len(l.nodes) != 1 || l.pending.Waiting() > 0 {
			t.Errorf("the seed remembers %v and %d nodes", l.left, len(l.nodes))
		}
	})
}

package client

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A Session refuses invalid messages of a seed that has proved the token.
func TestSessionChecksTheSeed(t *testing.T) {
	node := func(b byte) membership.Node { return membership.Node{ID: [16]byte{b}, Addrs: []string{"10.0.0.1:1"}} }
	self, identity := node(1), newIdentity(t)
	view := wire.JoinView{Epoch: 1, Nodes: []membership.Node{self, node(2)}}
	for name, messages := range map[string][]wire.JoinMessage{
		"a view without this node": {wire.JoinView{Epoch: 1, Nodes: []membership.Node{node(2), node(3)}}},
		"a node twice":             {wire.JoinView{Epoch: 1, Nodes: []membership.Node{self, self}}},
		"no address":               {wire.JoinView{Epoch: 1, Nodes: []membership.Node{self, {ID: [16]byte{2}}}}},
		"too small a world":        {wire.JoinView{Epoch: 1, Nodes: []membership.Node{self}}},
		"epoch zero":               {wire.JoinView{Nodes: view.Nodes}},
		"two views":                {view, view},
		"formed without a view":    {wire.JoinFormed{Epoch: 1}},
		"another view has formed":  {view, wire.JoinFormed{Epoch: 2}},
		"a message of nodes":       {wire.JoinReady{}},
	} {
		s := newSession(nowhere{addr: "10.0.0.9:7946"}, Request{})
		s.ID, s.World, s.Identity = self.ID, 2, identity
		s.views = membership.NewViewForwarder(s.ID, s.req.Topology, nil)
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

// newIdentity returns the identity of a node of a new cluster.
func newIdentity(t *testing.T) *pki.Identity {
	t.Helper()
	authority, err := pki.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request()
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := authority.Sign(request, 0)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := pki.NewIdentity(key, cert, authority.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// expected are the nodes that a node expects.
type expected map[membership.NodeID]bool

func (e expected) add(nodes []membership.Node) {
	for _, n := range nodes {
		e[n.ID] = true
	}
}

func (e expected) remove(id membership.NodeID) { delete(e, id) }

// A Session keeps no state of joining nodes that do not enter.
func TestForgottenCandidate(t *testing.T) {
	e := make(expected)
	s := newSession(nowhere{}, Request{Expect: e.add, Forget: e.remove})
	n := membership.Node{ID: membership.NodeID{1}, Addrs: []string{"a"}}
	s.setExpected(wire.JoinExpect{Nodes: []membership.Node{n}})
	s.Link(n.ID, true)
	s.setForgotten(n.ID)
	if len(e) > 0 || len(s.expected) > 0 || len(s.links) > 0 {
		t.Errorf("it keeps %v, %v and the links %v", e, s.expected, s.links)
	}
}

// TestExpectedIsComplete: a complete list of expected nodes withdraws all others.
func TestExpectedIsComplete(t *testing.T) {
	g := make(expected)
	s := newSession(nowhere{}, Request{Expect: g.add, Forget: g.remove})
	one, two := membership.Node{ID: membership.NodeID{1}, Addrs: []string{"a"}}, membership.Node{ID: membership.NodeID{2}, Addrs: []string{"b"}}
	s.setExpected(wire.JoinExpect{Nodes: []membership.Node{one}})
	s.setExpected(wire.JoinExpect{Nodes: []membership.Node{two}})
	if !g[one.ID] || !g[two.ID] {
		t.Fatalf("it expects %v", g)
	}
	s.setExpected(wire.JoinExpect{Nodes: []membership.Node{two}, Complete: true})
	if g[one.ID] || !g[two.ID] {
		t.Errorf("it expects %v, want the second", g)
	}
	s.setExpected(wire.JoinExpect{Complete: true})
	if g[two.ID] || len(s.expected) > 0 {
		t.Errorf("it expects %v, want none", g)
	}
}

// TestGoodbyeOfMember: a Session reports the goodbye of a node of the view. A joining node says goodbye when it gives up its links for another
// invitation, and lives on.
func TestGoodbyeOfMember(t *testing.T) {
	member, joining := membership.NodeID{2}, membership.NodeID{3}
	s := newSession(nowhere{}, Request{})
	s.view = membership.View{Epoch: 1, Nodes: []membership.Node{{ID: membership.NodeID{1}}, {ID: member}}}
	s.LinksOf(0).Left(joining)
	s.LinksOf(0).Left(member)
	want := []wire.JoinMessage{wire.JoinUnreachable{Epoch: 1, Peer: member, Kind: wire.LossLeft, Text: "it has left"}}
	if !slices.Equal(s.reports, want) || s.out.Len() != 1 {
		t.Errorf("it reports %v, and posts %d messages, want %v", s.reports, s.out.Len(), want)
	}
}

// nowhere is a connection that has only an address.
type nowhere struct {
	transport.Conn
	addr string
}

func (n nowhere) RemoteAddr() string { return n.addr }

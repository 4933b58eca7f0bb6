package pki

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

const grace = 24 * time.Hour

// An expired certificate is accepted only of a member of the newest view, if it was valid when that view
// came and when the last seed answered, for the grace, and while no seed answers.
func TestGrace(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(hours float64) time.Time { return start.Add(time.Duration(hours * float64(time.Hour))) }
	var member, stranger membership.NodeID
	member[0], stranger[0] = 1, 2
	// The view came at hour 1, and the seed went at hour 10.
	lost := expiryPolicy{members: []membership.NodeID{member}, viewed: at(1), silent: at(10), grace: 24 * time.Hour}
	change := func(f func(*expiryPolicy)) expiryPolicy {
		p := lost
		f(&p)
		return p
	}
	for _, test := range []struct {
		name string
		expiryPolicy
		id      membership.NodeID
		expires float64
		now     float64
		want    string // in the reason; empty: accepted
	}{
		{"a member", lost, member, 24, 25, ""},
		{"a member whose certificate expired when the seed went", lost, member, 10, 25, ""},
		{"a member at the end of the grace", lost, member, 24, 48, ""},
		{"after the grace", lost, member, 24, 48.01, "only for 24h0m0s"},
		{"without a grace", change(func(p *expiryPolicy) { p.grace = 0 }), member, 24, 24.01, "only for 0s"},
		{"a node with another key", lost, stranger, 24, 25, "not in the newest view"},
		{"a node that a later view has removed", change(func(p *expiryPolicy) { p.members = []membership.NodeID{stranger} }), member, 24, 25, "not in the newest view"},
		{"before there is a view", expiryPolicy{silent: at(10), grace: 24 * time.Hour}, member, 24, 25, "not in the newest view"},
		{"expired before the view", lost, member, 0.99, 1.5, "before the newest view"},
		{"expired before a view that came from another node while the seed was silent", change(func(p *expiryPolicy) { p.viewed = at(30) }), member, 24, 31, "before the newest view"},
		{"expired while a seed answered", lost, member, 9.99, 25, "until when a seed answered"},
		{"a seed answers", change(func(p *expiryPolicy) { p.silent = time.Time{} }), member, 24, 25, "a seed answers"},
		{"a seed has answered meanwhile, and went again", change(func(p *expiryPolicy) { p.silent = at(26) }), member, 24, 27, "until when a seed answered"},
	} {
		err := test.check(leaf{id: test.id, from: at(0), to: at(test.expires)}, at(test.now))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// Two members whose certificates have expired make a handshake while no seed answers either of them.
func TestExpiredHandshake(t *testing.T) {
	a := newAuthority(t)
	server, client, stranger := newIdentity(t, a), newIdentity(t, a), newIdentity(t, a)
	view := membership.View{Epoch: 1, Nodes: []membership.Node{{ID: server.ID()}, {ID: client.ID()}}}
	later := time.Now().Add(CertificateLife + time.Hour)
	expire := func(grace time.Duration, ids ...*Identity) {
		for _, i := range ids {
			i.now = time.Now
			i.SetGrace(grace)
			i.SetMembers(view)
			i.SeedSilent()
			i.now = func() time.Time { return later }
		}
	}
	try := func(from *Identity) (atServer, atClient error) {
		s, c := handshake(t, server.Server(), from.Client(server.ID().String()))
		if c.err == nil && s.err == nil {
			if id, err := server.Peer(s.state); err != nil || id != from.ID().String() {
				t.Errorf("the server takes the peer for %q (%v), want %v", id, err, from.ID())
			}
		}
		return s.err, c.err
	}
	expire(grace, server, client, stranger)
	if s, c := try(client); s != nil || c != nil {
		t.Errorf("between members: %v, %v, want none", s, c)
	}
	if s, _ := try(stranger); !errors.Is(s, transport.ErrIdentity) || !strings.Contains(s.Error(), "expired at") || !strings.Contains(s.Error(), "newest view") {
		t.Errorf("a stranger: %v, want that it has expired and is not in the view", s)
	}
	server.SeedAnswers()
	if s, _ := try(client); !errors.Is(s, transport.ErrIdentity) || !strings.Contains(s.Error(), "a seed answers") {
		t.Errorf("while a seed answers the server: %v", s)
	}
	server.SeedSilent()
	if s, _ := try(client); !errors.Is(s, transport.ErrIdentity) || !strings.Contains(s.Error(), "until when a seed answered") {
		t.Errorf("after a seed has answered the server: %v", s)
	}
	expire(30*time.Minute, server, client)
	if _, c := try(client); !errors.Is(c, transport.ErrIdentity) || !strings.Contains(c.Error(), "expired at") || !strings.Contains(c.Error(), "NEXAR_CERTIFICATE_GRACE_SECS") {
		t.Errorf("after the grace: %v, want the expiry and the variable", c)
	}
}

// The grace is about the time alone: other faults of an expired certificate are found.
func TestExpiredImpostors(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	us := newIdentity(t, a)
	past := func(c *x509.Certificate, _ membership.NodeID) { c.NotAfter = time.Now().Add(time.Second) }
	for name, authority := range map[string]*Authority{"the same CA": a, "another CA": other} {
		cert := mustParse(t, forge(t, authority, past).Certificate[0])
		us.SetGrace(grace)
		us.SetMembers(membership.View{Nodes: []membership.Node{{ID: hashID(cert.RawSubjectPublicKeyInfo)}}})
		us.SeedSilent()
		if _, err := us.peers.node(cert, time.Now().Add(time.Hour)); (err == nil) != (authority == a) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

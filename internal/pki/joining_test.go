package pki

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

func TestJoining(t *testing.T) {
	server, client := joinHandshake(t)
	for _, s := range []side{server, client} {
		if s.state.NegotiatedProtocol != JoinProtocol {
			t.Errorf("protocol %q, want %q", s.state.NegotiatedProtocol, JoinProtocol)
		}
		if peer, err := (Joining{}).Peer(s.state); peer != "" || err != nil {
			t.Errorf("peer %q (%v), want none", peer, err)
		}
	}
	if (Joining{}).Server() != nil {
		t.Error("a seed without a certificate is accepted")
	}
}

// A conn for joining is not accepted as a conn between nodes, and the reverse.
func TestJoiningIsNotForNodes(t *testing.T) {
	a := newAuthority(t)
	node := newIdentity(t, a)
	j, err := a.Joining()
	if err != nil {
		t.Fatal(err)
	}
	if server, _ := handshake(t, node.Server(), j.Client("")); server.err == nil {
		t.Error("a node accepts a conn of a joining node")
	}
	if _, client := handshake(t, j.Server(), node.Client("")); client.err == nil {
		t.Error("a node takes the seed for a node")
	}
	server, client := joinHandshake(t)
	for _, s := range []side{server, client} {
		if _, err := node.Peer(s.state); !errors.Is(err, transport.ErrIdentity) {
			t.Errorf("error %v, want a transport.ErrIdentity", err)
		}
	}
}

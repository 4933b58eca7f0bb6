package cluster

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/tcp"
)

// An attacker on the path accepts the TCP connections to a node with the certificate of another
// cluster or of another node. It gets no payloads: they stay on QUIC, where the node has proved
// its identity.
func TestBulkImpostor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, authority := range map[string]*pki.Authority{"another cluster": newAuthority(t), "another node": ours} {
		t.Run(name, func(t *testing.T) {
			token := nexar.NewToken()
			s := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, StateDir: dir})
			listen := testhost.FreePort(t)
			way, taken := interceptTCP(t, listen, newIdentity(t, authority))

			log, lines := logTo(t, "the dialing node")
			victim, other := nodeConfig(s, token), nodeConfig(s, token)
			first := 0
			victim.Rank, victim.Listen, victim.Advertise = &first, listen, way
			victim.Transports = []string{"tcp", "quic"}
			other.Transports, other.Log = victim.Transports, log
			nodes, errs := joinAll(t, []nexar.Config{victim, other})
			mustBeNil(t, errs)
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 1) }))
			p := nodes[1].Peers()[0]
			if p.Transport != "quic" || p.BulkTransport != "quic" || !p.Encrypted || !strings.Contains(p.Reason, transport.ErrIdentity.Error()) {
				t.Errorf("path to rank 0: %+v, want QUIC alone, as an impostor answered on TCP", p)
			}
			if missing := missingTexts(lines, "level=WARN", "a path to a node is not taken", transport.ErrIdentity.Error()); missing != nil {
				t.Errorf("the log does not contain %q", missing)
			}
			closeAll(t, nodes)
			if c := taken(); c != "" {
				t.Errorf("the impostor has a connection from %q", c)
			}
		})
	}
}

// interceptTCP returns an address that leads to a node over UDP and to an impostor with identity
// id over TCP. taken closes the impostor and returns the first peer that has accepted it, or "".
func interceptTCP(t *testing.T, node string, id *pki.Identity) (addr string, taken func() (peer string)) {
	t.Helper()
	var l net.Listener
	for {
		addr = newEavesdropper(t, node).addr()
		var err error
		if l, err = net.Listen("tcp", addr); err == nil {
			break
		}
		t.Logf("the TCP port is in use, trying another: %v", err)
	}
	impostor, err := tcp.Listen(tcp.Config{Listener: l}, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { impostor.Close() })
	peers := make(chan string, 1)
	go func() {
		defer close(peers)
		if c, err := impostor.Accept(t.Context()); err == nil {
			peers <- c.Peer()
			c.Close()
		}
	}()
	return addr, func() string {
		impostor.Close()
		return <-peers
	}
}

// Neither a node of another cluster nor one of the same cluster outside the world can make a TCP
// connection to a node of the world. The world is not affected.
func TestBulkUnknownNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	token := nexar.NewToken()
	s := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, StateDir: dir})
	log, lines := logTo(t, "the node")
	a, b := nodeConfig(s, token), nodeConfig(s, token)
	a.Log = log
	a.Transports = []string{"tcp", "quic"}
	b.Transports = a.Transports
	nodes, errs := joinAll(t, []nexar.Config{a, b})
	mustBeNil(t, errs)
	want, addr := nodes[0].ID().String(), nodes[1].Peers()[0].Addr

	foreign := newBulk(t, newIdentity(t, newAuthority(t)))
	if _, err := foreign.Dial(t.Context(), addr, want); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("a node of another cluster: error %v, want %v", err, transport.ErrIdentity)
	}
	member := newBulk(t, newIdentity(t, ours))
	if _, err := member.Dial(t.Context(), addr, nodes[1].ID().String()); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("asked for another node: error %v, want %v", err, transport.ErrIdentity)
	}
	// The node closes the connection, perhaps before Dial has returned.
	c, err := member.Dial(t.Context(), addr, want)
	switch {
	case err == nil:
		select {
		case <-c.Done():
		case <-time.After(time.Minute):
			t.Error("a node that is not in the world keeps its connection")
		}
	case !errors.Is(err, transport.ErrPeerClosed):
		t.Error(err)
	}
	waitFor(t, func() bool { return missingTexts(lines, "refused a connection") == nil })
	for _, n := range nodes {
		if p := n.Peers()[0]; p.BulkTransport != "tcp+tls" {
			t.Errorf("path between the nodes of the world: %+v, want TCP for payloads", p)
		}
	}
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 1) }))
}

// newBulk returns a TCP transport of the test with an identity.
func newBulk(t *testing.T, id *pki.Identity) *tcp.Transport {
	t.Helper()
	tr, err := tcp.Listen(tcp.Config{Addr: "127.0.0.1:0"}, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

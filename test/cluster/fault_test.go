package cluster

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// The tests named TestFault show that nexar for Go does not have certain faults of nexar 0.1, in
// Rust: faults in joining and with several hosts. The token test is in token_test.go, tests with several hosts
// are in fault_linux_test.go.

// newIdentity returns the identity of a node with a certificate of an authority.
func newIdentity(t *testing.T, a *pki.Authority) *pki.Identity {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request()
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := a.Sign(request, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, err := pki.NewIdentity(key, cert, a.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// newTransport returns a QUIC transport of the test with an identity.
func newTransport(t *testing.T, id *pki.Identity) *quic.Transport {
	t.Helper()
	end, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	tr, err := end.Transport(id)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// nexar 0.1 sent data to any server that answered: neither its bootstrap nor its bulk
// connections checked a certificate. Here a server at the address of a node with the certificate
// of another cluster or of another node is detected before it gets any data.
func TestFaultUncheckedServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, authority := range map[string]*pki.Authority{"another cluster": newAuthority(t), "another node": ours} {
		t.Run(name, func(t *testing.T) {
			impostor := newTransport(t, newIdentity(t, authority))
			var taken atomic.Int32
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					c, err := impostor.Accept(t.Context())
					if err != nil {
						return
					}
					taken.Add(1)
					c.Close()
				}
			}()
			token := nexar.NewToken()
			s := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, StateDir: dir})
			victim, other := nodeConfig(s, token), nodeConfig(s, token)
			first := 0
			victim.Rank, victim.Advertise, victim.AdvertiseUnchecked = &first, impostor.Addr(), true
			other.Transports = []string{"tcp", "quic"} // shared memory would lead to the victim itself
			began := time.Now()
			_, errs := joinAll(t, []nexar.Config{victim, other})
			for _, err := range append(errs, s.Wait(t.Context())) {
				mustContain(t, err, "cannot reach rank 0 "+impostor.Addr(), "identity")
			}
			if took := time.Since(began); took > slowMax {
				t.Errorf("it took %v to find out", took)
			}
			impostor.Close()
			<-done
			if n := taken.Load(); n != 0 {
				t.Errorf("the impostor got %d connections", n)
			}
		})
	}
}

// Every certificate of nexar 0.1 named "localhost", so each node could pose as any other. Here
// a certificate names one node of one cluster: other clusters are rejected, and a node cannot
// pose as another one.
func TestFaultCertificateSaysLocalhost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, err := pki.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	token := nexar.NewToken()
	log, lines := logTo(t, "nodes")
	s := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, StateDir: dir})
	a, b := nodeConfig(s, token), nodeConfig(s, token)
	a.Listen, a.Log = testhost.FreePort(t), log
	nodes, errs := joinAll(t, []nexar.Config{a, b})
	mustBeNil(t, errs)
	want := nodes[0].ID().String()

	member := newTransport(t, newIdentity(t, ours))
	if _, err := member.Dial(t.Context(), a.Listen, nodes[1].ID().String()); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("asked for another node: error %v, want %v", err, transport.ErrIdentity)
	}
	// The certificate of the dialer is valid, but the dialer is not in the world: the node closes
	// the connection, perhaps before Dial has returned.
	c, err := member.Dial(t.Context(), a.Listen, want)
	switch {
	case err == nil && c.Peer() != want:
		t.Errorf("the node proved identity %q, want %q", c.Peer(), want)
	case err == nil:
		<-c.Done()
	case !errors.Is(err, transport.ErrPeerClosed):
		t.Error(err)
	}
	waitFor(t, func() bool { return missingTexts(lines, "refused a connection") == nil })

	foreign := newTransport(t, newIdentity(t, newAuthority(t)))
	if _, err := foreign.Dial(t.Context(), a.Listen, want); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("a node of another cluster: error %v, want %v", err, transport.ErrIdentity)
	}
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 1) }))
}

// In nexar 0.1 a client that did not complete its join ended the formation for all nodes.
func TestFaultBadClientAbortsFormation(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := startLocalSeed(t, 3, nexar.SeedConfig{Token: token})
	ready := make(chan error, 1)
	go func() { ready <- s.Wait(t.Context()) }()
	for _, name := range []string{"garbage", "a false proof", "no proof", "half a message", "another protocol"} {
		runBadClients(t, s.Addr(), badClients()[name], 1)
	}
	time.Sleep(300 * time.Millisecond)
	select {
	case err := <-ready:
		t.Fatalf("formation has ended: %v", err)
	default:
	}
	cfg := nodeConfig(s, token)
	_, errs := joinAll(t, []nexar.Config{cfg, cfg, cfg})
	mustBeNil(t, append(errs, <-ready))
}

// In nexar 0.1 heartbeats arrived in the queue of the barrier, which took them for answers and
// failed after a second. Here a barrier waits for a late rank for many heartbeat intervals.
func TestFaultHeartbeatsInBarrier(t *testing.T) {
	t.Parallel()
	nodes := form(t, 3, func(cfg *nexar.Config) { cfg.HeartbeatInterval = 10 * time.Millisecond })
	const late = 1500 * time.Millisecond
	began := time.Now()
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error {
		if c.Rank() == 1 {
			time.Sleep(late)
		}
		if err := c.Barrier(t.Context()); err != nil {
			return err
		}
		if took := time.Since(began); took < late {
			return fmt.Errorf("the barrier returned after %v, before rank 1 entered it after %v", took, late)
		}
		for range 200 {
			if err := c.Barrier(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}))
}

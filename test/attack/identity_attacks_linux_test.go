package attack

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// identityAttacks are attacks with forged identities.
func identityAttacks() []attack {
	return []attack{
		{"certificates", "every port refuses certificates that are wrong, expired or not yet valid, with a TLS alert and at once", 15 * time.Second, true, attackCertificates},
		{"another's identity", "a node that claims the identity of another is not admitted and gets no link, in the request to the seed, over QUIC, TCP and shared memory", 15 * time.Second, true, attackClaims},
	}
}

// refusalLimit limits the time until a port has refused a client.
const refusalLimit = 20 * time.Second

// An identityWorld is a world with an authority of the test, so that the test can forge certificates.
type identityWorld struct {
	*world
	authority *pki.Authority
	listen    []string // addresses of the ranks
	ids       []string // identities of the ranks
	seedAddr  string
}

func newIdentityWorld(t *testing.T, rng *rand.Rand, ranks int, args arguments, vars ...string) *identityWorld {
	t.Helper()
	w := &identityWorld{world: newWorld(t, rng, vars...)}
	args.World, args.Listen, args.StateDir = ranks, "127.0.0.1:0", t.TempDir()
	w.startSeed(nil, args)
	w.seedAddr = w.addrs[0]
	var err error
	if w.authority, err = pki.OpenAuthority(args.StateDir); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		w.listen = append(w.listen, testhost.FreePort(t))
		w.startRank(nil, arguments{}, "NEXAR_LISTEN="+w.listen[rank], fmt.Sprint("NEXAR_RANK=", rank))
	}
	w.waitForSteps(1)
	for _, p := range w.ranks {
		e, _ := p.lastEvent(evJoined)
		w.ids = append(w.ids, e.Node)
	}
	return w
}

// endpoint returns a QUIC socket of the test.
func endpoint(t *testing.T) *quic.Endpoint {
	t.Helper()
	end, err := newEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	return end
}

func newEndpoint() (*quic.Endpoint, error) {
	return quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1, NoWatch: true})
}

// dialQUIC presents a certificate to a QUIC port and returns the error that ends the connection.
func dialQUIC(ctx context.Context, end *quic.Endpoint, addr string, conf *tls.Config) error {
	c, err := end.Dial(ctx, addr, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	select {
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return errAccepted
	}
}

// errAccepted reports that a port accepted a connection that it had to refuse.
var errAccepted = errors.New("the connection was accepted")

// dialTCP presents a certificate to the TCP port of a node, by the protocol of transport/tcp, and
// returns the error that ends the connection.
func dialTCP(ctx context.Context, addr string, conf *tls.Config) error {
	const control = "tnexar1c"
	sock, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer sock.Close()
	deadline, _ := ctx.Deadline()
	sock.SetDeadline(deadline)
	if _, err := io.WriteString(sock, control); err != nil {
		return err
	}
	c := tls.Client(sock, conf)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	// In TLS 1.3 the handshake of the client is complete before the server has seen its
	// certificate. The first message of a server has 5 bytes.
	if n, err := io.ReadFull(c, make([]byte, 5)); n == 0 {
		return err
	}
	return errAccepted
}

// wantRefused checks that a client was refused at once, with an error about its certificate.
func wantRefused(t *testing.T, what string, began time.Time, err error) {
	t.Helper()
	took := time.Since(began)
	switch {
	case err == nil || errors.Is(err, errAccepted):
		t.Errorf("%s: accepted", what)
	case took > refusalLimit || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("%s: refused after %v: %v, want at once", what, took, err)
	case !errors.Is(err, transport.ErrIdentity) && !strings.Contains(err.Error(), "certificate") && !strings.Contains(err.Error(), "protocol"):
		t.Errorf("%s: error %v, want one about the certificate", what, err)
	}
}

// attackCertificates presents bad certificates to every port of a world.
func attackCertificates(t *testing.T, rng *rand.Rand) {
	w := newIdentityWorld(t, rng, 3, arguments{}, transports(rng, "tcp,quic", "shm,tcp,quic"))
	end := endpoint(t)
	for name, cert := range badCertificates(t, w.authority, w.ids[0]) {
		ctx, cancel := context.WithTimeout(t.Context(), refusalLimit)
		addr := w.listen[rng.IntN(len(w.listen))]
		conf := client(cert, pki.NodeProtocol)
		began := time.Now()
		wantRefused(t, name+", QUIC port of a node", began, dialQUIC(ctx, end, addr, conf))
		began = time.Now()
		wantRefused(t, name+", TCP port of a node", began, dialTCP(ctx, addr, conf))
		began = time.Now()
		wantRefused(t, name+", port of the seed", began, dialQUIC(ctx, end, w.seedAddr, conf))
		cancel()
	}
	w.waitForSteps(5)
	w.finish()
}

// attackClaims has a node with the token claim the identity of another.
func attackClaims(t *testing.T, rng *rand.Rand) {
	w := newIdentityWorld(t, rng, 3, arguments{Elastic: true}, "NEXAR_TRANSPORTS=shm,tcp,quic")
	end := endpoint(t)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	w.claimAtSeed(ctx, end)
	victim := rng.IntN(len(w.ids))
	to := (victim + 1) % len(w.ids)
	w.claimByHello(ctx, victim, to)
	w.claimPipe(w.listen[to])
	w.connectOutsideWorld(ctx, to)
	w.waitForSteps(5)
	w.finish()
}

// claimAtSeed asks for admission with the signing request of another node, which is bound to the
// connection of that node.
func (w *identityWorld) claimAtSeed(ctx context.Context, end *quic.Endpoint) {
	w.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	first, err := w.connect(ctx, end)
	if err != nil {
		w.t.Fatal(err)
	}
	defer first.conn.Close()
	csr, err := key.RequestOver(first.conn.ConnectionState())
	if err != nil {
		w.t.Fatal(err)
	}
	request := wire.JoinRequest{CSR: csr, Rank: wire.AnyRank, Port: 1, Name: "first", Host: "there"}
	if m, err := first.ask(request); err != nil {
		w.t.Fatalf("the first to ask with a key: %v", err)
	} else if _, ok := m.(wire.JoinAdmitted); !ok {
		w.t.Fatalf("the first to ask with a key got %#v, want to be admitted", m)
	}
	for name, again := range map[string]bool{"as a new node": false, "as a rejoining node": true} {
		second, err := w.connect(ctx, end)
		if err != nil {
			w.t.Fatal(err)
		}
		request.Rejoin, request.Name = again, "thief"
		m, err := second.ask(request)
		r, ok := m.(wire.JoinRefusal)
		want := map[bool]string{false: hex.EncodeToString(identityOf(key)), true: "another connection"}[again]
		if err != nil || !ok || !strings.Contains(r.Text, want) {
			w.t.Errorf("%s, with the request of another node: %#v, %v, want a refusal that says %q", name, m, err, want)
		}
		second.conn.Close()
	}
}

func identityOf(key *pki.Key) []byte {
	id := key.ID()
	return id[:]
}

// A seedClient is a connection to the seed that has proved the token of the cluster.
type seedClient struct {
	conn *quic.Conn
	in   transport.Receiver
	out  transport.Sender
}

// connect connects to the seed and proves the token.
func (w *identityWorld) connect(ctx context.Context, end *quic.Endpoint) (*seedClient, error) {
	token, err := pki.ParseToken(w.token)
	if err != nil {
		return nil, err
	}
	c := new(seedClient)
	if c.conn, err = end.Dial(ctx, w.seedAddr, pki.Joining{}.Client("")); err != nil {
		return nil, err
	}
	hello := wire.JoinHello{Version: wire.Version}
	if hello.Proof, err = token.Proof(pki.NodeRole, c.conn.ConnectionState()); err != nil {
		return nil, err
	}
	if c.out, err = c.conn.OpenPipe(ctx); err != nil {
		return nil, err
	}
	if err = c.send(hello); err != nil {
		return nil, err
	}
	if c.in, err = c.conn.AcceptPipe(ctx); err != nil {
		return nil, err
	}
	if m, err := c.receive(); err != nil {
		return nil, err
	} else if _, ok := m.(wire.JoinAnswer); !ok {
		return nil, fmt.Errorf("the seed answers with %#v, want a JoinAnswer", m)
	}
	return c, nil
}

func (c *seedClient) send(m wire.JoinMessage) error {
	b, err := wire.AppendJoin(nil, m)
	if err == nil {
		_, err = c.out.Write(b)
	}
	return err
}

func (c *seedClient) receive() (wire.JoinMessage, error) {
	c.in.SetReadDeadline(time.Now().Add(refusalLimit))
	return wire.ReadJoin(c.in, wire.JoinBytesMax)
}

// ask sends a message and returns the next message of the seed.
func (c *seedClient) ask(m wire.JoinMessage) (wire.JoinMessage, error) {
	if err := c.send(m); err != nil {
		return nil, err
	}
	return c.receive()
}

// claimByHello claims another identity in the hello of shared memory, where the kernel proves only
// the user.
func (w *identityWorld) claimByHello(ctx context.Context, victim, to int) {
	w.t.Helper()
	// The name of the victim is in use in the namespace of this host.
	if _, err := shm.New(shm.Config{Cluster: w.authority.Cluster(), Node: w.ids[victim]}); err == nil || !strings.Contains(err.Error(), "is taken") {
		w.t.Errorf("listening as another node: %v, want an error that the name is taken", err)
	}
	for name, cfg := range map[string]shm.Config{
		"another cluster": {Cluster: "forged", Node: "nobody"},
		"no such node":    {Cluster: w.authority.Cluster(), Node: "nobody"},
	} {
		node, err := shm.New(cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		c, err := node.Dial(ctx, w.ids[to], w.ids[to])
		if err == nil {
			// The transport accepts the connection; the mesh must close it.
			err = waitEnded(ctx, c)
		}
		if err == nil {
			w.t.Errorf("shared memory, %s: the connection stays open", name)
		}
		node.Close()
	}
}

// waitEnded waits until a connection has ended and returns its error, or nil after refusalLimit.
func waitEnded(ctx context.Context, c transport.Conn) error {
	defer c.Close()
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(refusalLimit):
	case <-ctx.Done():
	}
	return nil
}

// claimPipe claims a pipe of another connection at the TCP port of a node.
func (w *identityWorld) claimPipe(addr string) {
	w.t.Helper()
	for _, magic := range []string{"tnexar1p", "tnexar1c", "tnexar1t", "tnexar1m", "nexarw1\n"} {
		sock, err := net.Dial("tcp", addr)
		if err != nil {
			w.t.Fatal(err)
		}
		claim := make([]byte, 36)
		for i := range claim {
			claim[i] = byte(w.rng.Int())
		}
		sock.SetDeadline(time.Now().Add(refusalLimit))
		sock.Write(append([]byte(magic), claim...))
		b, err := io.ReadAll(sock)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.t.Errorf("%q and a false claim: the socket stays open, after %d bytes", magic, len(b))
		}
		sock.Close()
	}
}

// connectOutsideWorld connects with a certificate of the cluster that belongs to no node of the world.
func (w *identityWorld) connectOutsideWorld(ctx context.Context, to int) {
	w.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	csr, err := key.Request()
	if err != nil {
		w.t.Fatal(err)
	}
	cert, _, err := w.authority.Sign(csr, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := pki.NewIdentity(key, cert, w.authority.Certificate())
	if err != nil {
		w.t.Fatal(err)
	}
	if err := dialQUIC(ctx, endpoint(w.t), w.listen[to], id.Client(w.ids[to])); err == nil || errors.Is(err, errAccepted) {
		w.t.Errorf("a node outside the world, over QUIC: %v, want the connection closed", err)
	}
	t, err := tcp.Listen(tcp.Config{Addr: "127.0.0.1:0"}, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer t.Close()
	c, err := t.Dial(ctx, w.listen[to], w.ids[to])
	if err == nil {
		err = waitEnded(ctx, c)
	}
	if err == nil {
		w.t.Error("a node outside the world, over TCP: the connection stays open")
	}
}

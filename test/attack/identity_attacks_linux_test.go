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
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// identityAttacks are attacks with forged identities.
func identityAttacks() []attack {
	return []attack{
		{"certificates", "every port refuses certificates that are wrong, expired or not yet valid, in a word of TLS, and at once", 15 * time.Second, true, attackCertificates},
		{"another's identity", "a node that claims the identity of another gets no place and no link, in the request to the seed, over QUIC, TCP and shared memory", 15 * time.Second, true, attackClaims},
	}
}

// refusalBound is the longest that a port may take to refuse somebody.
const refusalBound = 20 * time.Second

// In an identified world the test holds the authority, so that it can forge
// certificates.
type identified struct {
	*world
	authority *pki.Authority
	listen    []string // where ranks listen
	ids       []string // their identities
	seedAddr  string
}

func newIdentified(t *testing.T, rng *rand.Rand, ranks int, args arguments, vars ...string) *identified {
	t.Helper()
	w := &identified{world: newWorld(t, rng, vars...)}
	args.World, args.Listen, args.StateDir = ranks, "127.0.0.1:0", t.TempDir()
	w.seed(nil, args)
	w.seedAddr = w.addrs[0]
	var err error
	if w.authority, err = pki.OpenAuthority(args.StateDir); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		w.listen = append(w.listen, freePort(t))
		w.rank(nil, arguments{}, "NEXAR_LISTEN="+w.listen[rank], fmt.Sprint("NEXAR_RANK=", rank))
	}
	w.progress(1)
	for _, p := range w.ranks {
		e, _ := p.find(evJoined)
		w.ids = append(w.ids, e.Node)
	}
	return w
}

// freePort returns an address on loopback with a port that is free for UDP and TCP.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		c, err := net.ListenPacket("udp", addr)
		l.Close()
		if err == nil {
			c.Close()
			return addr
		}
	}
	t.Fatal("no port is free for both UDP and TCP")
	return ""
}

// endpoint is a QUIC socket of the test.
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

// overQUIC shows a certificate to a QUIC port and returns how that ends.
func overQUIC(ctx context.Context, end *quic.Endpoint, addr string, conf *tls.Config) error {
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

// errAccepted says that a port accepted a connection that it had to refuse.
var errAccepted = errors.New("it was accepted")

// overTCP shows a certificate to the TCP port of a node, as the first bytes of the
// protocol of transport/tcp say, and returns how that ends.
func overTCP(ctx context.Context, addr string, conf *tls.Config) error {
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
	// In TLS 1.3 the client has done its part before the server has seen its
	// certificate. The first message of a server has 5 bytes.
	if n, err := io.ReadFull(c, make([]byte, 5)); n == 0 {
		return err
	}
	return errAccepted
}

// wantRefused checks the error of a refused client: it comes at once and names the
// certificate as the cause.
func wantRefused(t *testing.T, what string, began time.Time, err error) {
	t.Helper()
	took := time.Since(began)
	switch {
	case err == nil || errors.Is(err, errAccepted):
		t.Errorf("%s: accepted", what)
	case took > refusalBound || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		t.Errorf("%s: refused after %v: %v, want at once", what, took, err)
	case !errors.Is(err, transport.ErrIdentity) && !strings.Contains(err.Error(), "certificate") && !strings.Contains(err.Error(), "protocol"):
		t.Errorf("%s: the error says nothing of certificates: %v", what, err)
	}
}

// attackCertificates shows bad certificates to every port of a world.
func attackCertificates(t *testing.T, rng *rand.Rand) {
	w := newIdentified(t, rng, 3, arguments{}, transports(rng, "tcp,quic", "shm,tcp,quic"))
	end := endpoint(t)
	for name, cert := range badCertificates(t, w.authority, w.ids[0]) {
		ctx, cancel := context.WithTimeout(t.Context(), refusalBound)
		addr := w.listen[rng.IntN(len(w.listen))]
		conf := client(cert, pki.NodeProtocol)
		began := time.Now()
		wantRefused(t, name+", QUIC port of a node", began, overQUIC(ctx, end, addr, conf))
		began = time.Now()
		wantRefused(t, name+", TCP port of a node", began, overTCP(ctx, addr, conf))
		began = time.Now()
		wantRefused(t, name+", port of the seed", began, overQUIC(ctx, end, w.seedAddr, conf))
		cancel()
	}
	w.progress(5)
	w.finish()
}

// attackClaims has a node with the token claim the identity of another.
func attackClaims(t *testing.T, rng *rand.Rand) {
	w := newIdentified(t, rng, 3, arguments{Elastic: true}, "NEXAR_TRANSPORTS=shm,tcp,quic")
	end := endpoint(t)
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	w.claimAtSeed(ctx, end)
	victim := rng.IntN(len(w.ids))
	to := (victim + 1) % len(w.ids)
	w.claimByHello(ctx, victim, to)
	w.claimPipe(w.listen[to])
	w.outsider(ctx, to)
	w.progress(5)
	w.finish()
}

// claimAtSeed asks for a place with the signing request of another node, which only
// that can use.
func (w *identified) claimAtSeed(ctx context.Context, end *quic.Endpoint) {
	w.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	first, err := w.knock(ctx, end)
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
	for name, again := range map[string]bool{"as a new node": false, "as a node that is back": true} {
		second, err := w.knock(ctx, end)
		if err != nil {
			w.t.Fatal(err)
		}
		request.Rejoin, request.Name = again, "thief"
		m, err := second.ask(request)
		r, ok := m.(wire.JoinRefusal)
		want := map[bool]string{false: hex.EncodeToString(identityOf(key)), true: "another conn"}[again]
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

// A seedClient is a connection to the seed that holds the token of the cluster.
type seedClient struct {
	conn *quic.Conn
	in   transport.Receiver
	out  transport.Sender
}

// knock connects to the seed and proves the token.
func (w *identified) knock(ctx context.Context, end *quic.Endpoint) (*seedClient, error) {
	token, err := pki.ParseToken(w.token)
	if err != nil {
		return nil, err
	}
	v := new(seedClient)
	if v.conn, err = end.Dial(ctx, w.seedAddr, pki.Joining{}.Client("")); err != nil {
		return nil, err
	}
	hello := wire.JoinHello{Version: wire.Version}
	if hello.Proof, err = token.Proof(pki.NodeRole, v.conn.ConnectionState()); err != nil {
		return nil, err
	}
	if v.out, err = v.conn.OpenPipe(ctx); err != nil {
		return nil, err
	}
	if err = v.say(hello); err != nil {
		return nil, err
	}
	if v.in, err = v.conn.AcceptPipe(ctx); err != nil {
		return nil, err
	}
	if m, err := v.hear(); err != nil {
		return nil, err
	} else if _, ok := m.(wire.JoinAnswer); !ok {
		return nil, fmt.Errorf("the seed answers with %#v, want a JoinAnswer", m)
	}
	return v, nil
}

func (v *seedClient) say(m wire.JoinMessage) error {
	b, err := wire.AppendJoin(nil, m)
	if err == nil {
		_, err = v.out.Write(b)
	}
	return err
}

func (v *seedClient) hear() (wire.JoinMessage, error) {
	v.in.SetReadDeadline(time.Now().Add(refusalBound))
	return wire.ReadJoin(v.in, wire.JoinBytesMax)
}

// ask sends a message and returns the answer to it, of a few that may come.
func (v *seedClient) ask(m wire.JoinMessage) (wire.JoinMessage, error) {
	if err := v.say(m); err != nil {
		return nil, err
	}
	return v.hear()
}

// claimByHello claims to be a node in the hello of shared memory, where the kernel
// proves the user and nothing else.
func (w *identified) claimByHello(ctx context.Context, victim, to int) {
	w.t.Helper()
	// The name of the victim is taken in the namespace of this host.
	if _, err := shm.New(shm.Config{Cluster: w.authority.Cluster(), Node: w.ids[victim]}); err == nil || !strings.Contains(err.Error(), "is taken") {
		w.t.Errorf("listening as another node: %v, want an error that says who has the name", err)
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
			// The node below has accepted; the mesh above it must hang up.
			err = ended(ctx, c)
		}
		if err == nil {
			w.t.Errorf("shared memory, %s: the connection stays", name)
		}
		node.Close()
	}
}

// ended waits until a connection has ended, and is nil if it does not in time.
func ended(ctx context.Context, c transport.Conn) error {
	defer c.Close()
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(refusalBound):
	case <-ctx.Done():
	}
	return nil
}

// claimPipe claims a pipe of a connection of others at the TCP port of a node.
func (w *identified) claimPipe(addr string) {
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
		sock.SetDeadline(time.Now().Add(refusalBound))
		sock.Write(append([]byte(magic), claim...))
		b, err := io.ReadAll(sock)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.t.Errorf("%q and a false claim: the socket stays open, after %d bytes", magic, len(b))
		}
		sock.Close()
	}
}

// outsider has a certificate of the cluster, and no place in the world.
func (w *identified) outsider(ctx context.Context, to int) {
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
	if err := overQUIC(ctx, endpoint(w.t), w.listen[to], id.Client(w.ids[to])); err == nil || errors.Is(err, errAccepted) {
		w.t.Errorf("a node outside the world, over QUIC: %v, want an end of the connection", err)
	}
	t, err := tcp.Listen(tcp.Config{Addr: "127.0.0.1:0"}, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer t.Close()
	c, err := t.Dial(ctx, w.listen[to], w.ids[to])
	if err == nil {
		err = ended(ctx, c)
	}
	if err == nil {
		w.t.Error("a node outside the world, over TCP: the connection stays")
	}
}

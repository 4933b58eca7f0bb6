package tcp

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// resumes reports whether both ends of a pipe resumed the session of the control socket.
func resumes(t *testing.T, s *sender, r *receiver) bool {
	t.Helper()
	a, b := s.ps.tls.ConnectionState().DidResume, r.ps.tls.ConnectionState().DidResume
	if a != b {
		t.Errorf("the sender resumed a session: %t, the receiver: %t", a, b)
	}
	return a
}

// TestResume checks that the sockets of pipes resume the session of the control socket,
// with the identity of the peer, and that each has keys of its own.
func TestResume(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	secrets := make(map[string]bool)
	check := func(s *sender, r *receiver) {
		t.Helper()
		if !resumes(t, s, r) {
			t.Error("the socket of a pipe does not resume the session")
		}
		state := s.ps.tls.ConnectionState()
		secret, err := state.ExportKeyingMaterial("test", nil, 32)
		if err != nil || secrets[string(secret)] {
			t.Errorf("two sockets have the same keys, or error %v", err)
		}
		secrets[string(secret)] = true
	}
	for range 3 {
		s, r := pipeBetween(t, dialed, accepted)
		check(s, r)
		if got := r.ps.tls.ConnectionState().PeerCertificates[0].Subject.CommonName; got != "n0" {
			t.Errorf("the peer of the socket is %q", got)
		}
		s, r = pipeBetween(t, accepted, dialed)
		check(s, r)
	}
	s := openPipe(t, dialed.OpenPaired, 1)
	check(s, acceptPipe(t, accepted, 1))
	for _, c := range []*conn{dialed, accepted} {
		if c.tls.ConnectionState().DidResume {
			t.Error("a control socket has resumed a session")
		}
	}
	again, _ := connect(t, nodes[0], nodes[1])
	if again.tls.ConnectionState().DidResume {
		t.Error("a second conn has resumed the session of the first")
	}
}

// TestNoResume checks that pipes open without resumption if either side lacks the session,
// as builds that do not resume do.
func TestNoResume(t *testing.T) {
	for name, change := range map[string]func(dialed, accepted *conn){
		"the dialer has no ticket":    func(dialed, _ *conn) { dialed.dialedSession = nil },
		"the peer has no session":     func(_, accepted *conn) { accepted.acceptedSession = nil },
		"the peer has another ticket": func(dialed, _ *conn) { dialed.dialedSession = withTicket(t, dialed, make([]byte, 16)) },
		"a ticket of another length":  func(dialed, _ *conn) { dialed.dialedSession = withTicket(t, dialed, []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{})
			dialed, accepted := connect(t, nodes[0], nodes[1])
			change(dialed, accepted)
			for range 2 {
				if s, r := pipeBetween(t, dialed, accepted); resumes(t, s, r) {
					t.Error("a session was resumed")
				}
				if s, r := pipeBetween(t, accepted, dialed); resumes(t, s, r) {
					t.Error("a session was resumed")
				}
			}
		})
	}
}

// withTicket returns the session of a control socket with another ticket.
func withTicket(t *testing.T, c *conn, ticket []byte) *tls.ClientSessionState {
	t.Helper()
	_, state, err := c.dialedSession.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := state.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if state, err = tls.ParseSessionState(encoded); err != nil {
		t.Fatal(err)
	}
	session, err := tls.NewResumptionState(ticket, state)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// A watchedNode are credentials whose clock, certificate and checks a test changes.
type watchedNode struct {
	ca      *watchedCA
	key     *ecdsa.PrivateKey
	name    string
	cert    atomic.Pointer[tls.Certificate]
	resumed atomic.Int32 // calls of VerifyConnection for resumed sessions
}

// A watchedCA signs certificates by its own clock, and is valid for years.
type watchedCA struct {
	life    time.Duration // of certificates
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	pool    *x509.CertPool
	offset  atomic.Int64            // of the clock
	revoked atomic.Pointer[big.Int] // VerifyConnection refuses this serial number
	refused atomic.Pointer[big.Int] // Peer refuses this serial number
	adapt   func(conf *tls.Config)  // changes each configuration
}

func (ca *watchedCA) now() time.Time { return time.Now().Add(time.Duration(ca.offset.Load())) }

func newWatchedCA(t *testing.T) *watchedCA {
	t.Helper()
	ca := &watchedCA{life: time.Hour, key: testpeer.NewKey(t), pool: x509.NewCertPool(), adapt: func(*tls.Config) {}}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert = ca.sign(t, template, template, &ca.key.PublicKey)
	ca.pool.AddCert(ca.cert)
	return ca
}

func (ca *watchedCA) sign(t *testing.T, template, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (ca *watchedCA) node(t *testing.T, name string) *watchedNode {
	t.Helper()
	n := &watchedNode{ca: ca, key: testpeer.NewKey(t), name: name}
	n.renew(t)
	return n
}

// renew replaces the certificate by a new one.
func (n *watchedNode) renew(t *testing.T) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	leaf := n.ca.sign(t, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: n.name}, NotAfter: n.ca.now().Add(n.ca.life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, n.ca.cert, &n.key.PublicKey)
	n.cert.Store(&tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: n.key, Leaf: leaf})
}

func (n *watchedNode) config() *tls.Config {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       n.ca.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return n.cert.Load(), nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return n.cert.Load(), nil
		},
		InsecureSkipVerify: true, // VerifyConnection does
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.DidResume {
				n.resumed.Add(1)
			}
			leaf := state.PeerCertificates[0]
			if revoked := n.ca.revoked.Load(); revoked != nil && revoked.Cmp(leaf.SerialNumber) == 0 {
				return fmt.Errorf("%w: the certificate is revoked", transport.ErrIdentity)
			}
			_, err := leaf.Verify(x509.VerifyOptions{Roots: n.ca.pool, CurrentTime: n.ca.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			return err
		},
	}
	n.ca.adapt(conf)
	return conf
}

func (n *watchedNode) Server() *tls.Config       { return n.config() }
func (n *watchedNode) Client(string) *tls.Config { return n.config() }

func (n *watchedNode) Peer(state tls.ConnectionState) (string, error) {
	leaf := state.PeerCertificates[0]
	if refused := n.ca.refused.Load(); refused != nil && refused.Cmp(leaf.SerialNumber) == 0 {
		return "", errors.New("the identity is refused")
	}
	return leaf.Subject.CommonName, nil
}

// listen starts a transport with the credentials of n.
func (n *watchedNode) listen(t *testing.T) *testNode {
	t.Helper()
	tr, err := Listen(Config{Addr: "127.0.0.1:0", HandshakeTimeout: time.Minute}, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return &testNode{tr, n.name}
}

// TestCertificateChanges checks that a certificate is not used for further pipes if it has
// expired, or VerifyConnection or Peer refuses it, after the handshake of the control socket,
// and that its successor is.
func TestCertificateChanges(t *testing.T) {
	for _, server := range []bool{true, false} {
		for name, end := range map[string]func(n *watchedNode){
			"expired": func(n *watchedNode) { n.ca.offset.Store(int64(2 * time.Hour)) },
			"revoked": func(n *watchedNode) { n.ca.revoked.Store(n.cert.Load().Leaf.SerialNumber) },
			"refused": func(n *watchedNode) { n.ca.refused.Store(n.cert.Load().Leaf.SerialNumber) },
		} {
			who := "client"
			if server {
				who = "server"
			}
			t.Run(who+" "+name, func(t *testing.T) {
				ca := newWatchedCA(t)
				client, changed := ca.node(t, "client"), ca.node(t, "server")
				dialed, accepted := connect(t, client.listen(t), changed.listen(t))
				if !server {
					client, changed = changed, client
				}
				if s, r := pipeBetween(t, dialed, accepted); !resumes(t, s, r) {
					t.Error("the session is not resumed")
				}
				if client.resumed.Load() == 0 || changed.resumed.Load() == 0 {
					t.Error("VerifyConnection was not called for a resumed session")
				}
				client.resumed.Store(0)
				end(changed)
				if name == "expired" {
					client.renew(t)
				}
				if _, err := dialed.OpenPipe(t.Context()); err == nil {
					t.Error("a pipe was opened with an invalid certificate")
				} else if server && !errors.Is(err, transport.ErrIdentity) {
					t.Errorf("OpenPipe: %v, want ErrIdentity", err)
				} else {
					t.Log(err)
				}
				changed.renew(t)
				for range 2 {
					if s, r := pipeBetween(t, dialed, accepted); resumes(t, s, r) {
						t.Error("a session with an invalid certificate was resumed")
					}
				}
				if client.resumed.Load() > 0 {
					t.Error("the invalid certificate was accepted for a resumed session")
				}
				if err := errors.Join(dialed.Err(), accepted.Err()); err != nil {
					t.Errorf("the conn has ended: %v", err)
				}
			})
		}
	}
}

// TestVerifyPeerCertificate checks that sockets do not resume sessions if crypto/tls would
// then not call VerifyPeerCertificate, on either side.
func TestVerifyPeerCertificate(t *testing.T) {
	for name, adapt := range map[string]func(conf *tls.Config, verify func() error){
		"on both sides": func(conf *tls.Config, verify func() error) {
			conf.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return verify() }
		},
		"by GetConfigForClient": func(conf *tls.Config, verify func() error) {
			chosen := conf.Clone()
			chosen.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return verify() }
			conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			ca := newWatchedCA(t)
			ca.adapt = func(conf *tls.Config) { adapt(conf, func() error { calls.Add(1); return nil }) }
			dialed, accepted := connect(t, ca.node(t, "client").listen(t), ca.node(t, "server").listen(t))
			calls.Store(0)
			if s, r := pipeBetween(t, dialed, accepted); resumes(t, s, r) {
				t.Error("a session was resumed")
			}
			if calls.Load() == 0 {
				t.Error("VerifyPeerCertificate was not called")
			}
		})
	}
}

// TestOtherProtocol checks that a session is not resumed for another protocol (ALPN) than that
// of the control socket.
func TestOtherProtocol(t *testing.T) {
	ca := newWatchedCA(t)
	ca.adapt = func(conf *tls.Config) { conf.NextProtos = []string{"a", "b"} }
	dialed, accepted := connect(t, ca.node(t, "client").listen(t), ca.node(t, "server").listen(t))
	if s, r := pipeBetween(t, dialed, accepted); !resumes(t, s, r) {
		t.Error("the session is not resumed")
	}
	ca.adapt = func(conf *tls.Config) { conf.NextProtos = []string{"b"} }
	s, r := pipeBetween(t, dialed, accepted)
	if got := r.ps.tls.ConnectionState().NegotiatedProtocol; got != "b" {
		t.Fatalf("the protocol is %q", got)
	}
	if resumes(t, s, r) {
		t.Error("a session was resumed for another protocol")
	}
}

// TestOldSession checks that a session is resumed for a week at most, and that a ticket does
// not replace the proofs if crypto/tls does not accept it.
func TestOldSession(t *testing.T) {
	ca := newWatchedCA(t)
	ca.life = 30 * 24 * time.Hour
	client, server := ca.node(t, "client"), ca.node(t, "server").listen(t)
	dialed, accepted := connect(t, client.listen(t), server)
	ca.offset.Store(int64(8 * 24 * time.Hour))
	if s, r := pipeBetween(t, dialed, accepted); resumes(t, s, r) {
		t.Error("a session of eight days ago was resumed")
	}

	ps := newPipeSocket(newFlight(dialRaw(t, server, magicTLS), ""))
	conf := configure(client.Client("server"), func(conf *tls.Config) {
		conf.ClientSessionCache = sessionOffer{dialed.dialedSession}
		conf.Time = time.Now // so that the ticket is sent
	})
	if err := ps.startTLS(tls.Client, conf); err != nil {
		t.Fatal(err)
	}
	if ps.tls.ConnectionState().DidResume {
		t.Fatal("the server has resumed a session of eight days ago")
	}
	if _, err := ps.tls.Write(claim{conn: dialed.keys.id, pipe: 2}.append(nil)); err != nil {
		t.Fatal(err)
	}
	if n, err := ps.tls.Read(make([]byte, 2*challengeBytes)); n != challengeBytes || err != nil {
		t.Errorf("the server answers the claim with %d bytes, %v, want a challenge of %d bytes", n, err, challengeBytes)
	}
}

// TestTicketIntruder checks that the session of a conn opens pipes for that conn only, and
// only with its secret.
func TestTicketIntruder(t *testing.T) {
	ca := newTestCA(t)
	server := newTestNode(t, Config{}, ca.node(t, "server"))
	client := newTestNode(t, Config{}, ca.node(t, "client"))
	somebody := newTestNode(t, Config{}, ca.node(t, "somebody"))
	dialed, accepted := connect(t, client, server)
	same, _ := connect(t, client, server)
	other, _ := connect(t, somebody, server)
	ended, endedToo := connect(t, client, server)
	ended.Close()
	awaitEnd(t, endedToo, transport.ErrPeerClosed)

	// try makes the handshake with a session, claims the conn, and reports whether the
	// server accepts a pipe.
	try := func(node *testNode, session *tls.ClientSessionState, of *conn) (resumed, opened bool) {
		t.Helper()
		ps := newPipeSocket(newFlight(dialRaw(t, server, magicTLS), ""))
		err := ps.startTLS(tls.Client, configure(node.creds.Client("server"), func(conf *tls.Config) {
			conf.ClientSessionCache = sessionOffer{session}
		}))
		if err != nil {
			return false, false
		}
		resumed = ps.tls.ConnectionState().DidResume
		said := claim{conn: of.keys.id, pipe: 2}
		if _, err := ps.tls.Write(said.append(nil)); err != nil {
			return resumed, false
		}
		return resumed, readYes(ps.tls) == nil
	}
	for name, test := range map[string]struct {
		node    *testNode
		session *tls.ClientSessionState
		resumed bool
	}{
		"of another conn of the peer":             {client, same.dialedSession, true},
		"of a conn of another peer":               {somebody, other.dialedSession, true},
		"of a conn that has ended":                {client, ended.dialedSession, false},
		"secret of another conn of the peer":      {client, withTicket(t, same, dialed.keys.id[:]), false},
		"secret of a conn of another peer":        {somebody, withTicket(t, other, dialed.keys.id[:]), false},
		"certificate of another peer, no session": {somebody, nil, false},
	} {
		resumed, opened := try(test.node, test.session, dialed)
		if opened {
			t.Errorf("session %s: the server accepts the pipe", name)
		}
		if resumed != test.resumed {
			t.Errorf("session %s: resumed %t, want %t", name, resumed, test.resumed)
		}
	}
	if resumed, opened := try(client, dialed.dialedSession, dialed); !resumed || !opened {
		t.Errorf("the attempt that the others differ from: resumed %t, accepted %t", resumed, opened)
	}
	if dialed.Err() != nil || accepted.Err() != nil {
		t.Errorf("the conn has ended: %v, %v", dialed.Err(), accepted.Err())
	}
}

// TestRedirectedPipe checks that a pipe is not opened to another transport than that of
// the conn: the dialer itself, another node, or the peer after a restart.
func TestRedirectedPipe(t *testing.T) {
	ca := newTestCA(t)
	creds := ca.node(t, "server")
	server := newTestNode(t, Config{}, creds)
	client := newTestNode(t, Config{}, ca.node(t, "client"))
	for name, to := range map[string]*testNode{
		"the dialer":          client,
		"another node":        newTestNode(t, Config{}, ca.node(t, "somebody")),
		"another transport":   newTestNode(t, Config{}, creds),
		"the right transport": server,
	} {
		dialed, _ := connect(t, client, server)
		dialed.remote = to.Addr()
		_, err := dialed.OpenPipe(t.Context())
		if (err == nil) != (to == server) {
			t.Errorf("a pipe to %s: error %v", name, err)
		}
		if to.name != "server" && !errors.Is(err, transport.ErrIdentity) {
			t.Errorf("a pipe to %s: error %v, want ErrIdentity", name, err)
		}
	}
}

// acceptOne accepts a socket at a new port and passes it to serve. The end of the test
// closes it.
func acceptOne(t *testing.T, serve func(sock net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	var serving sync.WaitGroup
	serving.Go(func() {
		defer close(accepted)
		sock, err := l.Accept()
		if err != nil {
			return
		}
		accepted <- sock
		sock.SetDeadline(time.Now().Add(soon))
		serve(sock)
		sock.Close()
	})
	t.Cleanup(func() {
		l.Close()
		if sock, ok := <-accepted; ok {
			sock.Close()
		}
		serving.Wait()
	})
	return l.Addr().String()
}

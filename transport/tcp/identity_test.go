package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestForeignCluster checks that neither side of a control socket accepts a certificate
// of another cluster, and that Accept does not return the conn.
func TestForeignCluster(t *testing.T) {
	ours, theirs := newTestCA(t), newTestCA(t)
	server := newTestNode(t, Config{}, ours.node(t, "server"))
	foreign := newTestNode(t, Config{}, theirs.node(t, "server"))
	client := newTestNode(t, Config{}, ours.node(t, "client"))

	// The error of the server reaches a client that accepts any server.
	lax := newTestNode(t, Config{}, theirs.node(t, "client"))
	lax.creds = laxCreds{theirs.node(t, "client")}
	for name, dial := range map[string]func() (transport.Conn, error){
		"foreign server":  func() (transport.Conn, error) { return client.Dial(t.Context(), foreign.Addr(), "server") },
		"any server":      func() (transport.Conn, error) { return client.Dial(t.Context(), foreign.Addr(), "") },
		"foreign client":  func() (transport.Conn, error) { return foreign.Dial(t.Context(), server.Addr(), "server") },
		"careless client": func() (transport.Conn, error) { return lax.Dial(t.Context(), server.Addr(), "server") },
		"another node":    func() (transport.Conn, error) { return client.Dial(t.Context(), server.Addr(), "client") },
	} {
		if c, err := dial(); !errors.Is(err, transport.ErrIdentity) {
			t.Errorf("%s: Dial = %v, %v, want ErrIdentity", name, c, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	connect(t, client, server) // the only conn that Accept returns
}

// laxCreds accept any server.
type laxCreds struct{ *testCreds }

func (c laxCreds) Client(string) *tls.Config {
	conf := c.base()
	conf.InsecureSkipVerify = true
	return conf
}

// TestNoIdentity checks that a client without a certificate is refused.
func TestNoIdentity(t *testing.T) {
	ca := newTestCA(t)
	server := newTestNode(t, Config{}, ca.node(t, "server"))
	sock := dialRaw(t, server, magicControl)
	conf := laxCreds{ca.node(t, "client")}.Client("")
	conf.Certificates, conf.NextProtos = nil, []string{joinALPN}
	c := tls.Client(sock, conf)
	if n, err := c.Read(make([]byte, 1)); err == nil || n != 0 {
		t.Errorf("the server greets a client without an identity: %d bytes, %v", n, err)
	}
	wantNothingAccepted(t, server)
}

func wantNothingAccepted(t *testing.T, n *testNode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if c, err := n.Accept(ctx); err == nil {
		t.Errorf("accepted %q", c.Peer())
	}
}

func dialRaw(t *testing.T, n *testNode, text string) *net.TCPConn {
	t.Helper()
	sock, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	sock.SetDeadline(time.Now().Add(soon))
	if _, err := io.WriteString(sock, text); err != nil {
		t.Fatal(err)
	}
	return sock.(*net.TCPConn)
}

// An intruder is a client that tries to add a pipe to a conn.
type intruder struct {
	creds Credentials // nil: no TLS
	keys  keys
	pipe  uint32
	magic string
}

// try reports whether the server accepted the pipe.
func (i intruder) try(t *testing.T, server *testNode) bool {
	t.Helper()
	ps := newPipeSocket(newFlight(dialRaw(t, server, i.magic), ""))
	if i.creds != nil {
		if err := ps.startTLS(tls.Client, i.creds.Client("server")); err != nil {
			t.Fatal(err)
		}
	}
	p, err := ps.prover(i.keys.proof, claim{conn: i.keys.id, pipe: i.pipe})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ps.netConn().Write(p.claim.append(nil)); err != nil {
		return false
	}
	got, err := readChallenge(ps.netConn())
	if err != nil {
		return false
	}
	p.nonce = got.nonce
	mine := p.mac(roleDial)
	if _, err := ps.netConn().Write(mine[:]); err != nil {
		return false
	}
	return readYes(ps.netConn()) == nil
}

// TestIntruder checks that the socket of a pipe must prove the identity of the peer, with
// TLS, and always the key of the claimed conn.
func TestIntruder(t *testing.T) {
	for name, cfg := range variants() {
		t.Run(name, func(t *testing.T) {
			ca := newTestCA(t)
			server := newTestNode(t, cfg, ca.node(t, "server"))
			client := newTestNode(t, cfg, ca.node(t, "client"))
			dialed, accepted := connect(t, client, server)
			other, _ := connect(t, client, server)
			pipeBetween(t, dialed, accepted) // pipe 0

			honest := intruder{keys: dialed.keys, pipe: 2, magic: magicPlain}
			if !cfg.Plain {
				honest.creds, honest.magic = client.creds, magicTLS
			}
			attempts := map[string]func(i *intruder){
				"no key":           func(i *intruder) { i.keys.proof = [32]byte{} },
				"key of another":   func(i *intruder) { i.keys.proof = other.keys.proof },
				"id of another":    func(i *intruder) { i.keys.id = other.keys.id },
				"unknown id":       func(i *intruder) { i.keys.id[0]++ },
				"number in use":    func(i *intruder) { i.pipe = 0 },
				"number not asked": func(i *intruder) { i.pipe = 3 },
			}
			if !cfg.Plain {
				attempts["another node"] = func(i *intruder) { i.creds = ca.node(t, "somebody") }
				attempts["another cluster"] = func(i *intruder) { i.creds = laxCreds{newTestCA(t).node(t, "client")} }
				attempts["in the clear"] = func(i *intruder) { i.creds, i.magic = nil, magicPlain }
			}
			for name, change := range attempts {
				i := honest
				change(&i)
				if i.try(t, server) {
					t.Errorf("%s: the server accepts the pipe", name)
				}
			}
			if !honest.try(t, server) {
				t.Error("the server refuses the attempt that the others differ from")
			}
			if dialed.Err() != nil || accepted.Err() != nil {
				t.Errorf("the conn has ended: %v, %v", dialed.Err(), accepted.Err())
			}
		})
	}
}

// TestImpostor checks that the dialer of a pipe detects a process that has the
// certificate of the peer but not the key of the conn.
func TestImpostor(t *testing.T) {
	ca := newTestCA(t)
	creds := ca.node(t, "server")
	server := newTestNode(t, Config{}, creds)
	client := newTestNode(t, Config{}, ca.node(t, "client"))
	dialed, _ := connect(t, client, server)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- impersonate(l, creds) }()
	dialed.remote = l.Addr().String()
	if _, err := dialed.OpenPipe(t.Context()); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("OpenPipe: %v, want ErrIdentity", err)
	}
	if err := <-served; err != io.EOF {
		t.Errorf("the impostor got more than a claim: %v", err)
	}
}

// impersonate answers a claim without the key, and returns the error of the next read.
func impersonate(l net.Listener, creds *testCreds) error {
	sock, err := l.Accept()
	if err != nil {
		return err
	}
	defer sock.Close()
	if _, err := io.ReadFull(sock, make([]byte, magicBytes)); err != nil {
		return err
	}
	c := tls.Server(sock, configure(creds.Server(), nil))
	if _, err := readClaim(c); err != nil {
		return err
	}
	if _, err := c.Write(challenge{}.append(nil)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// TestPlainMismatch checks that both sides report how they differ.
func TestPlainMismatch(t *testing.T) {
	for name, plain := range map[string]bool{"plain dials TLS": true, "TLS dials plain": false} {
		t.Run(name, func(t *testing.T) {
			ca := newTestCA(t)
			var log logBuffer
			server := newTestNode(t, Config{Plain: !plain, Log: log.logger()}, ca.node(t, "server"))
			client := newTestNode(t, Config{Plain: plain}, ca.node(t, "client"))
			_, err := client.Dial(t.Context(), server.Addr(), "server")
			for _, want := range []string{"Plain = true", "Plain = false", server.Addr()} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Dial: %v, want an error with %q", err, want)
				}
			}
			eventually(t, "the warning of the server", func() bool { return strings.Contains(log.String(), "level=WARN") })
			for _, want := range []string{"Plain = true", "Plain = false", "peer=client"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %q: %s", want, log.String())
				}
			}
			wantNothingAccepted(t, server)
		})
	}
}

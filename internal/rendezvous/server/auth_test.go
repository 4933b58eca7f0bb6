package server

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

func TestTokens(t *testing.T) {
	right, wrong := pki.NewToken(), pki.NewToken()
	for _, test := range []struct {
		name       string
		seed, node pki.Token
		text       string // empty: admitted
	}{
		{"right", right, right, ""},
		{"none", pki.Token{}, pki.Token{}, ""},
		{"wrong", right, wrong, "wrong cluster token (NEXAR_CLUSTER_TOKEN)"},
		{"missing", right, pki.Token{}, "the node has no cluster token (NEXAR_CLUSTER_TOKEN)"},
		{"unexpected", pki.Token{}, wrong, "this cluster has none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSeed(t, 1, func(c *Config) { c.Token = test.seed })
			req := s.request(0)
			req.Token = test.node
			session, err := s.join(t, req)
			if test.text == "" {
				if err != nil {
					t.Fatal(err)
				}
				s.form(t, session)
				return
			}
			says(t, err, handshake.ErrToken, "seed "+s.addr+" refused this node: ", test.text)
			if r, ok := errors.AsType[*handshake.RefusedError](err); !ok || r.Code != wire.RefusedToken || r.Seed != s.addr || !r.Unproved {
				t.Errorf("error %#v, want a *handshake.RefusedError of a seed that has not proved the token", err)
			}
			s.log.wait(t, "node refused", "addr=127.0.0.1:", test.text)
			if st := s.Status(); st.Joined != 0 {
				t.Errorf("%d joined", st.Joined)
			}
			if log := s.log.String(); strings.Contains(log, right.Reveal()) || strings.Contains(log, wrong.Reveal()) {
				t.Error("a token is in the log")
			}
		})
	}
}

// A node needs a token beyond loopback.
func TestNoTokenFarAway(t *testing.T) {
	s := newSeed(t, 1, nil)
	conn, err := dialTLS(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.(*tlsConn).remote = "10.0.0.1:7946"
	_, err = client.Join(t.Context(), conn, client.Request{})
	says(t, err, handshake.ErrToken, "10.0.0.1:7946 is not a loopback address")
}

// TestInterceptor puts a relay between a node and the seed that terminates the TLS session of
// each and forwards every byte.
func TestInterceptor(t *testing.T) {
	s := newSeed(t, 1, nil)
	joining, err := newAuthority(t).Joining() // its own certificate, as the node checks none
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", joining.Server())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		node, err := l.Accept()
		if err != nil {
			return
		}
		seed, err := tls.Dial("tcp", s.addr, pki.Joining{}.Client(""))
		if err != nil {
			t.Error(err)
			return
		}
		back := make(chan struct{})
		go func() {
			defer close(back)
			io.Copy(node, seed)
			node.Close()
		}()
		io.Copy(seed, node)
		seed.Close()
		<-back
	}()
	conn, err := dialTLS(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Join(t.Context(), conn, s.request(0))
	says(t, err, handshake.ErrToken, "wrong cluster token")
	<-relayed
	if st := s.Status(); st.Joined != 0 {
		t.Errorf("%d joined", st.Joined)
	}
}

// falseSeed answers the hello of one node by answer, and returns the bytes that the node sends
// after that.
func falseSeed(t *testing.T, answer func(hello wire.JoinHello) wire.JoinMessage) (addr string, rest <-chan []byte) {
	t.Helper()
	joining, err := newAuthority(t).Joining()
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", joining.Server())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	after := make(chan []byte, 1)
	go func() {
		defer close(after)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		m, err := wire.ReadJoin(c, wire.HelloBytesMax)
		if err != nil {
			t.Error(err)
			return
		}
		if a := answer(m.(wire.JoinHello)); a != nil {
			if err := writeJoin(c, a); err != nil {
				t.Error(err)
			}
			b, _ := io.ReadAll(c)
			after <- b
		}
	}()
	return l.Addr().String(), after
}

func TestFalseSeed(t *testing.T) {
	random := make([]byte, 32)
	rand.Read(random)
	for name, answer := range map[string]func(wire.JoinHello) wire.JoinMessage{
		"no proof":           func(wire.JoinHello) wire.JoinMessage { return wire.JoinAnswer{Cluster: "c"} },
		"some proof":         func(wire.JoinHello) wire.JoinMessage { return wire.JoinAnswer{Cluster: "c", Proof: random} },
		"the node's proof":   func(h wire.JoinHello) wire.JoinMessage { return wire.JoinAnswer{Cluster: "c", Proof: h.Proof} },
		"admitted at once":   func(wire.JoinHello) wire.JoinMessage { return wire.JoinAdmitted{World: 1} },
		"a view at once":     func(wire.JoinHello) wire.JoinMessage { return wire.JoinView{Epoch: 1} },
		"the hello returned": func(h wire.JoinHello) wire.JoinMessage { return h },
	} {
		t.Run(name, func(t *testing.T) {
			addr, rest := falseSeed(t, answer)
			conn, err := dialTLS(t.Context(), addr)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Join(t.Context(), conn, client.Request{Token: pki.NewToken(), Name: "secret name"})
			says(t, err, handshake.ErrFalseSeed, "seed "+addr+" does not hold the cluster token")
			if b := <-rest; len(b) > 0 {
				t.Errorf("the node went on to tell it %q", b)
			}
		})
	}
}

// A node without a token refuses a seed that has one.
func TestSeedProvesUnasked(t *testing.T) {
	addr, _ := falseSeed(t, func(wire.JoinHello) wire.JoinMessage { return wire.JoinAnswer{Proof: make([]byte, 32)} })
	conn, err := dialTLS(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Join(t.Context(), conn, client.Request{})
	says(t, err, handshake.ErrToken, "this node has none")
}

// writeJoin writes a message by one call of Write.
func writeJoin(w io.Writer, m wire.JoinMessage) error {
	_, err := w.Write(handshake.Frame(m))
	return err
}

func TestOtherVersion(t *testing.T) {
	s := newSeed(t, 1, nil)
	c := dialRaw(t, s.addr)
	writeJoin(c, wire.JoinHello{Version: wire.Version + 1})
	c.SetDeadline(time.Now().Add(patience))
	m, err := wire.ReadJoin(c, wire.JoinBytesMax)
	r, ok := m.(wire.JoinRefusal)
	if err != nil || !ok || r.Code != wire.RefusedVersion || !strings.Contains(r.Text, fmt.Sprintf("version %d", wire.Version+1)) || !strings.Contains(r.Text, fmt.Sprintf("version %d", wire.Version)) {
		t.Errorf("got %#v (%v), want a refusal that names both versions", m, err)
	}
	// The error of the node names both versions, too.
	says(t, &handshake.RefusedError{Seed: "10.0.0.1:7946", Code: r.Code, Text: r.Text}, handshake.ErrVersion, fmt.Sprintf("seed 10.0.0.1:7946 refused this node: the node speaks version %d", wire.Version+1))
}

// A client that sends garbage gets a refusal, and does not disturb others.
func TestGarbage(t *testing.T) {
	s := newSeed(t, 1, nil)
	hello := handshake.Frame(wire.JoinHello{Version: wire.Version})
	for name, b := range map[string][]byte{
		"http":           []byte("GET / HTTP/1.1\r\nHost: seed\r\n\r\n"),
		"zeroes":         make([]byte, 100),
		"a long hello":   append([]byte{hello[0], 0, 0, 2, 0}, make([]byte, 512)...),
		"a huge hello":   {hello[0], 0xff, 0xff, 0xff, 0xff},
		"a cut hello":    {hello[0], 0, 0, 0, 1, 0},
		"not a hello":    handshake.Frame(wire.JoinPing{}),
		"ready at once":  handshake.Frame(wire.JoinReady{Epoch: 1}),
		"request, first": handshake.Frame(wire.JoinRequest{CSR: []byte{1}}),
	} {
		c := dialRaw(t, s.addr)
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, err := wire.ReadJoin(c, wire.JoinBytesMax)
		if r, ok := m.(wire.JoinRefusal); err != nil || !ok || r.Code != wire.RefusedMalformed {
			t.Errorf("%s: got %#v (%v), want a refusal", name, m, err)
		}
		c.Close()
	}
	s.form(t, s.mustJoin(t, 0))
}

// Garbage after a valid proof gets a refusal, too.
func TestGarbageWithToken(t *testing.T) {
	s := newSeed(t, 1, nil)
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := key.Request()
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]wire.JoinMessage{
		"no request":     wire.JoinLeave{},
		"no certificate": wire.JoinRequest{Rank: wire.AnyRank},
		"bad signature":  wire.JoinRequest{CSR: append(bytes.Clone(csr[:len(csr)-1]), csr[len(csr)-1]^1), Rank: wire.AnyRank},
	} {
		c := dialRaw(t, s.addr)
		c.SetDeadline(time.Now().Add(patience))
		proof, err := s.token.Proof(pki.NodeRole, c.ConnectionState())
		if err != nil {
			t.Fatal(err)
		}
		writeJoin(c, wire.JoinHello{Version: wire.Version, Proof: proof})
		if m, err := wire.ReadJoin(c, wire.JoinBytesMax); err != nil {
			t.Fatalf("%s: %v, %v", name, m, err)
		}
		writeJoin(c, m)
		got, err := wire.ReadJoin(c, wire.JoinBytesMax)
		if r, ok := got.(wire.JoinRefusal); err != nil || !ok || r.Code != wire.RefusedMalformed {
			t.Errorf("%s: got %#v (%v), want a refusal", name, got, err)
		}
		c.Close()
	}
	s.form(t, s.mustJoin(t, 0))
}

// The seed serves others beside clients that are silent or send single bytes, and ends the
// connections of these.
func TestSilentAndSlowClients(t *testing.T) {
	t.Parallel()
	s := newSeed(t, 2, func(c *Config) { c.Limits.Hello = time.Second })
	half, err := net.Dial("tcp", s.addr) // not even TLS
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	silent, slow := dialRaw(t, s.addr), dialRaw(t, s.addr)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, b := range handshake.Frame(wire.JoinHello{Version: wire.Version, Proof: make([]byte, 32)}) {
			if _, err := slow.Write([]byte{b}); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	s.form(t, s.mustJoin(t, 0), s.mustJoin(t, 1))
	for _, c := range []net.Conn{silent, slow} {
		c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes, error %v, want the conn closed", n, err)
		}
		s.log.wait(t, "did not ask to join", c.LocalAddr().String(), "too slow")
	}
	close(stop)
	<-done
}

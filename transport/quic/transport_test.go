package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// TestIdentity checks that each side refuses a peer that does not prove the wanted identity,
// and that the error of Dial contains the refusing side and the reason.
func TestIdentity(t *testing.T) {
	ca, otherCA := testpeer.NewCA(t), testpeer.NewCA(t)
	server := newTestNode(t, Config{}, ca.Node(t, "server"))
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	foreign := newTestNode(t, Config{}, otherCA.Node(t, "foreign"))
	trusting := newTestNode(t, Config{}, &testpeer.Creds{Pool: ca.Pool, Cert: otherCA.Node(t, "trusting").Cert})

	for _, test := range []struct {
		name string
		from *testNode
		peer string
		want string
	}{
		{"another name", client, "other", `"server", not "other"`},
		{"unknown server", foreign, "", "unknown authority"},
		{"unknown client", trusting, "server", "rejected the certificate of this node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.from.Dial(t.Context(), server.Addr(), test.peer)
			if !errors.Is(err, transport.ErrIdentity) {
				t.Fatalf("Dial: %v, want ErrIdentity", err)
			}
			for _, want := range []string{server.Addr(), test.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not contain %q", err, want)
				}
			}
		})
	}
	connect(t, client, server) // Accept returned none of them
	if n := len(server.backlog); n != 0 {
		t.Errorf("%d clients that were refused wait to be accepted", n)
	}
	eventually(t, "the end of all handshakes", func() bool {
		return server.end.handshakes.coming.Load() == 0 && server.end.handshakes.admission.Len() == 0
	})
}

// TestDialWithoutCertificate checks Dial with an explicit TLS configuration.
func TestDialWithoutCertificate(t *testing.T) {
	ca := testpeer.NewCA(t)
	seed := newTestNode(t, Config{}, ca.Node(t, "seed"))
	end, err := Listen(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	conf := &tls.Config{RootCAs: ca.Pool, ServerName: "seed", NextProtos: []string{testpeer.JoinALPN}}
	dialed, err := end.Dial(t.Context(), seed.Addr(), conf)
	if err != nil {
		t.Fatal(err)
	}
	c, err := seed.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	accepted := c.(*Conn)
	if got := accepted.ConnectionState().NegotiatedProtocol; got != testpeer.JoinALPN {
		t.Errorf("protocol %q, want %q", got, testpeer.JoinALPN)
	}
	if dialed.Peer() != seed.Addr() || accepted.Peer() != "" {
		t.Errorf("peers %q and %q, want %q and none", dialed.Peer(), accepted.Peer(), seed.Addr())
	}
	pipeBetween(t, dialed, accepted)

	// A transport on the same endpoint starts and closes beside the connection.
	for range 2 {
		tr, err := end.Transport(ca.Node(t, "joined"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := end.Transport(ca.Node(t, "joined")); err == nil {
			t.Error("an endpoint has two transports at a time")
		}
		c, err := tr.Dial(t.Context(), seed.Addr(), "seed")
		if err != nil {
			t.Fatal(err)
		}
		tr.Close()
		if err := c.Err(); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Err() of a conn of a closed transport = %v, want ErrClosed", err)
		}
	}
	pipeBetween(t, accepted, dialed)
	end.Close()
	awaitDone(t, accepted)
	if err := accepted.Err(); !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("Err() = %v, want ErrPeerClosed", err)
	}
}

// TestLimitUnread checks that a client without identity cannot fill the windows, but may
// send data that is read.
func TestLimitUnread(t *testing.T) {
	ca := testpeer.NewCA(t)
	seed := newTestNode(t, Config{}, ca.Node(t, "seed"))
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	conf := &tls.Config{RootCAs: ca.Pool, ServerName: "seed", NextProtos: []string{testpeer.JoinALPN}}
	c, err := client.end.Dial(t.Context(), seed.Addr(), conf)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := seed.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const size = 4 * unprovenBytesMax
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.Write(make([]byte, size))
	}()
	r, err := accepted.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.ReadFunc(size, func([]byte) {}); err != nil {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	<-written
	time.Sleep(200 * time.Millisecond)
	if err := c.Err(); err != nil {
		t.Fatalf("the conn ended though all was read: %v", err)
	}
	if _, err := s.Write(make([]byte, 2*unprovenBytesMax)); err != nil && !errors.Is(err, transport.ErrPeerClosed) {
		t.Fatal(err)
	}
	awaitDone(t, c)
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "without an identity") {
		t.Errorf("Err() = %v, want the reason", err)
	}
}

// TestConcurrentAcceptPipe checks that each of several waiters gets a pipe.
func TestConcurrentAcceptPipe(t *testing.T) {
	const n = 20
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			r, err := accepted.AcceptPipe(ctx)
			if err == nil {
				_, err = io.ReadFull(r, make([]byte, 1))
			}
			if err != nil {
				t.Errorf("AcceptPipe: %v", err)
			}
		})
	}
	for range n {
		s, err := dialed.OpenPipe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestDialClosed checks that Close ends a dial that waits for an answer.
func TestDialClosed(t *testing.T) {
	for _, which := range []string{"transport", "endpoint"} {
		t.Run(which, func(t *testing.T) {
			ca := testpeer.NewCA(t)
			node := newTestNode(t, Config{}, ca.Node(t, "node"))
			mute := silentPort(t)
			failed := make(chan error)
			go func() {
				_, err := node.Dial(context.Background(), mute, "")
				failed <- err
			}()
			time.Sleep(20 * time.Millisecond)
			if which == "transport" {
				node.Transport.Close()
			} else {
				node.end.Close()
			}
			if err := <-failed; !errors.Is(err, transport.ErrClosed) || !strings.Contains(err.Error(), mute) {
				t.Errorf("Dial: %v, want ErrClosed with the address", err)
			}
		})
	}
}

// TestDialSilence checks that a peer that never answers is gone after the timeout.
func TestDialSilence(t *testing.T) {
	ca := testpeer.NewCA(t)
	node := newTestNode(t, Config{HandshakeTimeout: 100 * time.Millisecond}, ca.Node(t, "node"))
	mute := silentPort(t)
	_, err := node.Dial(t.Context(), mute, "")
	if !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), mute) {
		t.Errorf("Dial: %v, want ErrPeerGone with the address", err)
	}
}

// TestDialClosedPort checks that a closed port is detected before any timeout.
func TestDialClosedPort(t *testing.T) {
	ca := testpeer.NewCA(t)
	node := newTestNode(t, Config{HandshakeTimeout: time.Minute}, ca.Node(t, "node"))
	sock, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := sock.LocalAddr().String()
	sock.Close()
	_, err = node.Dial(t.Context(), addr, "")
	if !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Dial: %v, want ErrPeerGone because of a refusal", err)
	}
}

// TestBacklog checks that connections are refused with a reason when too many wait for
// Accept.
func TestBacklog(t *testing.T) {
	ca := testpeer.NewCA(t)
	busy := newTestNode(t, Config{}, ca.Node(t, "busy"))
	for range backlogMax - 1 {
		busy.backlog <- nil
	}
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	first, err := client.Dial(t.Context(), busy.Addr(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a full backlog", func() bool { return len(busy.backlog) == backlogMax })
	second, err := client.Dial(t.Context(), busy.Addr(), "busy")
	if err == nil { // the refusal may come after the handshake
		awaitDone(t, second)
		err = second.Err()
	}
	if !errors.Is(err, transport.ErrBusy) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("the connection beyond the backlog ends with %v, want a refusal with a reason", err)
	}
	if err := first.Err(); err != nil {
		t.Errorf("the connection before it ends with %v", err)
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		err  error
		want error
		text string
	}{
		{&quicgo.ApplicationError{ErrorCode: codeClosed}, transport.ErrClosed, ""},
		{&quicgo.ApplicationError{ErrorCode: codeClosed, Remote: true}, transport.ErrPeerClosed, ""},
		{&quicgo.ApplicationError{ErrorCode: codeGone, ErrorMessage: "why"}, transport.ErrPeerGone, "why"},
		{&quicgo.ApplicationError{ErrorCode: codeGone, ErrorMessage: "why", Remote: true}, transport.ErrPeerGone, "counts this side as gone"},
		{&quicgo.ApplicationError{ErrorCode: codeRefused, ErrorMessage: "why", Remote: true}, transport.ErrPeerClosed, "why"},
		{&quicgo.ApplicationError{ErrorCode: codeLeft, ErrorMessage: "why"}, transport.ErrPeerClosed, "why"},
		{&quicgo.IdleTimeoutError{}, transport.ErrPeerGone, "no recent network activity"},
		{&quicgo.StatelessResetError{}, transport.ErrPeerClosed, "no longer knows the connection"},
		{&quicgo.TransportError{ErrorCode: quicgo.FlowControlError}, transport.ErrPeerGone, "FLOW_CONTROL"},
		{quicgo.ErrTransportClosed, transport.ErrClosed, ""},
	} {
		t.Run(fmt.Sprintf("%T", test.err), func(t *testing.T) {
			got := pipeError(test.err)
			if !errors.Is(got, test.want) || !strings.Contains(got.Error(), test.text) {
				t.Errorf("%v becomes %v, want %v with %q", test.err, got, test.want, test.text)
			}
			for _, other := range []error{transport.ErrClosed, transport.ErrPeerClosed, transport.ErrPeerGone} {
				if other != test.want && errors.Is(got, other) {
					t.Errorf("%v is also %v", got, other)
				}
			}
		})
	}
}

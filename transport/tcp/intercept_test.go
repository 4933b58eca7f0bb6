package tcp

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestInterceptedPipe checks that a host on the path cannot terminate the TLS session of the
// socket of a pipe and pass on all messages, even with the certificates and keys of both
// nodes: it lacks the secrets of the control socket.
func TestInterceptedPipe(t *testing.T) {
	ca := newTestCA(t)
	stolenServer, stolenClient := ca.node(t, "server"), ca.node(t, "client")
	server := newTestNode(t, Config{}, stolenServer)
	client := newTestNode(t, Config{}, stolenClient)
	for name, creds := range map[string]struct{ toClient, toServer *testCreds }{
		"with the keys of both nodes": {stolenServer, stolenClient},
		"with those of another node":  {ca.node(t, "somebody"), ca.node(t, "somebody")},
	} {
		t.Run(name, func(t *testing.T) {
			dialed, accepted := connect(t, client, server)
			var passed sync.Mutex
			var said int
			dialed.remote = acceptOne(t, func(sock net.Conn) {
				if _, err := io.ReadFull(sock, make([]byte, magicBytes)); err != nil {
					t.Error(err)
					return
				}
				here := tls.Server(sock, configure(creds.toClient.Server(), nil))
				if here.Handshake() != nil {
					return // the client has refused
				}
				there := tls.Client(dialRaw(t, server, magicTLS), configure(creds.toServer.Client("server"), nil))
				go io.Copy(here, there)
				buf := make([]byte, 1<<10)
				for {
					n, err := here.Read(buf)
					if err != nil {
						return
					}
					passed.Lock()
					said += n
					passed.Unlock()
					if _, err := there.Write(buf[:n]); err != nil {
						return
					}
				}
			})
			if _, err := dialed.OpenPipe(t.Context()); !errors.Is(err, transport.ErrIdentity) {
				t.Errorf("OpenPipe: %v, want ErrIdentity", err)
			}
			passed.Lock()
			if said > claimBytes {
				t.Errorf("the dialer has sent %d bytes, want at most the claim, %d bytes", said, claimBytes)
			}
			passed.Unlock()
			if n := len(accepted.backlog); n > 0 {
				t.Errorf("the server has accepted %d pipes", n)
			}
			if err := errors.Join(dialed.Err(), accepted.Err()); err != nil {
				t.Errorf("the conn has ended: %v", err)
			}
		})
	}
}

// recordPipe opens a pipe through a host that passes on all bytes, and returns those of the
// dialer.
func recordPipe(t *testing.T, dialed, accepted *conn, server *testNode) []byte {
	t.Helper()
	var recorded bytes.Buffer
	var mu sync.Mutex
	remote := dialed.remote
	dialed.remote = acceptOne(t, func(sock net.Conn) {
		there, err := net.Dial("tcp", server.Addr())
		if err != nil {
			t.Error(err)
			return
		}
		defer there.Close()
		go io.Copy(sock, there)
		buf := make([]byte, 16<<10)
		for {
			n, err := sock.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			recorded.Write(buf[:n])
			mu.Unlock()
			if _, err := there.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	s, r := pipeBetween(t, dialed, accepted)
	if !resumes(t, s, r) {
		t.Fatal("the pipe does not resume the session")
	}
	dialed.remote = remote
	mu.Lock()
	defer mu.Unlock()
	return bytes.Clone(recorded.Bytes())
}

// answer sends bytes to the server and returns its records: the type of each.
func answer(t *testing.T, server *testNode, b []byte) (types []byte, alert byte) {
	t.Helper()
	sock := dialRaw(t, server, string(b))
	sock.CloseWrite()
	sock.SetDeadline(time.Now().Add(soon))
	all, err := io.ReadAll(sock)
	if err != nil {
		t.Fatal(err)
	}
	for len(all) >= 5 {
		n := 5 + int(binary.BigEndian.Uint16(all[3:]))
		types = append(types, all[0])
		if all[0] == 21 {
			alert = all[6]
		}
		all = all[min(n, len(all)):]
	}
	return types, alert
}

// Types of TLS records and extensions, and alerts (RFC 8446).
const (
	recordAlert       = 21
	recordHandshake   = 22
	extensionPSK      = 41
	extensionEarly    = 42
	alertDecryptError = 51
	alertUnsupported  = 110
)

// TestReplayedPipe checks that the recorded bytes of a dialer open no second pipe, and that
// a ticket cannot be used with a changed message.
func TestReplayedPipe(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	recorded := recordPipe(t, dialed, accepted, nodes[1])

	types, _ := answer(t, nodes[1], recorded)
	if len(types) == 0 || types[0] != recordHandshake {
		t.Fatalf("the server answers a repeated first message with records of the types %v", types)
	}
	for _, end := range []error{dialed.Err(), accepted.Err()} {
		if end != nil {
			t.Errorf("the conn has ended: %v", end)
		}
	}
	if n := len(accepted.backlog); n > 0 {
		t.Errorf("%d pipes were opened by a replay", n)
	}
	hello := clientHello(t, recorded)
	hello.random()[0]++
	if types, alert := answer(t, nodes[1], hello.bytes()); len(types) != 1 || types[0] != recordAlert || alert != alertDecryptError {
		t.Errorf("a changed first message: records of the types %v, alert %d, want %d", types, alert, alertDecryptError)
	}
	pipeBetween(t, dialed, accepted)
}

// TestNoEarlyData checks that the dialer offers no early data (0-RTT), and that the server
// refuses it.
func TestNoEarlyData(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	hello := clientHello(t, recordPipe(t, dialed, accepted, nodes[1]))
	last := uint16(0)
	for _, e := range hello.extensions {
		if e.kind == extensionEarly {
			t.Error("the dialer offers early data")
		}
		last = e.kind
	}
	if last != extensionPSK {
		t.Fatalf("the last extension has type %d, want the pre-shared key", last)
	}
	if types, alert := answer(t, nodes[1], hello.bytes()); len(types) == 0 || types[0] != recordHandshake {
		t.Errorf("the message is not encoded as it was: records of the types %v, alert %d", types, alert)
	}
	at := len(hello.extensions) - 1
	hello.extensions = append(hello.extensions[:at:at], extension{kind: extensionEarly}, hello.extensions[at])
	if types, alert := answer(t, nodes[1], hello.bytes()); len(types) != 1 || types[0] != recordAlert || alert != alertUnsupported {
		t.Errorf("early data: records of the types %v, alert %d, want %d", types, alert, alertUnsupported)
	}
}

// A helloMessage is a ClientHello behind the magic of a socket.
type helloMessage struct {
	magic      []byte
	head       []byte // version to compression methods
	extensions []extension
}

type extension struct {
	kind uint16
	data []byte
}

// clientHello decodes the first message of a dialer.
func clientHello(t *testing.T, b []byte) (h helloMessage) {
	t.Helper()
	h.magic = bytes.Clone(b[:magicBytes])
	body := b[magicBytes+5+4:] // the headers of record and message
	n := 2 + 32
	n += 1 + int(body[n])
	n += 2 + int(binary.BigEndian.Uint16(body[n:]))
	n += 1 + int(body[n])
	h.head = bytes.Clone(body[:n])
	rest := body[n+2:][:binary.BigEndian.Uint16(body[n:])]
	for len(rest) > 0 {
		size := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		h.extensions = append(h.extensions, extension{binary.BigEndian.Uint16(rest), bytes.Clone(rest[4:size])})
		rest = rest[size:]
	}
	return h
}

func (h helloMessage) random() []byte { return h.head[2:34] }

func (h helloMessage) bytes() []byte {
	var list []byte
	for _, e := range h.extensions {
		list = binary.BigEndian.AppendUint16(list, e.kind)
		list = binary.BigEndian.AppendUint16(list, uint16(len(e.data)))
		list = append(list, e.data...)
	}
	body := binary.BigEndian.AppendUint16(bytes.Clone(h.head), uint16(len(list)))
	body = append(body, list...)
	b := append(bytes.Clone(h.magic), recordHandshake, 3, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(body)))
	b = append(b, 1, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

package shm

import (
	"crypto/rand"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

func uniqueCluster() string { return "test " + rand.Text() }

// newNode makes a node that is closed with the test.
func newNode(tb testing.TB, cfg Config) *endpoint {
	tb.Helper()
	tr, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tr.Close() })
	return tr.(*endpoint)
}

// newPair makes two nodes and a conn that a has dialed to b.
func newPair(tb testing.TB, cfg Config) (a, b *conn) {
	tb.Helper()
	cfg.Cluster = uniqueCluster()
	cfg.Node = "a"
	from := newNode(tb, cfg)
	cfg.Node = "b"
	to := newNode(tb, cfg)
	return connectNodes(tb, from, to)
}

// connectNodes connects two nodes.
func connectNodes(tb testing.TB, from, to *endpoint) (a, b *conn) {
	tb.Helper()
	c, err := from.Dial(tb.Context(), to.Addr(), to.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	d, err := to.Accept(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return c.(*conn), d.(*conn)
}

// newPipe opens a pipe from one side of a conn to the other.
func newPipe(tb testing.TB, from, to transport.Conn) (*sender, *receiver) {
	tb.Helper()
	s, err := from.OpenPipe(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	r, err := to.AcceptPipe(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return s.(*sender), r.(*receiver)
}

// kill ends a node like the death of its process: it closes the sockets without a message.
func (e *endpoint) kill() {
	e.ln.Close()
	e.mu.Lock()
	var all sync.WaitGroup
	for c := range e.conns {
		all.Go(func() { c.sock.Close() })
	}
	e.mu.Unlock()
	all.Wait()
}

package contain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is a limit that the transports here keep, and that tests can wait for.
const soon = time.Second

func wrap(tb testing.TB, name string, inner transport.Transport, limit time.Duration, log *slog.Logger) transport.Transport {
	tb.Helper()
	t, err := Listen(tb.Context(), transport.Factory{Name: name, Listen: func(context.Context, transport.Env) (transport.Transport, error) {
		return inner, nil
	}}, transport.Env{}, Config{Limit: limit, Log: log})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// TestConformance: a transport that keeps the contract still does when it is contained.
func TestConformance(t *testing.T) {
	transporttest.Run(t, func(tb testing.TB, n int) (made transporttest.Cluster) {
		network := mem.NewNetwork()
		for i := range n {
			name := fmt.Sprintf("rank %d", i)
			inner, err := network.Listen(name)
			if err != nil {
				tb.Fatal(err)
			}
			made.Transports = append(made.Transports, wrap(tb, "mem", inner, 0, nil))
		}
		made.Kill = func(i int) { network.Kill(fmt.Sprintf("rank %d", i)) }
		return made
	})
}

// A broken transport breaks its contract in one way.
type broken struct {
	transport.Transport
	fault   string
	release chan struct{} // what hangs returns when it is closed
}

func (b broken) hang() { <-b.release }

func (b broken) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	switch b.fault {
	case "Dial panics":
		panic("no route")
	case "Dial returns nothing":
		return nil, nil
	case "Dial hangs":
		b.hang()
	}
	c, err := b.Transport.Dial(ctx, addr, peer)
	if err != nil {
		return nil, err
	}
	return brokenConn{c, b}, nil
}

func (b broken) Close() error {
	if b.fault == "Close of the transport hangs" {
		b.hang()
	}
	return b.Transport.Close()
}

type brokenConn struct {
	transport.Conn
	b broken
}

func (c brokenConn) Peer() string {
	if c.b.fault == "wrong peer" {
		return "somebody"
	}
	return c.Conn.Peer()
}

func (c brokenConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	switch c.b.fault {
	case "OpenPipe panics":
		panic("no pipes")
	case "OpenPipe returns nothing":
		return nil, nil
	case "OpenPipe hangs":
		c.b.hang()
	}
	s, err := c.Conn.OpenPipe(ctx)
	return brokenSender{s, c.b}, err
}

func (c brokenConn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	r, err := c.Conn.AcceptPipe(ctx)
	return brokenReceiver{r, c.b}, err
}

func (c brokenConn) Close() error {
	if c.b.fault == "Close hangs" {
		c.b.hang()
	}
	return c.Conn.Close()
}

type brokenSender struct {
	transport.Sender
	b broken
}

func (s brokenSender) Write(p []byte) (int, error) {
	switch s.b.fault {
	case "Write panics":
		panic("no write")
	case "short Write":
		return len(p) - 1, nil
	case "long Write":
		return len(p) + 1, nil
	case "Write hangs":
		s.b.hang()
	}
	return s.Sender.Write(p)
}

func (s brokenSender) SetWriteDeadline(t time.Time) error {
	if s.b.fault == "SetWriteDeadline hangs" {
		s.b.hang()
	}
	return s.Sender.SetWriteDeadline(t)
}

type brokenReceiver struct {
	transport.Receiver
	b broken
}

func (r brokenReceiver) Read(p []byte) (int, error) {
	switch r.b.fault {
	case "Read returns nothing":
		return 0, nil
	case "long Read":
		return len(p) + 1, nil
	case "Read hangs":
		r.b.hang()
	}
	return r.Receiver.Read(p)
}

func (r brokenReceiver) ReadFunc(n int, view func([]byte)) (int, error) {
	switch r.b.fault {
	case "short ReadFunc":
		view(make([]byte, n-1))
		return n - 1, nil
	case "ReadFunc miscounts":
		view(make([]byte, n-1))
		return n, nil
	case "ReadFunc shows too much":
		view(make([]byte, n+1))
		return n, nil
	case "ReadFunc panics":
		panic("no view")
	}
	return r.Receiver.ReadFunc(n, view)
}

// faults are what the two nodes find, and the call that is named.
func faults() map[string]string {
	return map[string]string{
		"Dial panics": "Dial", "Dial returns nothing": "Dial", "Dial hangs": "Dial", "wrong peer": "Dial",
		"OpenPipe panics": "OpenPipe", "OpenPipe returns nothing": "OpenPipe", "OpenPipe hangs": "OpenPipe",
		"Write panics": "Write", "short Write": "Write", "long Write": "Write", "Write hangs": "Write",
		"SetWriteDeadline hangs": "SetWriteDeadline",
		"Read returns nothing":   "Read", "long Read": "Read", "Read hangs": "Read",
		"short ReadFunc": "ReadFunc", "ReadFunc miscounts": "ReadFunc", "ReadFunc shows too much": "ReadFunc", "ReadFunc panics": "ReadFunc",
	}
}

// TestFaults: whatever a transport does wrong, the caller gets an error that names the
// transport, the peer and the call; it is logged; the conn ends; and Close returns.
func TestFaults(t *testing.T) {
	for fault, call := range faults() {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var log testlog.Buffer
			err, end := provoke(t, fault, slog.New(slog.NewTextHandler(&log, nil)))
			f, ok := errors.AsType[*FaultError](err)
			if !ok || f.Call != call || f.Transport != "broken" || f.Peer != "b" || !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("error %v, want a fault of %s that names the transport and the peer", err, call)
			}
			if end != nil && !errors.Is(end, err) {
				t.Errorf("the conn has ended with %v, want %v", end, err)
			}
			if !strings.Contains(log.String(), "a transport breaks its contract") {
				t.Errorf("the log does not say so: %s", log.String())
			}
		})
	}
}

// provoke has a node with a broken transport dial a healthy one, and returns its error
// and that with which its conn has ended.
func provoke(t *testing.T, fault string, log *slog.Logger) (err, end error) {
	network := mem.NewNetwork()
	healthy, e := network.Listen("b")
	if e != nil {
		t.Fatal(e)
	}
	defer healthy.Close()
	inner, e := network.Listen("a")
	if e != nil {
		t.Fatal(e)
	}
	release := make(chan struct{})
	defer close(release)
	tr := wrap(t, "broken", broken{inner, fault, release}, soon, log)
	defer tr.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	c, err := tr.Dial(ctx, "b", "b")
	if err != nil {
		return err, nil
	}
	defer c.Close()
	peer, e := healthy.Accept(t.Context())
	if e != nil {
		t.Fatal(e)
	}
	err = exchange(ctx, c, peer)
	select {
	case <-c.Done():
	case <-time.After(time.Minute):
		t.Fatal("the conn goes on")
	}
	return err, c.Err()
}

// exchange uses all calls of a conn, and returns the first error.
func exchange(ctx context.Context, c, peer transport.Conn) error {
	s, err := c.OpenPipe(ctx)
	if err != nil {
		return err
	}
	if err := s.SetWriteDeadline(time.Now().Add(soon)); err != nil {
		return err
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		return err
	}
	back, err := peer.OpenPipe(ctx)
	if err != nil {
		return err
	}
	if _, err := back.Write([]byte("hello")); err != nil {
		return err
	}
	r, err := c.AcceptPipe(ctx)
	if err != nil {
		return err
	}
	r.SetReadDeadline(time.Now().Add(soon))
	if _, err := r.Read(make([]byte, 2)); err != nil {
		return err
	}
	_, err = r.ReadFunc(3, func([]byte) {})
	return err
}

// TestCloseReturns: closes that hang are abandoned.
func TestCloseReturns(t *testing.T) {
	for _, fault := range []string{"Close hangs", "Close of the transport hangs"} {
		network := mem.NewNetwork()
		healthy, err := network.Listen("b")
		if err != nil {
			t.Fatal(err)
		}
		inner, err := network.Listen("a")
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		tr := wrap(t, "broken", broken{inner, fault, release}, soon, nil)
		c, err := tr.Dial(t.Context(), "b", "b")
		if err != nil {
			t.Fatal(err)
		}
		r := make(chan error, 1)
		peer, err := healthy.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := peer.OpenPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Write([]byte{1})
		in, err := c.AcceptPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := io.Copy(io.Discard, in)
			r <- err
		}()
		if fault == "Close hangs" {
			c.Close()
		}
		tr.Close()
		select {
		case err := <-r:
			if err == nil {
				t.Errorf("%s: a Read ends without an error", fault)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: a Read goes on after Close", fault)
		}
		if !errors.Is(c.Err(), transport.ErrClosed) {
			t.Errorf("%s: the conn has ended with %v", fault, c.Err())
		}
		close(release)
		healthy.Close()
	}
}

// TestListenFaults: a factory that panics, hangs or returns nothing is an error.
func TestListenFaults(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, listen := range map[string]func(context.Context, transport.Env) (transport.Transport, error){
		"panics":  func(context.Context, transport.Env) (transport.Transport, error) { panic("x") },
		"nothing": func(context.Context, transport.Env) (transport.Transport, error) { return nil, nil },
		"hangs":   func(context.Context, transport.Env) (transport.Transport, error) { <-release; return nil, nil },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		_, err := Listen(ctx, transport.Factory{Name: name, Listen: listen}, transport.Env{}, Config{Limit: soon})
		cancel()
		if f, ok := errors.AsType[*FaultError](err); !ok || f.Transport != name || f.Call != "Listen" {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

package contain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is a limit for calls that is long enough for healthy calls and short enough for tests.
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

// TestConformance: a contained transport passes the conformance suite.
func TestConformance(t *testing.T) {
	transporttest.Run(t, func(tb testing.TB, n int) (c transporttest.Cluster) {
		network := mem.NewNetwork()
		for i := range n {
			name := fmt.Sprintf("rank %d", i)
			inner, err := network.Listen(name)
			if err != nil {
				tb.Fatal(err)
			}
			c.Transports = append(c.Transports, wrap(tb, "mem", inner, 0, nil))
		}
		c.Kill = func(i int) { network.Kill(fmt.Sprintf("rank %d", i)) }
		return c
	})
}

// faults returns all planted faults of calls on a conn, and the call that the error names.
func faults() map[string]string {
	m := map[string]string{
		"Dial returns nothing": "Dial", "wrong peer": "Dial", "OpenPipe returns nothing": "OpenPipe",
		"OpenPaired returns nothing": "OpenPaired", "OpenLarge returns nothing": "OpenLarge",
		"short Write": "Write", "long Write": "Write", "negative Write": "Write",
		"short WriteVectored": "WriteVectored", "long WriteVectored": "WriteVectored",
		"long TryWritePart": "TryWritePart", "negative TryWritePart": "TryWritePart",
		"Read returns nothing": "Read", "long Read": "Read", "long TryRead": "TryRead",
		"short ReadFunc": "ReadFunc", "miscounting ReadFunc": "ReadFunc", "oversized ReadFunc": "ReadFunc",
		"miscounting TryReadFunc": "TryReadFunc", "oversized TryReadFunc": "TryReadFunc", "piecemeal TryReadFunc": "TryReadFunc",
		"negative PeerCPU": "PeerCPU", "Areas without bytes": "Areas", "AcquireAreas returns nothing": "AcquireAreas", "short Area": "Area",
		"PeerEnded returns nothing": "PeerEnded", "Register returns nothing": "Register",
		"Grant returns nothing": "Grant", "long key of Grant": "Grant",
	}
	for _, call := range []string{
		"Dial", "OpenPipe", "OpenPaired", "OpenLarge", "Write", "WriteVectored", "TryWrite", "TryWriteVectored", "TryWritePart", "TryWriteLazy",
		"Prioritize", "SetWriteDeadline", "Read", "ReadFunc", "TryRead", "TryReadFunc", "SetPolling", "PeerCPU",
		"Areas", "AcquireAreas", "Area", "Reserve", "Release", "FutexWait", "FutexWake", "PeerEnded", "Suits", "Register", "Grant", "Recall", "Revoke", "Deregister", "WriteRemote",
	} {
		m[call+" panics"], m[call+" hangs"] = call, call
	}
	m["WaitReadable panics"] = "WaitReadable"
	return m
}

// TestFaults: each fault ends the conn with an error that names the transport, the peer and the call.
// It is logged, and Close returns.
func TestFaults(t *testing.T) {
	for fault, call := range faults() {
		synctest.Test(t, func(t *testing.T) {
			var log testlog.Buffer
			err := provoke(t, fault, slog.New(slog.NewTextHandler(&log, nil)))
			f, ok := errors.AsType[*FaultError](err)
			if !ok || f.Call != call || f.Transport != "broken" || f.Peer != "b" || !errors.Is(err, transport.ErrPeerGone) {
				t.Errorf("%s: error %v, want a fault of %s that names the transport and the peer", fault, err, call)
			}
			if !strings.Contains(log.String(), "transport breaks its contract") {
				t.Errorf("%s: the fault is not logged: %s", fault, log.String())
			}
		})
	}
}

// meet returns a contained broken transport, and a dialed and an accepted conn between it
// and a healthy one. The error is that of Dial.
func meet(t *testing.T, fault string, log *slog.Logger) (tr transport.Transport, c, peer transport.Conn, err error) {
	t.Helper()
	network := mem.NewNetwork()
	healthy, err := network.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { healthy.Close() })
	inner, err := network.Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	tr = wrap(t, "broken", broken{inner, fault, release}, soon, log)
	t.Cleanup(func() { tr.Close(); close(release) })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if c, err = tr.Dial(ctx, "b", "b"); err != nil {
		return tr, nil, nil, err
	}
	if peer, err = healthy.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr, c, peer, nil
}

// provoke makes a contained broken transport dial a healthy one and uses all calls of the
// conn. It returns the error of Dial or of the conn.
func provoke(t *testing.T, fault string, log *slog.Logger) error {
	_, c, peer, err := meet(t, fault, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err = exchange(ctx, c, peer)
	select {
	case <-c.Done():
	case <-time.After(time.Minute):
		t.Fatal("the conn goes on")
	}
	if isFault(err) && c.Err() != err {
		t.Errorf("the conn has ended with %v, want the error of the call %v", c.Err(), err)
	}
	return c.Err()
}

// exchange uses all calls of a conn and its pipes, and returns the first error.
func exchange(ctx context.Context, c, peer transport.Conn) error {
	s, err := c.OpenPipe(ctx)
	if err != nil {
		return err
	}
	if err := send(s); err != nil {
		return err
	}
	back, err := peer.OpenPipe(ctx)
	if err != nil {
		return err
	}
	if _, err := back.Write([]byte("hello, world")); err != nil {
		return err
	}
	r, err := c.AcceptPipe(ctx)
	if err != nil {
		return err
	}
	if err := receive(r); err != nil {
		return err
	}
	can := transport.CapabilitiesOf(c)
	if _, err := can.PairOpener.OpenPaired(ctx); err != nil {
		return err
	}
	if _, err := can.LargeOpener.OpenLarge(ctx); err != nil {
		return err
	}
	if err := share(can.MemorySharer); err != nil {
		return err
	}
	return writeRemote(ctx, can.RemoteMemory)
}

func send(s transport.Sender) error {
	if err := s.SetWriteDeadline(time.Now().Add(soon)); err != nil {
		return err
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		return err
	}
	can := transport.CapabilitiesOf(s)
	if _, err := can.VectorWriter.WriteVectored([][]byte{[]byte("hel"), nil, []byte("lo")}); err != nil {
		return err
	}
	can.Prioritizer.Prioritize()
	can.TryWriter.TryWrite([]byte("hello"))
	can.TryVectorWriter.TryWriteVectored([][]byte{[]byte("hel"), []byte("lo")})
	can.PartWriter.TryWritePart([][]byte{[]byte("hel"), []byte("lo")})
	can.LazyWriter.TryWriteLazy([]byte("hello"))
	return nil
}

func receive(r transport.Receiver) error {
	r.SetReadDeadline(time.Now().Add(soon))
	if _, err := r.Read(make([]byte, 2)); err != nil {
		return err
	}
	if _, err := r.ReadFunc(3, func([]byte) {}); err != nil {
		return err
	}
	can := transport.CapabilitiesOf(r)
	can.Poller.SetPolling(true)
	can.Poller.WaitReadable()
	can.CPULocator.PeerCPU()
	if _, err := can.Poller.TryRead(make([]byte, 2)); err != nil {
		return err
	}
	_, err := can.Poller.TryReadFunc(2, func([]byte) {})
	return err
}

func share(s transport.MemorySharer) error {
	areas, err := s.AcquireAreas()
	if err != nil {
		return err
	}
	if err := areas.Reserve(0, 1); err != nil {
		return err
	}
	var word atomic.Uint32
	s.FutexWait(&word, 0, time.Millisecond)
	s.FutexWake(&word)
	s.PeerEnded()()
	areas.Release()
	return nil
}

func writeRemote(ctx context.Context, m transport.RemoteMemory) error {
	m.Suits(make([]byte, 10))
	reg, err := m.Register(make([]byte, 10))
	if err != nil {
		return err
	}
	g, err := reg.Grant(2, 3)
	if err != nil {
		return err
	}
	if err := m.WriteRemote(ctx, g.Key(), 0, []byte("abc")); err != nil {
		return err
	}
	if err := g.Recall(ctx); err != nil {
		return err
	}
	g.Revoke()
	reg.Deregister()
	return nil
}

// TestOutOfFiles: a FileUser that panics is a fault of the transport.
func TestOutOfFiles(t *testing.T) {
	inner, err := mem.NewNetwork().Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	tr := wrap(t, "broken", broken{Transport: inner, fault: "OutOfFiles panics"}, soon, nil)
	defer tr.Close()
	err = transport.CapabilitiesOf(tr).FileUser.OutOfFiles()
	if f, ok := errors.AsType[*FaultError](err); !ok || f.Call != "OutOfFiles" {
		t.Errorf("error %v", err)
	}
}

// TestWaitReadableHangs: a WaitReadable that does not return after the pipe is closed is abandoned.
func TestWaitReadableHangs(t *testing.T) { synctest.Test(t, testWaitReadableHangs) }

func testWaitReadableHangs(t *testing.T) {
	_, c, peer, err := meet(t, "WaitReadable hangs", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := peer.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Write([]byte{1})
	r, err := c.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		transport.CapabilitiesOf(r).Poller.WaitReadable()
	}()
	r.Close()
	select {
	case <-returned:
	case <-time.After(time.Minute):
		t.Fatal("WaitReadable goes on after Close")
	}
	if f, ok := errors.AsType[*FaultError](c.Err()); !ok || f.Call != "WaitReadable" {
		t.Errorf("the conn has ended with %v", c.Err())
	}
}

// TestCloseReturns: a Close that hangs is abandoned, and returns a running Read.
func TestCloseReturns(t *testing.T) {
	for _, fault := range []string{"Close hangs", "Close of the transport hangs"} {
		synctest.Test(t, func(t *testing.T) { testCloseReturns(t, fault) })
	}
}

func testCloseReturns(t *testing.T, fault string) {
	tr, c, peer, err := meet(t, fault, nil)
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
	r := make(chan error, 1)
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
			t.Errorf("%s: Read has ended without an error", fault)
		}
	case <-time.After(time.Minute):
		t.Errorf("%s: Read goes on after Close", fault)
	}
	if !errors.Is(c.Err(), transport.ErrClosed) {
		t.Errorf("%s: the conn has ended with %v", fault, c.Err())
	}
}

// TestListenFaults: a factory that panics, hangs or returns nothing is an error.
func TestListenFaults(t *testing.T) { synctest.Test(t, testListenFaults) }

func testListenFaults(t *testing.T) {
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

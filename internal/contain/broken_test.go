package contain

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A broken transport breaks its contract in one way. It has all capabilities, emulated on
// those of mem. Its fault begins with the name of a call and " panics", " hangs" or
// " returns nothing", or is named where it is planted.
type broken struct {
	transport.Transport
	fault   string
	release chan struct{} // closed to let hanging calls return
}

// call plants panics and hangs in a call. It reports whether to return nothing.
func (b broken) call(name string) bool {
	switch b.fault {
	case name + " panics":
		panic("planted")
	case name + " hangs":
		<-b.release
	case name + " returns nothing":
		return true
	}
	return false
}

func (b broken) Capabilities() transport.Capabilities { return transport.Capabilities{FileUser: b} }

func (b broken) OutOfFiles() error {
	b.call("OutOfFiles")
	return nil
}

func (b broken) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if b.call("Dial") {
		return nil, nil
	}
	c, err := b.Transport.Dial(ctx, addr, peer)
	if err != nil {
		return nil, err
	}
	return brokenConn{c, b}, nil
}

func (b broken) Close() error {
	b.call("Close of the transport")
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

func (c brokenConn) Capabilities() transport.Capabilities {
	return transport.Capabilities{PairOpener: c, LargeOpener: c, MemorySharer: c, RemoteMemory: c}
}

func (c brokenConn) open(ctx context.Context, call string) (transport.Sender, error) {
	if c.b.call(call) {
		return nil, nil
	}
	s, err := c.Conn.OpenPipe(ctx)
	return brokenSender{s, c.b}, err
}

func (c brokenConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	return c.open(ctx, "OpenPipe")
}

func (c brokenConn) OpenPaired(ctx context.Context) (transport.Sender, error) {
	return c.open(ctx, "OpenPaired")
}

func (c brokenConn) OpenLarge(ctx context.Context) (transport.Sender, error) {
	return c.open(ctx, "OpenLarge")
}

func (c brokenConn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	r, err := c.Conn.AcceptPipe(ctx)
	return brokenReceiver{r, c.b}, err
}

func (c brokenConn) Close() error {
	c.b.call("Close")
	return c.Conn.Close()
}

const areaBytes = 4096

func (c brokenConn) Areas() (count, size int) {
	c.b.call("Areas")
	if c.b.fault == "Areas without bytes" {
		return 2, 0
	}
	return 2, areaBytes
}

func (c brokenConn) AcquireAreas() (transport.Areas, error) {
	if c.b.call("AcquireAreas") {
		return nil, nil
	}
	return brokenAreas{c.b}, nil
}

func (c brokenConn) FutexWait(*atomic.Uint32, uint32, time.Duration) { c.b.call("FutexWait") }
func (c brokenConn) FutexWake(*atomic.Uint32)                        { c.b.call("FutexWake") }

func (c brokenConn) PeerEnded() func() bool {
	if c.b.call("PeerEnded") {
		return nil
	}
	return func() bool { return true }
}

type brokenAreas struct{ b broken }

func (a brokenAreas) Area(int) (own, peer []byte) {
	a.b.call("Area")
	if a.b.fault == "short Area" {
		return make([]byte, areaBytes), make([]byte, areaBytes-1)
	}
	return make([]byte, areaBytes), make([]byte, areaBytes)
}

func (a brokenAreas) Reserve(int, int) error {
	a.b.call("Reserve")
	return nil
}

func (a brokenAreas) Release() { a.b.call("Release") }

func (c brokenConn) Suits([]byte) bool { return c.b.call("Suits") }

func (c brokenConn) Register([]byte) (transport.Registration, error) {
	if c.b.call("Register") {
		return nil, nil
	}
	return brokenRegistration{c.b}, nil
}

func (c brokenConn) WriteRemote(context.Context, transport.RemoteKey, int, []byte) error {
	c.b.call("WriteRemote")
	return nil
}

type brokenRegistration struct{ b broken }

func (r brokenRegistration) Grant(_, n int) (transport.Grant, error) {
	if r.b.call("Grant") {
		return nil, nil
	}
	return brokenGrant{r.b, n}, nil
}

func (r brokenRegistration) Deregister() { r.b.call("Deregister") }

type brokenGrant struct {
	b broken
	n int
}

func (g brokenGrant) Key() transport.RemoteKey {
	if g.b.fault == "long key of Grant" {
		g.n++
	}
	return transport.RemoteKey{Len: uint64(g.n)}
}

func (g brokenGrant) Recall(context.Context) error {
	g.b.call("Recall")
	return nil
}

func (g brokenGrant) Revoke() { g.b.call("Revoke") }

type brokenSender struct {
	transport.Sender
	b broken
}

func (s brokenSender) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: s, TryVectorWriter: s, PartWriter: s, LazyWriter: s, VectorWriter: s, Prioritizer: s}
}

// count plants wrong counts in a call that has written n bytes.
func (s brokenSender) count(call string, n int) int {
	switch s.b.fault {
	case "short " + call:
		return n - 1
	case "long " + call:
		return n + 1
	case "negative " + call:
		return -1
	}
	return n
}

func (s brokenSender) Write(p []byte) (int, error) {
	s.b.call("Write")
	n, err := s.Sender.Write(p)
	return s.count("Write", n), err
}

func (s brokenSender) WriteVectored(pieces [][]byte) (int, error) {
	s.b.call("WriteVectored")
	n, err := s.Sender.Write(slices.Concat(pieces...))
	return s.count("WriteVectored", n), err
}

func (s brokenSender) TryWrite(p []byte) bool {
	s.b.call("TryWrite")
	return transport.CapabilitiesOf(s.Sender).TryWriter.TryWrite(p)
}

func (s brokenSender) TryWriteLazy(p []byte) bool {
	s.b.call("TryWriteLazy")
	return transport.CapabilitiesOf(s.Sender).TryWriter.TryWrite(p)
}

func (s brokenSender) TryWriteVectored(pieces [][]byte) bool {
	s.b.call("TryWriteVectored")
	return transport.CapabilitiesOf(s.Sender).TryWriter.TryWrite(slices.Concat(pieces...))
}

func (s brokenSender) TryWritePart(pieces [][]byte) int {
	s.b.call("TryWritePart")
	p := slices.Concat(pieces...)
	if !transport.CapabilitiesOf(s.Sender).TryWriter.TryWrite(p) {
		return 0
	}
	return s.count("TryWritePart", len(p))
}

func (s brokenSender) Prioritize() { s.b.call("Prioritize") }

func (s brokenSender) SetWriteDeadline(t time.Time) error {
	s.b.call("SetWriteDeadline")
	return s.Sender.SetWriteDeadline(t)
}

type brokenReceiver struct {
	transport.Receiver
	b broken
}

func (r brokenReceiver) Capabilities() transport.Capabilities {
	return transport.Capabilities{Poller: r, CPULocator: r}
}

func (r brokenReceiver) Read(p []byte) (int, error) {
	if r.b.call("Read") {
		return 0, nil
	}
	n, err := r.Receiver.Read(p)
	if r.b.fault == "long Read" {
		n = len(p) + 1
	}
	return n, err
}

func (r brokenReceiver) TryRead(p []byte) (int, error) {
	r.b.call("TryRead")
	n, err := r.Receiver.Read(p)
	if r.b.fault == "long TryRead" {
		n = len(p) + 1
	}
	return n, err
}

func (r brokenReceiver) ReadFunc(n int, view func([]byte)) (int, error) {
	return r.readFunc("ReadFunc", n, view)
}

func (r brokenReceiver) TryReadFunc(n int, view func([]byte)) (int, error) {
	return r.readFunc("TryReadFunc", n, view)
}

func (r brokenReceiver) readFunc(call string, n int, view func([]byte)) (int, error) {
	r.b.call(call)
	fault, ok := strings.CutSuffix(r.b.fault, " "+call)
	if !ok {
		return r.Receiver.ReadFunc(n, view)
	}
	switch fault {
	case "short":
		view(make([]byte, n-1))
		return n - 1, nil
	case "miscounting":
		view(make([]byte, n-1))
	case "piecemeal":
		view(make([]byte, 1))
		view(make([]byte, n-1))
	case "oversized":
		view(make([]byte, n+1))
	}
	return n, nil
}

func (r brokenReceiver) WaitReadable()   { r.b.call("WaitReadable") }
func (r brokenReceiver) SetPolling(bool) { r.b.call("SetPolling") }

func (r brokenReceiver) PeerCPU() int {
	r.b.call("PeerCPU")
	if r.b.fault == "negative PeerCPU" {
		return -2
	}
	return 0
}

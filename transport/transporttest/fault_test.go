package transporttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faultVariable is the environment variable with the fault of TestFaulty.
const faultVariable = "TRANSPORTTEST_FAULT"

// faults maps each fault to the subtest that must find it.
func faults() map[string]string {
	faults := map[string]string{
		"no address":                  "Addresses",
		"wrong peer name":             "Addresses",
		"identity not checked":        "Identity",
		"dial error without address":  "DialClosed",
		"cancelled dial leaves conn":  "CancelDial",
		"accept ignores context":      "CancelAccept",
		"accept pipe ignores context": "CancelAcceptPipe",
		"one wrong byte":              "Sizes",
		"write count too high":        "Sizes",
		"write count too low":         "Sizes",
		"read count too high":         "MixedReads",
		"read of nothing":             "MixedReads",
		"view too long":               "ReadFuncPieces",
		"empty view":                  "ReadFuncPieces",
		"view of zero bytes":          "ZeroBytes",
		"last byte lost":              "EOF",
		"EOF expected":                "UnexpectedEOF",
		"one writer at a time":        "Independence",
		"unbounded buffer":            "BackPressure",
		"deadline count too high":     "WriteDeadline",
		"deadline count is zero":      "DeadlinesInTransfer",
		"write deadline ignored":      "WriteDeadlineInterrupts",
		"slice still in view":         "NoViewAfterWrite",
		"wrong deadline error":        "ReadDeadline",
		"read deadline ignored":       "ReadDeadlineInterrupts",
		"half a TryWrite":             "TryWrite",
		"torn TryWrite":               "TryWriteConcurrently",
		"write after close":           "SenderClose",
		"close waits for write":       "SenderCloseInterrupts",
		"writes after receiver close": "ReceiverClose",
		"wrong error of conn":         "ConnClose",
		"no error of conn":            "ConnClose",
		"last Close decides":          "FirstCloseDecides",
		"accept after close":          "TransportClose",
		"death looks like Close":      "Kill",
		"goroutine left":              "Addresses",
		"close hangs":                 "Addresses",
	}
	maps.Copy(faults, remoteFaults())
	return faults
}

// TestSuiteFindsFaults runs TestFaulty with each fault in a separate process. The subtest must
// fail there.
func TestSuiteFindsFaults(t *testing.T) {
	for fault, subtest := range faults() {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			t.Parallel()
			// Some faults show only if two goroutines meet, which may take several
			// attempts on a busy machine.
			var out []byte
			found := false
			for attempt := 0; attempt < 5 && !found; attempt++ {
				cmd := exec.Command(os.Args[0], "-test.run=^TestFaulty$/^"+subtest+"$", "-test.timeout=60s")
				cmd.Env = append(os.Environ(), faultVariable+"="+fault)
				text, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				out = text
				found = errors.As(err, &exit) && strings.Contains(string(out), "--- FAIL: TestFaulty/"+subtest)
			}
			if !found {
				t.Errorf("%s does not find the fault %q\n%s", subtest, fault, out)
			}
			if strings.Contains(string(out), "test timed out") {
				t.Errorf("%s hangs with the fault %q\n%s", subtest, fault, out)
			}
		})
	}
}

// TestRequire: NEXAR_REQUIRE makes a skipped subtest fail.
func TestRequire(t *testing.T) {
	for require, want := range map[string]bool{"": true, "kill": true, "kill,prioritize": false} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaulty$/^Prioritize$", "-test.v")
		cmd.Env = append(os.Environ(), "NEXAR_REQUIRE="+require)
		out, err := cmd.CombinedOutput()
		if got := err == nil; got != want || !strings.Contains(string(out), "its senders lack the capability Prioritizer") {
			t.Errorf("NEXAR_REQUIRE=%s: passes %v, want %v\n%s", require, got, want, out)
		}
	}
}

// TestFaulty runs the suite with the fault that faultVariable names. Without one, the
// suite must pass.
func TestFaulty(t *testing.T) {
	fault := os.Getenv(faultVariable)
	factory := func(tb testing.TB, n int) transporttest.Cluster { return newFaulty(tb, n, fault) }
	if fault == "goroutine left" {
		transporttest.Run(t, factory)
		return
	}
	transporttest.RunInBubble(t, factory)
}

// newFaulty returns transports of package mem with a fault.
func newFaulty(tb testing.TB, n int, fault string) transporttest.Cluster {
	var c transporttest.Cluster
	network := mem.NewNetwork()
	granted := &grantedMemory{byKey: make(map[transport.RemoteKey]granted)}
	for i := range n {
		t, err := network.Listen(fmt.Sprint("rank", i))
		if err != nil {
			tb.Fatal(err)
		}
		c.Transports = append(c.Transports, &faulty{t, fault, granted})
		c.Identities = append(c.Identities, fmt.Sprint("rank", i))
	}
	c.Kill = func(i int) {
		if fault == "death looks like Close" {
			c.Transports[i].Close()
			return
		}
		network.Kill(c.Identities[i])
	}
	return c
}

// A faulty transport breaks one promise.
type faulty struct {
	transport.Transport
	fault   string
	granted *grantedMemory
}

func (f *faulty) Addr() string {
	if f.fault == "no address" {
		return ""
	}
	return f.Transport.Addr()
}

func (f *faulty) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if f.fault == "identity not checked" {
		peer = ""
	}
	c, err := f.Transport.Dial(ctx, addr, peer)
	switch {
	case err == nil:
		return f.conn(c), nil
	case f.fault == "dial error without address":
		return nil, errors.New("dial failed")
	case f.fault == "cancelled dial leaves conn":
		f.Transport.Dial(context.WithoutCancel(ctx), addr, peer)
	}
	return nil, err
}

func (f *faulty) Accept(ctx context.Context) (transport.Conn, error) {
	if f.fault == "accept ignores context" {
		ctx = context.WithoutCancel(ctx)
	}
	c, err := f.Transport.Accept(ctx)
	if err == nil {
		return f.conn(c), nil
	}
	if f.fault == "accept after close" && errors.Is(err, transport.ErrClosed) {
		return nil, io.EOF
	}
	return nil, err
}

func (f *faulty) Close() error {
	switch f.fault {
	case "close hangs":
		select {}
	case "goroutine left":
		go func() { select {} }()
	}
	return f.Transport.Close()
}

func (f *faulty) conn(c transport.Conn) transport.Conn {
	return &faultyConn{c, f.fault, make(chan struct{}, 1), f.granted}
}

type faultyConn struct {
	transport.Conn
	fault   string
	writing chan struct{} // holds a token while one of its pipes is written to
	granted *grantedMemory
}

// Capabilities implements [transport.Capable].
func (f *faultyConn) Capabilities() transport.Capabilities {
	return transport.Capabilities{RemoteMemory: f}
}

func (f *faultyConn) Peer() string {
	if f.fault == "wrong peer name" {
		return "another"
	}
	return f.Conn.Peer()
}

func (f *faultyConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := f.Conn.OpenPipe(ctx)
	if err != nil {
		return nil, err
	}
	return &faultySender{Sender: s, TryWriter: transport.CapabilitiesOf(s).TryWriter, conn: f, fault: f.fault}, nil
}

func (f *faultyConn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if f.fault == "accept pipe ignores context" {
		ctx = context.WithoutCancel(ctx)
	}
	r, err := f.Conn.AcceptPipe(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyReceiver{r, f.fault}, nil
}

func (f *faultyConn) Err() error {
	err := f.Conn.Err()
	switch {
	case f.fault == "wrong error of conn" && err != nil:
		return transport.ErrPeerGone
	case f.fault == "last Close decides" && err != nil:
		return transport.ErrClosed
	case f.fault == "no error of conn":
		return nil
	}
	return err
}

type faultySender struct {
	transport.Sender
	transport.TryWriter
	conn  *faultyConn
	fault string

	mu     sync.Mutex
	closed bool
}

func (f *faultySender) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: f}
}

func (f *faultySender) Write(p []byte) (int, error) {
	switch f.fault {
	case "one writer at a time":
		f.conn.writing <- struct{}{}
		defer func() { <-f.conn.writing }()
	case "unbounded buffer":
		return len(p), nil
	case "slice still in view":
		return f.writeDetached(p)
	case "write after close":
		if f.isClosed() {
			return len(p), nil
		}
	case "writes after receiver close":
		if n, err := f.Sender.Write(p); !errors.Is(err, transport.ErrPeerClosed) {
			return n, err
		}
		return len(p), nil
	}
	n, err := f.Sender.Write(p)
	switch f.fault {
	case "write count too high":
		n++
	case "write count too low":
		n = max(0, n-1)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		switch f.fault {
		case "deadline count too high":
			n++
		case "deadline count is zero":
			n = 0
		}
	}
	return n, err
}

// writeDetached returns after a millisecond while the reader still has the view.
func (f *faultySender) writeDetached(p []byte) (n int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, err = f.Sender.Write(p)
	}()
	select {
	case <-done:
		return n, err
	case <-time.After(time.Millisecond):
		return 1, os.ErrDeadlineExceeded
	}
}

func (f *faultySender) SetWriteDeadline(t time.Time) error {
	if f.fault == "write deadline ignored" && !t.IsZero() && t.Before(time.Now()) {
		return nil
	}
	return f.Sender.SetWriteDeadline(t)
}

func (f *faultySender) TryWrite(p []byte) bool {
	switch f.fault {
	case "half a TryWrite":
		if !f.TryWriter.TryWrite(p) {
			f.TryWriter.TryWrite(p[:len(p)/2])
			return false
		}
		return true
	case "torn TryWrite":
		return f.TryWriter.TryWrite(p[:1]) && f.TryWriter.TryWrite(p[2:])
	}
	return f.TryWriter.TryWrite(p)
}

func (f *faultySender) Close() error {
	switch f.fault {
	case "close waits for write":
		select {
		case <-f.conn.Done():
		case <-time.After(time.Hour):
		}
	case "write after close":
		f.mu.Lock()
		f.closed = true
		f.mu.Unlock()
	}
	return f.Sender.Close()
}

func (f *faultySender) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

type faultyReceiver struct {
	transport.Receiver
	fault string
}

func (f *faultyReceiver) Read(p []byte) (int, error) {
	switch f.fault {
	case "read of nothing":
		return 0, nil
	case "last byte lost":
		n, err := f.Receiver.Read(p)
		if n > 1 {
			n--
		}
		return n, err
	case "read count too high":
		return len(p) + 1, nil
	}
	n, err := f.Receiver.Read(p)
	if f.fault == "wrong deadline error" && err != nil {
		err = errors.New("too late")
	}
	return n, err
}

func (f *faultyReceiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	switch f.fault {
	case "one wrong byte":
		if n > 4096 {
			inner := view
			view = func(p []byte) {
				q := append([]byte(nil), p...)
				q[len(q)/2] ^= 1
				inner(q)
			}
		}
	case "view too long":
		inner := view
		view = func(p []byte) { inner(p[:len(p):len(p)]); inner([]byte{0}) }
	case "empty view":
		view(nil)
	case "view of zero bytes":
		if n == 0 {
			view(nil)
		}
	}
	got, err := f.Receiver.ReadFunc(n, view)
	if f.fault == "EOF expected" && err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return got, err
}

func (f *faultyReceiver) SetReadDeadline(t time.Time) error {
	if f.fault == "read deadline ignored" {
		return nil
	}
	return f.Receiver.SetReadDeadline(t)
}

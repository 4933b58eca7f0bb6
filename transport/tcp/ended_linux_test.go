package tcp

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A failingSocket can end without the knowledge of the peer, as after too many retransmissions: its writes
// fail then, and nothing more arrives.
type failingSocket struct {
	socket
	dead    atomic.Bool
	queued  atomic.Int32 // bytes, as the kernel reports them
	samples atomic.Int32 // number of calls of sample
}

func (m *failingSocket) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return 0, syscall.EHOSTUNREACH
	}
	return m.socket.Write(p)
}

func (m *failingSocket) CloseWrite() error {
	if m.dead.Load() {
		return syscall.ENOTCONN
	}
	return m.socket.CloseWrite()
}

func (m *failingSocket) sample() sample {
	n := m.samples.Add(1)
	return sample{ended: m.dead.Load(), queued: int(m.queued.Load()), acked: uint64(n)} // no stall
}

// replaceSocket replaces the socket of an idle pipe.
func (s *sender) replaceSocket() *failingSocket {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &failingSocket{socket: s.ps.socket}
	s.ps = &pipeSocket{socket: m, raw: noRaw{}, tls: s.ps.tls, records: s.ps.records, dirs: directions{users: 1}}
	return m
}

// A noRaw is the syscall.RawConn of a socket without a file descriptor.
type noRaw struct{}

var errNoRaw = errors.New("the socket has no file descriptor")

func (noRaw) Control(func(uintptr)) error    { return errNoRaw }
func (noRaw) Read(func(uintptr) bool) error  { return errNoRaw }
func (noRaw) Write(func(uintptr) bool) error { return errNoRaw }

// TestSocketEndsInUse checks that the conn ends with its socket, though neither side writes or hears of that end: with
// bytes that only the kernel had, and with bytes that the flusher still had to send.
func TestSocketEndsInUse(t *testing.T) {
	for want, flushes := range map[string]bool{"it has ended with 1 bytes": false, syscall.EHOSTUNREACH.Error(): true} {
		t.Run(want, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{})
			from, to := connect(t, nodes[0], nodes[1])
			s, _ := pipeBetween(t, from, to)
			m := s.replaceSocket()
			m.queued.Store(1)
			if flushes {
				m.dead.Store(true)
				if !s.TryWrite([]byte("data")) { // leaves it to the flusher, since there is no file descriptor
					t.Fatal("TryWrite has not taken the data")
				}
			} else {
				if _, err := s.Write([]byte("data")); err != nil {
					t.Fatal(err)
				}
				eventually(t, "samples, since the socket stays in use", func() bool { return m.samples.Load() >= 3 })
				m.dead.Store(true)
			}
			awaitEnd(t, from, transport.ErrPeerGone)
			awaitEnd(t, to, transport.ErrPeerGone)
			if err := from.Err(); !strings.Contains(err.Error(), "the socket of pipe 0 has failed: "+want) {
				t.Errorf("the conn has ended: %v, want the socket of pipe 0 as the reason, and %q", err, want)
			}
		})
	}
}

// TestSocketEndsBeforeTheEndOfAPipe: the kernel of the peer has all bytes of a closed pipe, and its socket ends before it can send a FIN. The
// reader does not wait for that.
func TestSocketEndsBeforeTheEndOfAPipe(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	m := s.replaceSocket()
	m.dead.Store(true)
	s.Close()
	awaitEnd(t, from, transport.ErrPeerGone)
	if n, err := r.ReadFunc(1, func([]byte) {}); n != 0 || !errors.Is(err, transport.ErrPeerGone) && err != io.ErrUnexpectedEOF {
		t.Errorf("read %d bytes, %v, want %v, or the end if it came first", n, err, transport.ErrPeerGone)
	}
}

// TestSampleOfResetSocket checks that the kernel reports the end of a socket.
func TestSampleOfResetSocket(t *testing.T) {
	here, there := connectTCP(t)
	raw, err := here.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := sampleSocket(raw); !ok || p.ended {
		t.Errorf("a connected socket: %+v, %t, want a sample that has not ended", p, ok)
	}
	there.SetLinger(0)
	there.Close()
	eventually(t, "a sample that has ended", func() bool {
		p, ok := sampleSocket(raw)
		return ok && p.ended
	})
}

// TestBothSidesClose checks that the end of a socket that both sides have closed is no loss, though the peer has not read its pipe to the end.
func TestBothSidesClose(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		ab, fromA, ba, fromB := openPair(t, a, b)
		ab.Write(make([]byte, 1000))
		ab.Close()
		ba.Close()
		if n, err := fromB.ReadFunc(1, func([]byte) {}); n != 0 || err != io.ErrUnexpectedEOF {
			t.Fatalf("at the end of the other pipe: read %d bytes, %v", n, err)
		}
		eventually(t, "the end of the socket", func() bool {
			p, ok := sampleOf(ab.ps.socket)
			return ok && p.ended
		})
		time.Sleep(3 * monitorInterval)
		if err := a.Err(); err != nil {
			t.Fatalf("the conn has ended: %v", err)
		}
		if n, err := fromA.ReadFunc(2000, func([]byte) {}); n != 1000 || err != io.ErrUnexpectedEOF {
			t.Errorf("read %d bytes, %v, want 1000", n, err)
		}
	})
}

package tcp

import (
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
	unsent  bool         // the bytes wait to be sent; otherwise they are in flight
	samples atomic.Int32 // number of calls of sample
}

func (m *failingSocket) Write(p []byte) (int, error) {
	if m.dead.Load() {
		return 0, syscall.EHOSTUNREACH
	}
	return m.socket.Write(p)
}

func (m *failingSocket) unacked() int { return 1 }

func (m *failingSocket) sample() sample {
	m.samples.Add(1)
	isAlive := !m.dead.Load()
	return sample{ended: !isAlive, inFlight: isAlive && !m.unsent, unsent: isAlive && m.unsent}
}

// replaceSocket replaces the socket of an idle pipe.
func (s *sender) replaceSocket() *failingSocket {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &failingSocket{socket: s.flow.sock}
	s.flow = &subflow{sock: m, raw: noRaw{}, ps: s.flow.ps}
	return m
}

// TestSocketEndsInUse checks that the conn ends with its socket, though neither side writes or hears of that end: with
// bytes that only the kernel had, in flight or not sent yet, and with bytes that the flusher still had to send.
func TestSocketEndsInUse(t *testing.T) {
	for name, where := range map[string]struct{ flushes, unsent bool }{
		"bytes in flight": {}, "unsent bytes in the kernel": {unsent: true}, "bytes of the flusher": {flushes: true},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{})
			nodes[0].causeTimeout = time.Hour // The answer of the peer ends the conn, as long as the monitor stays awake.
			from, to := connect(t, nodes[0], nodes[1])
			s, _ := pipeBetween(t, from, to)
			m := s.replaceSocket()
			m.unsent = where.unsent
			if where.flushes {
				m.dead.Store(true)
				if !s.TryWrite([]byte("data")) { // leaves it to the flusher, since there is no file descriptor
					t.Fatal("TryWrite has not taken the data")
				}
			} else {
				if _, err := s.Write([]byte("data")); err != nil {
					t.Fatal(err)
				}
				eventually(t, "a sample after the write", func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.path.sent == s.sent
				})
				earlier := m.samples.Load()
				eventually(t, "more samples, since the socket stays in use", func() bool { return m.samples.Load() >= earlier+3 })
				m.dead.Store(true)
			}
			awaitEnd(t, from, transport.ErrPeerGone)
			awaitEnd(t, to, transport.ErrPeerGone)
			if err := from.Err(); !strings.Contains(err.Error(), "the socket of pipe 0 has ended") {
				t.Errorf("the conn has ended: %v, want the socket of pipe 0 as the reason", err)
			}
		})
	}
}

// TestFlusherAfterFailedWrite checks that a Write sends the bytes of a flusher whose write has failed, once and in order.
func TestFlusherAfterFailedWrite(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	m := s.replaceSocket()
	m.dead.Store(true)
	if !s.TryWrite([]byte("first ")) {
		t.Fatal("TryWrite has not taken the data")
	}
	eventually(t, "the failure of the flusher", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.flushFailed
	})
	m.dead.Store(false)
	if _, err := s.Write([]byte("second")); err != nil {
		t.Fatal(err)
	}
	var got []byte
	if _, err := r.ReadFunc(12, func(p []byte) { got = append(got, p...) }); err != nil || string(got) != "first second" {
		t.Errorf("read %q, %v, want %q", got, err, "first second")
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

// TestEndOfEarlierSocket checks that the end of a socket does not count for the next one of the pipe, which the peer has not confirmed yet: the
// conn would end with it after causeTimeout.
func TestEndOfEarlierSocket(t *testing.T) {
	m := new(failingSocket)
	m.dead.Store(true)
	s := &sender{conn: &conn{queued: make(chan struct{}, 1)}, flow: &subflow{sock: m}, sent: 1}
	began := time.Now()
	if s.sample(began); !s.path.ended.hasBegun() {
		t.Fatal("the end of the first socket is not noticed")
	}
	s.flow = new(subflow)
	s.flow.unconfirmed.Store(true)
	if s.sample(began.Add(monitorInterval)); s.path.ended.hasBegun() {
		t.Error("the next socket counts as ended")
	}
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
			p, ok := ab.flow.sample()
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

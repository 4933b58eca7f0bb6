package link

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A memoryConn has a MemorySharer and lasts.
type memoryConn struct{ polledConn }

func (memoryConn) Areas() (count, size int)                        { return 0, 0 }
func (memoryConn) AcquireAreas() (transport.Areas, error)          { return nil, transport.ErrClosed }
func (memoryConn) FutexWait(*atomic.Uint32, uint32, time.Duration) {}
func (memoryConn) FutexWake(*atomic.Uint32)                        {}
func (memoryConn) PeerEnded() func() bool                          { return nil }

func newClaiming(t *testing.T, claim func(*Link, wire.Message) (uint64, bool)) *polledPair {
	v := &polledPair{hb: newHandler(), got: make(chan []byte, 100)}
	ca, cb := conns(t)
	var pumps sync.WaitGroup
	t.Cleanup(pumps.Wait)
	v.hb.claim = claim
	v.hb.message = func(_ wire.Message, p []byte) {
		v.b.Credit().Consumed(wire.Messages, len(p))
		v.got <- append([]byte{}, p...)
	}
	v.b = start(t, memoryConn{polledConn{cb, &pumps}}, v.hb)
	v.a = start(t, ca, newHandler())
	return v
}

func (c memoryConn) Capabilities() transport.Capabilities {
	return transport.Capabilities{MemorySharer: c, Lasting: true}
}

// An owner is called with filled sinks.
type owner func(s *Sink)

func (o owner) Filled(s *Sink) { o(s) }

// numbers returns n bytes, each different from its neighbors.
func numbers(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}

// TestClaim: a claimed message is read into its sink, or discarded for claim 0. Short and unclaimed
// messages are passed to the handler. All credit is returned.
func TestClaim(t *testing.T) {
	const size = claimBytesMin + 1234
	dst, rest := make([]byte, 5000), make([]byte, size-5000)
	sink := &Sink{Dst: dst, More: [][]byte{rest}}
	filled := make(chan struct{}, 1)
	sink.Owner = owner(func(*Sink) { filled <- struct{}{} })
	v := newClaiming(t, func(l *Link, m wire.Message) (uint64, bool) {
		switch m.Tag {
		case 1:
			return l.Claim(sink), true
		case 2:
			return 0, true
		}
		return 0, false
	})
	p := v.startPolling(t)
	defer func() { p.Stop(false) }()
	send := func(tag int64, n int) {
		for end := time.Now().Add(10 * time.Second); !v.a.Credit().Take(wire.Messages, n); p.Poll() {
			if time.Now().After(end) {
				t.Fatal("the credit was not returned")
			}
		}
		v.a.SendMessage(wire.Message{Tag: tag}, numbers(n))
	}
	for i := range 200 {
		clear(dst)
		clear(rest)
		send(1, size)
		send(2, size)
		send(3, size)
		send(1, claimBytesMin-1)
		v.hear(t, size, func() { p.Poll() })
		v.hear(t, claimBytesMin-1, func() { p.Poll() })
		select {
		case <-filled:
		default:
			t.Fatalf("message %d is not in its sink when a later one has arrived", i)
		}
		if got := append(bytes.Clone(dst), rest...); !bytes.Equal(got, numbers(size)) {
			t.Fatalf("the payload of message %d differs", i)
		}
		if i == 100 {
			p.Stop(false) // From now on the link's own goroutine reads.
			p = Polling{link: v.b}
		}
	}
}

// TestUngrantClaim: after a claim was withdrawn, the rest of its message is discarded, and
// later messages arrive.
func TestUngrantClaim(t *testing.T) {
	for range 50 {
		const size = wire.PayloadMax
		dst := make([]byte, size)
		sink := &Sink{Dst: dst, Owner: owner(func(*Sink) {})}
		claimed := make(chan struct{}, 2)
		v := newClaiming(t, func(l *Link, m wire.Message) (uint64, bool) {
			if m.Tag != 1 {
				return 0, false
			}
			id := l.Claim(sink)
			claimed <- struct{}{}
			return id, true
		})
		v.a.SendMessage(wire.Message{Tag: 1}, numbers(size))
		v.a.SendMessage(wire.Message{Tag: 3}, numbers(size))
		<-claimed
		v.b.Ungrant(sink)
		clear(dst)
		v.hear(t, size, nothing)
		if bytes.ContainsFunc(dst, func(r rune) bool { return r != 0 }) {
			t.Fatal("memory was written after its claim was withdrawn")
		}
	}
}

package link

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A picker has a TryVectorWriter that accepts some of the writes.
type picker struct {
	transport.Sender
	try          transport.TryWriter
	rng          *rand.Rand
	took, passed *atomic.Int64
}

func (p *picker) TryWrite(b []byte) bool { return p.rng.IntN(3) > 0 && p.try.TryWrite(b) }

func (p *picker) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: p, TryVectorWriter: p}
}

func (p *picker) TryWriteVectored(pieces [][]byte) bool {
	if p.rng.IntN(3) == 0 || !p.try.TryWrite(slices.Concat(pieces...)) {
		p.passed.Add(1)
		return false
	}
	p.took.Add(1)
	return true
}

// TestVectoredPayloads: long payloads are written from their own memory if the pipe takes them, and arrive complete and in order in
// any case.
func TestVectoredPayloads(t *testing.T) {
	t.Run("the connection lasts", func(t *testing.T) { testVectoredPayloads(t, true) })
	t.Run("the connection may break", func(t *testing.T) { testVectoredPayloads(t, false) })
}

func testVectoredPayloads(t *testing.T, lasts bool) {
	ha, hb := newHandler(), newHandler()
	var took, passed atomic.Int64
	var a, b *Link
	const messages = 2000
	payload := func(tag int64) []byte {
		size := []int{0, 10, directBytesMin - 1, directBytesMin, 5000, 30_000}[tag%6]
		return bytes.Repeat([]byte{byte(tag)}, size)
	}
	done, next := make(chan struct{}), int64(0)
	hb.message = func(m wire.Message, p []byte) {
		if m.Tag != next || !bytes.Equal(p, payload(next)) {
			t.Errorf("message %d with %d bytes, want %d with %d", m.Tag, len(p), next, len(payload(next)))
		}
		b.Credit().Consumed(wire.Messages, len(p))
		if next++; next == messages {
			close(done)
		}
	}
	wrap := func(c transport.Conn) transport.Conn {
		return &conn{Conn: c, lasts: lasts, sender: func(lane wire.Lane, s transport.Sender) transport.Sender {
			return &picker{s, transport.CapabilitiesOf(s).TryWriter, rand.New(rand.NewPCG(1, uint64(lane))), &took, &passed}
		}}
	}
	a, b = pair(t, ha, hb, func(a, b transport.Conn) (transport.Conn, transport.Conn) { return wrap(a), wrap(b) })
	for tag := range int64(messages) {
		p := payload(tag)
		soon(t, "credit", func() {
			for !a.Credit().Take(wire.Messages, len(p)) {
			}
		})
		half := len(p) - len(p)/3
		a.SendMessage(wire.Message{Tag: tag}, p[:half], p[half:])
		clear(p) // It may be used again.
	}
	soon(t, "the last message", func() { <-done })
	if took.Load() == 0 || passed.Load() == 0 {
		t.Errorf("the pipe accepted %d payloads and refused %d, want some of both", took.Load(), passed.Load())
	}
}

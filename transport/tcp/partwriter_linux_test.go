package tcp

import (
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// TestTryWriteLongest: TryWriteVectored takes frames with the longest payload until the socket is full, and the flusher sends the rest.
func TestTryWriteLongest(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		next, expect, total := counting(), counting(), 0
		const head = 45
		for {
			frame := next(head + wire.PayloadMax)
			if !s.TryWriteVectored([][]byte{frame[:head], frame[head:]}) {
				break
			}
			total += len(frame)
		}
		if total == 0 {
			t.Error("the first frame is refused")
		}
		r.SetReadDeadline(time.Now().Add(soon))
		n, err := r.ReadFunc(total, func(p []byte) {
			if !slices.Equal(p, expect(len(p))) {
				t.Error("the bytes are wrong")
			}
		})
		if n != total || err != nil {
			t.Errorf("read %d of %d, %v", n, total, err)
		}
	})
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestStartMessages: many short and long messages in both directions at once arrive in
// the order of the calls. Status identifies each.
func TestStartMessages(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			comms := m.Cluster(t, 3, nexar.Config{})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
				defer cancel()
				to, from := stream{rank, (rank + 1) % 3, 4}, stream{(rank + 2) % 3, rank, 4}
				var sends, receives []*nexar.Handle
				var buffers [][]int32
				for k := range 2 * len(streamLengths) {
					buffers = append(buffers, make([]int32, 300_001))
					ask := stream{from.from, rank, from.tag}
					if k%3 == 1 {
						ask.from = nexar.AnyRank
					}
					if k%2 == 1 {
						ask.tag = nexar.AnyTag
					}
					receives = append(receives, nexar.StartRecv(ctx, c, buffers[k], ask.from, ask.tag))
					sends = append(sends, nexar.StartSend(ctx, c, to.message(k), to.to, to.tag))
				}
				for k, h := range slices.Backward(receives) {
					if err := h.Wait(); err != nil {
						return err
					}
					if err := from.check(k, h.Status(), buffers[k]); err != nil {
						return err
					}
				}
				return nexar.WaitAll(sends...)
			})
		})
	}
}

// TestStartExchange: ranks exchange in rings of both directions at once.
func TestStartExchange(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		for _, n := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, n), func(t *testing.T) {
				comms := m.Cluster(t, n, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					next, prev := (rank+1)%n, (rank+n-1)%n
					var handles []*nexar.Handle
					var buffers [][]int32
					for i := range 8 {
						buffers = append(buffers, make([]int32, 40_001))
						src := slices.Repeat([]int32{int32(10*rank + i)}, 5_000*i)
						to, from := next, prev
						if i%2 == 1 {
							to, from = prev, next
						}
						handles = append(handles, nexar.StartExchange(t.Context(), c, buffers[i], src, to, from, nexar.Tag(i)))
					}
					for i, h := range handles {
						from := prev
						if i%2 == 1 {
							from = next
						}
						if err := h.Wait(); err != nil {
							return err
						}
						want := nexar.Status{Source: from, Tag: nexar.Tag(i), Count: 5_000 * i}
						if got := h.Status(); got != want {
							return fmt.Errorf("exchange %d: %+v, want %+v", i, got, want)
						}
						if i > 0 && (buffers[i][want.Count-1] != int32(10*from+i) || buffers[i][want.Count] != 0) {
							return fmt.Errorf("exchange %d has received %v", i, buffers[i][want.Count-1:][:2])
						}
					}
					return nil
				})
			})
		}
	}
}

// TestStartedMessageFails: a refused message is lost on both sides. If a receive is cancelled, no
// message is lost. The communicator goes on.
func TestStartedMessageFails(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			comms := m.Cluster(t, 2, nexar.Config{})
			const n = 40_000 // longer than a message without a grant
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				x := make([]int32, n)
				if rank == 0 {
					refused, taken := nexar.StartSend(t.Context(), c, x, 1, 5), nexar.StartSend(t.Context(), c, x, 1, 5)
					if err := refused.Wait(); !errors.Is(err, nexar.ErrTruncated) {
						return fmt.Errorf("send: %w, want %w", err, nexar.ErrTruncated)
					}
					return taken.Wait()
				}
				short, cancel := context.WithTimeoutCause(t.Context(), 3*time.Millisecond, worldtest.ErrCancelled)
				defer cancel()
				h := nexar.StartRecv(short, c, x, 0, 6)
				if err := h.Wait(); !errors.Is(err, worldtest.ErrCancelled) || h.Status() != (nexar.Status{}) {
					return fmt.Errorf("recv without a message: %w, %+v, want %w", err, h.Status(), worldtest.ErrCancelled)
				}
				if err := nexar.StartRecv(t.Context(), c, x[:n-1], 0, 5).Wait(); !errors.Is(err, nexar.ErrTruncated) {
					return fmt.Errorf("recv into a short vector: %w, want %w", err, nexar.ErrTruncated)
				}
				h = nexar.StartRecv(t.Context(), c, x, nexar.AnyRank, nexar.AnyTag)
				if err := h.Wait(); err != nil || h.Status() != (nexar.Status{Source: 0, Tag: 5, Count: n}) {
					return fmt.Errorf("recv of the next one: %w, %+v", err, h.Status())
				}
				return nil
			})
			worldtest.CheckWorks(t, comms)
		})
	}
}

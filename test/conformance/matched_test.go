package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// Messages of unknown length, short and long, are received whole, also by several
// goroutines that receive from each other's sources.
func TestRecvAlloc(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			const receivers, each = 4, 30
			comms := m.Cluster(t, 2, nexar.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
			defer cancel()
			lengths := []int{0, 1, 1000, 16 << 10, 100_000}
			seen := make([]int, receivers*each)
			var mu sync.Mutex
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				if rank == 0 {
					for i := range receivers * each {
						data := slices.Repeat([]int32{int32(i)}, 1+lengths[i%len(lengths)])
						if err := nexar.Send(ctx, c, data, 1, nexar.Tag(i%3)); err != nil {
							return err
						}
					}
					return nil
				}
				return worldtest.ForEach(receivers, func(int) error {
					for range each {
						data, status, err := nexar.RecvAlloc[int32](ctx, c, nexar.AnyRank, nexar.AnyTag)
						if err != nil {
							return err
						}
						i := int(data[0])
						if status.Count != len(data) || status.Source != 0 || status.Tag != nexar.Tag(i%3) || !slices.Equal(data, slices.Repeat(data[:1], 1+lengths[i%len(lengths)])) {
							return fmt.Errorf("message %d has %d elements, status %+v", i, len(data), status)
						}
						mu.Lock()
						seen[i]++
						mu.Unlock()
					}
					return nil
				})
			})
			if slices.Min(seen) != 1 || slices.Max(seen) != 1 {
				t.Errorf("messages were received %v times, want once each", seen)
			}
		})
	}
}

// A message that a MatchedProbe has taken is received by RecvMatched alone, later messages
// overtake it, and it is received once.
func TestMatchedProbe(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		for _, count := range []int{3, 100_000} {
			t.Run(fmt.Sprint(m.Name, "/", count), func(t *testing.T) {
				comms := m.Cluster(t, 2, nexar.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				var sending sync.WaitGroup
				for _, v := range []float32{1, 2} {
					h := nexar.StartSend(ctx, comms[0], slices.Repeat([]float32{v}, count), 1, 5)
					sending.Go(func() {
						if err := h.Wait(); err != nil {
							t.Error(err)
						}
					})
				}
				c := comms[1]
				first, err := c.MatchedProbe(ctx, 0, 5)
				if err != nil {
					t.Fatal(err)
				}
				if first.Source() != 0 || first.Tag() != 5 || first.Bytes() != 4*count {
					t.Errorf("the message is from rank %d, with tag %d and %d bytes", first.Source(), first.Tag(), first.Bytes())
				}
				data := make([]float32, count)
				if _, err := nexar.Recv(ctx, c, data, 0, 5); err != nil || data[count-1] != 2 {
					t.Errorf("Recv: %v, %v, want the second message", data[count-1], err)
				}
				if s, err := nexar.RecvMatched(ctx, first, data); err != nil || s.Count != count || data[count-1] != 1 {
					t.Errorf("RecvMatched: %v, %+v, %v, want the first message", data[count-1], s, err)
				}
				if _, err := nexar.RecvMatched(ctx, first, data); !errors.Is(err, nexar.ErrReceived) {
					t.Errorf("a second RecvMatched: %v, want ErrReceived", err)
				}
				sending.Wait()
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// Credit of matched messages returns to the sender, so it can send any number of them.
func TestMatchedCredit(t *testing.T) {
	comms := worldtest.QUIC().Cluster(t, 2, nexar.Config{})
	const messages = 100 // of the longest length without a grant: many times the credit of a rank
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		for range messages {
			if rank == 0 {
				if err := nexar.Send(t.Context(), c, make([]byte, wire.PayloadMax), 1, 0); err != nil {
					return err
				}
				continue
			}
			if _, _, err := nexar.RecvAlloc[byte](t.Context(), c, 0, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// Elements that do not fit are an error, and the message is lost.
func TestMatchedMismatch(t *testing.T) {
	comms := worldtest.MemLinks().Cluster(t, 2, nexar.Config{})
	ctx := t.Context()
	for range 2 {
		if err := nexar.Send(ctx, comms[0], []byte{1, 2, 3}, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := nexar.RecvAlloc[int32](ctx, comms[1], 0, 0); !errors.Is(err, nexar.ErrTypeMismatch) || !strings.HasPrefix(err.Error(), "nexar: recv_alloc: ") {
		t.Errorf("RecvAlloc: %v, want an ErrTypeMismatch", err)
	}
	m, err := comms[1].MatchedProbe(ctx, nexar.AnyRank, nexar.AnyTag)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nexar.RecvMatched(ctx, m, make([]byte, 2)); !errors.Is(err, nexar.ErrTruncated) {
		t.Errorf("RecvMatched: %v, want an ErrTruncated", err)
	}
	for _, err := range []error{
		func() error { _, err := comms[1].MatchedProbe(ctx, 2, 0); return err }(),
		func() error { _, _, err := nexar.RecvAlloc[byte](ctx, comms[1], -3, 0); return err }(),
	} {
		if !errors.Is(err, nexar.ErrInvalidRank) {
			t.Errorf("error %v, want an ErrInvalidRank", err)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// A MatchedProbe ends with its context, and the next message is not lost; a message that is
// never received does not keep the communicator from ending.
func TestMatchedProbeEnds(t *testing.T) {
	comms := worldtest.MemLinks().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := comms[1].MatchedProbe(ctx, 0, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := comms[1].MatchedProbe(ctx, 0, 1)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	for tag := range nexar.Tag(2) {
		if err := nexar.Send(t.Context(), comms[0], []byte{1}, 1, tag); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := comms[1].MatchedProbe(t.Context(), 0, 1); err != nil {
		t.Error(err)
	}
	m, err := comms[1].MatchedProbe(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	comms[1].Close()
	if _, err := nexar.RecvMatched(t.Context(), m, make([]byte, 1)); !errors.Is(err, nexar.ErrClosed) {
		t.Errorf("RecvMatched after Close: %v, want ErrClosed", err)
	}
}

// An endingContext ends when it has been asked a number of times whether it has.
type endingContext struct {
	context.Context
	left int
}

func (c *endingContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestRecvAllocLosesNothing: if its context ends at any time, a message that has arrived is received, by this call or by the next one.
func TestRecvAllocLosesNothing(t *testing.T) {
	comms := worldtest.MemLinks().Cluster(t, 2, nexar.Config{})
	for left := range 6 {
		if err := nexar.Send(t.Context(), comms[0], []byte{byte(left)}, 1, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := nexar.Probe[byte](t.Context(), comms[1], 0, 0); err != nil {
			t.Fatal(err)
		}
		data, _, err := nexar.RecvAlloc[byte](&endingContext{t.Context(), left}, comms[1], 0, 0)
		if err != nil {
			ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
			data, _, err = nexar.RecvAlloc[byte](ctx, comms[1], 0, 0)
			cancel()
		}
		if err != nil || !slices.Equal(data, []byte{byte(left)}) {
			t.Fatalf("a context that ends after %d questions: %v and error %v, want the message", left, data, err)
		}
	}
}

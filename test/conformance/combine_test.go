package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestCombinePanics: a function that panics, in a caller that recovers, revokes the
// communicator on all ranks. No rank waits for it.
func TestCombinePanics(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		for _, count := range []int{1, 100_000} {
			combinePanics(t, m, count)
		}
	}
}

// combinePanics makes the function panic on the first rank that calls it: with some
// algorithms, some ranks never call it.
func combinePanics(t *testing.T, m worldtest.Medium, count int) {
	comms := m.Cluster(t, 3, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	var culprit atomic.Int32 // its rank plus 1
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) (err error) {
		combine := func(dst, src []int32) {
			if culprit.CompareAndSwap(0, int32(rank)+1) {
				panic("on purpose")
			}
			addTo(dst, src)
		}
		defer func() {
			r := recover()
			if panicked := strings.Contains(fmt.Sprint(r), "on purpose"); panicked != (culprit.Load() == int32(rank)+1) {
				t.Errorf("rank %d: recovered %v, and rank %d has panicked", rank, r, culprit.Load()-1)
			}
		}()
		for {
			x := slices.Repeat([]int32{1}, count)
			err := nexar.AllReduceFunc(ctx, c, x, combine)
			if err == nil && !slices.Equal(x, slices.Repeat([]int32{3}, count)) {
				t.Errorf("%s, rank %d: no error, and not the sum", m.Name, rank)
			}
			if err != nil {
				if !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), fmt.Sprint("rank ", culprit.Load()-1)) {
					t.Errorf("rank %d: %v, want that rank %d has revoked", rank, err, culprit.Load()-1)
				}
				return nil
			}
		}
	})
	for rank, c := range comms {
		if err := c.Barrier(ctx); !errors.Is(err, nexar.ErrRevoked) {
			t.Errorf("rank %d, later: %v, want ErrRevoked", rank, err)
		}
	}
}

func addTo(dst, src []int32) {
	for i, v := range src {
		dst[i] += v
	}
}

// TestPanicIsNoResult: if a function panics before it has combined its operands, no rank returns
// an incomplete sum without an error, even if its own part was complete before.
func TestPanicIsNoResult(t *testing.T) {
	const count = 8000 // one piece in shared memory
	want := slices.Repeat([]int32{3}, count)
	for range 40 {
		comms := worldtest.Mem().Cluster(t, 3, nexar.Config{Algorithms: []string{"all_reduce=staged"}})
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			defer func() {
				if r := recover(); (r != nil) != (rank == 0) {
					t.Errorf("rank %d: recovered %v", rank, r)
				}
			}()
			x := slices.Repeat([]int32{1}, count)
			err := nexar.AllReduceFunc(t.Context(), c, x, func(dst, src []int32) {
				if rank == 0 {
					panic("on purpose")
				}
				addTo(dst, src)
			})
			if err == nil && !slices.Equal(x, want) {
				t.Errorf("rank %d: no error, and not the sum", rank)
			}
			return nil
		})
	}
}

// TestCombineChangesSource: if a function changes its second operand, no other rank sees
// the change.
func TestCombineChangesSource(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.SHM()) {
		for _, count := range []int{1, 100_000} {
			comms := m.Cluster(t, 3, nexar.Config{})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				x := make([]int32, count)
				for i := range x {
					x[i] = int32(rank + i)
				}
				err := nexar.AllReduceFunc(t.Context(), c, x, func(dst, src []int32) {
					for i := range dst {
						dst[i] += src[i]
						src[i] = -1
					}
				})
				for i, got := range x {
					if want := int32(3 + 3*i); got != want {
						t.Errorf("%s, rank %d: element %d is %d, want %d", m.Name, rank, i, got, want)
						break
					}
				}
				return err
			})
		}
	}
}

// A meeting is the functions of a reduction on two ranks that run at the same time, until a moment.
type meeting struct {
	mu     sync.Mutex
	here   int
	missed bool          // one has not waited for the other
	both   chan struct{} // closed when both are here
	over   chan struct{}
}

// attend returns after the meeting. If the other function does not come, since its rank needs the result of this one first, there is
// none, and attend returns without it.
func (m *meeting) attend(wait, lasts time.Duration) {
	m.mu.Lock()
	if m.here++; m.here == 2 && !m.missed {
		close(m.both)
		time.AfterFunc(lasts, func() { close(m.over) })
	}
	m.mu.Unlock()
	select {
	case <-m.both:
	case <-time.After(wait):
		m.mu.Lock()
		m.missed = m.missed || m.here < 2
		missed := m.missed
		m.mu.Unlock()
		if missed {
			return
		}
	}
	<-m.over
}

// TestSlowFunction: an operation that waits for its turn on this rank, or for a goroutine that is in the function of
// the operation before it, does not time out, however long the function takes. The functions of both ranks run at the same time.
func TestSlowFunction(t *testing.T) {
	t.Parallel()
	const limit, attempts = 2 * time.Second, 20
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.TCP(), worldtest.SHM()) {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			comms := m.Cluster(t, 2, nexar.Config{CollectiveTimeout: limit})
			for range attempts {
				meeting := meeting{both: make(chan struct{}), over: make(chan struct{})}
				worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
					slow := nexar.StartAllReduceFunc(t.Context(), c, []int32{1}, func(dst, src []int32) {
						meeting.attend(limit/4, 5*limit/2)
						addTo(dst, src)
					})
					return nexar.WaitAll(slow, nexar.StartAllReduce(t.Context(), c, []int32{1}, nexar.Sum))
				})
				if !meeting.missed || t.Failed() {
					return
				}
			}
			t.Errorf("in %d attempts, the functions of both ranks did not run at the same time", attempts)
		})
	}
}

// TestMismatchAfterLeave: the error of a mismatch is right if the other rank has left and
// cannot describe its call any more.
func TestMismatchAfterLeave(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.SHM()) {
		comms := m.Cluster(t, 2, nexar.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		defer cancel()
		if err := nexar.Broadcast(ctx, comms[0], []int32{1}, 0); err != nil {
			t.Fatal(err)
		}
		if err := comms[0].Close(); err != nil {
			t.Fatal(err)
		}
		err := comms[1].Barrier(ctx)
		_, mismatch := errors.AsType[*nexar.MismatchError](err)
		p, left := errors.AsType[*nexar.PeerError](err)
		if !mismatch && !(left && p.Left && p.Rank == 0) {
			t.Errorf("%s: %v, want a mismatch with rank 0, or that it has left", m.Name, err)
		}
	}
}

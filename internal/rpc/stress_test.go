package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

var errStress = errors.New("requested error")

// A stress is a world with faults at random moments.
type stress struct {
	*world
	t *testing.T

	mu       sync.Mutex
	rand     *rand.Rand
	contexts []context.Context // of all handlers
	lost     map[int]bool      // by rank
}

// n returns a random number below limit.
func (x *stress) n(limit int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rand.IntN(limit)
}

func (x *stress) duration(limit time.Duration) time.Duration {
	return time.Duration(x.n(int(limit)))
}

// The behavior of a handler, by the first byte of its arguments.
const (
	answers = iota
	isSlow
	isStubborn // and ignores its context
	isLong
	fails
	panics
	ways
)

// handle returns a function of its arguments and its caller, which distinguishes its
// call from all others.
func (x *stress) handle(ctx context.Context, from int, args []byte) ([]byte, error) {
	x.mu.Lock()
	x.contexts = append(x.contexts, ctx)
	x.mu.Unlock()
	switch args[0] {
	case isSlow:
		select {
		case <-time.After(x.duration(20 * time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case isStubborn:
		time.Sleep(x.duration(20 * time.Millisecond))
	case isLong:
		return append(reply(from, args), make([]byte, x.n(200<<10))...), nil
	case fails:
		return nil, errStress
	case panics:
		panic(errStress)
	}
	return reply(from, args), nil
}

func reply(from int, args []byte) []byte {
	return append([]byte{byte(from)}, args[:17]...)
}

// call makes a call with a unique number, and checks its outcome.
func (x *stress) call(from, to int, number uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch x.n(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, x.duration(30*time.Millisecond))
		defer cancel()
	case 1:
		time.AfterFunc(x.duration(30*time.Millisecond), cancel)
	case 2:
		ctx = context.Background()
	}
	what := x.n(ways)
	args := make([]byte, 17+[...]int{0, 50, 1000, wire.PayloadMax, 200 << 10}[x.n(5)])
	args[0] = byte(what)
	binary.BigEndian.PutUint64(args[1:], number)
	binary.BigEndian.PutUint64(args[9:], uint64(to))
	want := string(reply(from, args))
	got, err := x.services[from].Call(ctx, to, "handle", args)
	if err == nil {
		if len(got) < len(want) || string(got[:len(want)]) != want || what == fails || what == panics {
			x.t.Errorf("call %d: %x, want %x", number, got[:min(len(got), 20)], want)
		}
		return
	}
	if !x.fits(ctx, from, to, what, err) {
		x.t.Errorf("call %d of rank %d by rank %d: %v", number, to, from, err)
	}
}

// fits reports whether a call may have ended with err.
func (x *stress) fits(ctx context.Context, from, to, what int, err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch err := err.(type) {
	case *CancelledError:
		// The other rank may notice a deadline first, but not before it.
		deadline, limited := ctx.Deadline()
		return ctx.Err() != nil && errors.Is(err, ctx.Err()) ||
			limited && !time.Now().Before(deadline) && err.Err == context.DeadlineExceeded
	case *GoneError:
		return err.Closed && x.lost[from] || !err.Closed && x.lost[to] && err.Rank == to
	case *AnswerError:
		status := map[wire.RemoteStatus]bool{wire.RemoteFailed: what == fails, wire.RemotePanicked: what == panics}
		return status[err.Status] && err.Text == errStress.Error() && err.Rank == to
	}
	return false // no rank is busy, since all have the same limits
}

// Among calls of all kinds, with cancellations, ranks that die and lost messages at
// random moments, each call returns with its own answer or with a true error, and
// nothing is left at the end.
func TestStress(t *testing.T) {
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runStress(t, seed) })
		})
	}
}

func runStress(t *testing.T, seed uint64) {
	const size, callers, calls = 4, 12, 12
	x := &stress{t: t, rand: rand.New(rand.NewPCG(seed, 0)), lost: make(map[int]bool)}
	x.world = newWorld(t, size, Config{InFlight: 1 + x.n(5), PayloadMax: 512 << 10}, func(f *fabric) {
		f.eager = []int{0, 100, wire.PayloadMax}[x.n(3)]
		if x.n(3) > 0 {
			f.delay = func() time.Duration { return x.duration(3 * time.Millisecond) }
		}
		if x.n(3) > 0 {
			f.slow = func(int) time.Duration { return x.duration(3 * time.Millisecond) }
		}
	})
	x.register(t, "handle", x.handle)
	var wg sync.WaitGroup
	for k := range callers {
		for from := range size {
			wg.Go(func() {
				for i := range calls {
					x.call(from, x.n(size), uint64(from)<<32|uint64(k)<<16|uint64(i))
				}
			})
		}
	}
	for _, rank := range []int{x.n(size), x.n(size)}[x.n(3):] {
		wg.Go(func() {
			time.Sleep(x.duration(150 * time.Millisecond))
			x.mu.Lock()
			again := x.lost[rank]
			x.lost[rank] = true
			x.mu.Unlock()
			if !again {
				x.lose(rank)
			}
		})
	}
	wg.Wait()
	for rank := range size {
		x.close(rank)
		if err := x.services[rank].Wait(t.Context()); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	for _, ctx := range x.contexts {
		if ctx.Err() == nil {
			t.Error("the context of a handler has not ended")
		}
	}
	if len(x.contexts) == 0 {
		t.Error("no handler was called")
	}
}

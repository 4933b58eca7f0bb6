package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A functionCall describes the context of a function after the end of its call.
type functionCall struct {
	deadline time.Time
	limited  bool
	cause    error
}

// registerWait registers "wait" on a rank, which waits until its context ends. The channels report
// the start and the end of each call.
func registerWait(c *nexar.Comm) (began chan time.Time, ended chan functionCall) {
	began, ended = make(chan time.Time, 100), make(chan functionCall, 100)
	c.Register("wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
		var v functionCall
		v.deadline, v.limited = ctx.Deadline()
		began <- time.Now()
		<-ctx.Done()
		v.cause = context.Cause(ctx)
		ended <- v
		return nil, v.cause
	})
	return began, ended
}

// TestCallContext: the context of a function has the deadline of its caller's context and ends with
// it. The communicator still works.
func TestCallContext(t *testing.T) {
	for _, m := range callMedia() {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			w := m.World(t, 2, nexar.Config{})
			comms := w.Comms
			for to, c := range comms {
				began, ended := registerWait(c)
				callWithDeadline(t, w, to, began, ended)
				stopped, stop := context.WithCancelCause(t.Context())
				go func() {
					<-began
					stop(worldtest.ErrCancelled)
				}()
				_, err := comms[0].Call(stopped, to, "wait", nil)
				if want := callText(w, to, "wait", "context canceled: cancelled by the test"); !errors.Is(err, worldtest.ErrCancelled) || !errors.Is(err, context.Canceled) || err.Error() != want {
					t.Errorf("%v, want %q", err, want)
				}
				cause := (<-ended).cause
				if want := `rank 0 has cancelled "wait": context canceled`; !errors.Is(cause, context.Canceled) || cause.Error() != want {
					t.Errorf("cause of the function's context: %v, want %q", cause, want)
				}
			}
			worldtest.CheckWorks(t, comms)
		})
	}
}

// callWithDeadline makes a call with a deadline that passes after the function has started.
func callWithDeadline(t *testing.T, w *worldtest.World, to int, began chan time.Time, ended chan functionCall) {
	t.Helper()
	for limit := 50 * time.Millisecond; ; limit *= 4 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		deadline, _ := ctx.Deadline()
		_, err := w.Comms[0].Call(ctx, to, "wait", nil)
		if want := callText(w, to, "wait", fmt.Sprintf("context deadline exceeded: Rank 0 waits in call of \"wait\" at rank %d", to)); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
		select {
		case v := <-ended:
			// The call carries the time until the deadline, so the deadline of the function
			// is later by the time of the transfer.
			if late := v.deadline.Sub(deadline); !v.limited || late < -time.Millisecond || late > (<-began).Sub(deadline)+limit+time.Millisecond {
				t.Errorf("the deadline of the function is %v after that of the caller", late)
			}
			if !errors.Is(v.cause, context.DeadlineExceeded) {
				t.Errorf("cause of the function's context: %v", v.cause)
			}
			return
		case <-time.After(limit): // the function was not called in time
		}
	}
}

// TestCallContextAfterFailure: the context of a function ends when its caller leaves or
// dies, or the communicator ends.
func TestCallContextAfterFailure(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC(), worldtest.TCP(), worldtest.SHM()) {
		for name, test := range map[string]struct {
			end  func(w *worldtest.World)
			want error
			text string // prefix of the error of operations
		}{
			"left":    {func(w *worldtest.World) { w.Comms[0].Close() }, nexar.ErrPeerFailed, `rank 0, which has called "wait", is gone: rank 0 (node `},
			"died":    {func(w *worldtest.World) { w.Kill(0) }, nexar.ErrPeerFailed, `call of "wait" by rank 0: rank 0 (node `},
			"closed":  {func(w *worldtest.World) { w.Comms[1].Close() }, nexar.ErrClosed, `call of "wait" by rank 0: closed by this rank`},
			"revoked": {func(w *worldtest.World) { worldtest.Revoke(w.Comms[2], worldtest.ErrCancelled) }, nexar.ErrRevoked, `call of "wait" by rank 0: communicator revoked by rank 2: `},
		} {
			t.Run(m.Name+"/"+name, func(t *testing.T) {
				m.Require(t)
				t.Parallel()
				w := m.World(t, 3, nexar.Config{})
				comms := w.Comms
				began, ended := registerWait(comms[1])
				go comms[0].Call(context.Background(), 1, "wait", nil)
				<-began
				test.end(w)
				if v := <-ended; !errors.Is(v.cause, test.want) || !strings.HasPrefix(v.cause.Error(), test.text) {
					t.Errorf("%v, want %v and %q", v.cause, test.want, test.text)
				}
			})
		}
	}
}

// TestCancelCallInTransfer: a call that is cancelled during the transfer of long
// arguments or of a long result does not disturb other calls.
func TestCancelCallInTransfer(t *testing.T) {
	for _, m := range callMedia() {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			t.Parallel()
			w := m.World(t, 2, nexar.Config{MaxConcurrentCalls: 2})
			comms := w.Comms
			registerTurn(comms)
			for i := range 12 {
				ctx, cancel := context.WithCancelCause(t.Context())
				timer := time.AfterFunc(time.Duration(i*i)*50*time.Microsecond, func() { cancel(worldtest.ErrCancelled) })
				args, result := 4<<20, 8
				if i%2 == 1 {
					args, result = result, args
				}
				if err := callTurn(ctx, comms[0], 1, i, args, result); err != nil && !errors.Is(err, worldtest.ErrCancelled) {
					t.Errorf("call %d: %v", i, err)
				}
				timer.Stop()
				cancel(nil)
			}
			// Both calls have ended.
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				return callTurn(t.Context(), c, 1-rank, rank, wire.PayloadMax+1, wire.PayloadMax+1)
			})
			worldtest.CheckWorks(t, comms)
		})
	}
}

// TestSlowFunctionDelaysNothing: slow functions and calls with long arguments do not delay other
// calls, messages and collectives.
func TestSlowFunctionDelaysNothing(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC(), worldtest.TCP(), worldtest.SHM()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			w := m.World(t, 2, nexar.Config{})
			comms := w.Comms
			registerTurn(comms)
			release := make(chan struct{})
			for _, c := range comms {
				c.Register("hold", func(context.Context, int, []byte) ([]byte, error) { <-release; return nil, nil })
			}
			idle := roundsOf(t, comms)
			var held sync.WaitGroup
			const slow = 300
			for i := range slow {
				held.Go(func() {
					args := make([]byte, []int{0, 1000, wire.PayloadMax + 1}[i%3])
					if _, err := comms[i%2].Call(t.Context(), 1-i%2, "hold", args); err != nil {
						t.Error(err)
					}
				})
			}
			busy := roundsOf(t, comms)
			close(release)
			held.Wait()
			t.Logf("a round takes %v, and with %d slow functions %v", idle, slow, busy)
			if busy > 10*idle+50*time.Millisecond {
				t.Errorf("a round takes %v with slow functions, %v without", busy, idle)
			}
		})
	}
}

// roundsOf returns the median time of a sequence of a call, a message and two collectives.
func roundsOf(t *testing.T, comms []*nexar.Comm) time.Duration {
	const rounds = 51
	var took [rounds]time.Duration
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
		defer cancel()
		x, y := make([]int32, 1000), make([]int32, 1000)
		for i := range rounds {
			began := time.Now()
			err := callTurn(ctx, c, 1-rank, i, 100, 200)
			if err == nil {
				_, err = nexar.Exchange(ctx, c, x, y, 1-rank, 1-rank, 0)
			}
			if err == nil {
				err = nexar.AllReduce(ctx, c, x, nexar.Sum)
			}
			if err == nil {
				err = c.Barrier(ctx)
			}
			if err != nil {
				return err
			}
			if rank == 0 {
				took[i] = time.Since(began)
			}
		}
		return nil
	})
	slices.Sort(took[:])
	return took[rounds/2]
}

// TestManyCalls: 10,000 concurrent calls are all answered. At most MaxConcurrentCalls run at a time.
// Memory is bounded by 20 KiB for each waiting caller, mostly its goroutine, and 100 KiB for each
// running call.
func TestManyCalls(t *testing.T) {
	calls := 10_000
	if !worldtest.AllTrials() {
		calls /= 10
	}
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		for _, inFlight := range []int{16, 1024} {
			t.Run(fmt.Sprintf("%s/%d in flight", m.Name, inFlight), func(t *testing.T) {
				w := m.World(t, 2, nexar.Config{MaxConcurrentCalls: inFlight})
				comms := w.Comms
				var running, most, total atomic.Int64
				comms[1].Register("count", func(_ context.Context, _ int, args []byte) ([]byte, error) {
					defer running.Add(-1)
					for n := running.Add(1); ; {
						old := most.Load()
						if n <= old || most.CompareAndSwap(old, n) {
							break
						}
					}
					total.Add(1)
					runtime.Gosched() // so that many run at once
					return turned(1, 0, args), nil
				})
				before := memoryInUse()
				stop, peak := watchMemory()
				var all sync.WaitGroup
				for i := range calls {
					all.Go(func() {
						args := bytesFor(i, 1000)
						copy(args, []byte{0, 0, 0, 0, 0, 0, 4, byte(i)})
						got, err := comms[0].Call(t.Context(), 1, "count", args)
						if err != nil || !slices.Equal(got, turned(1, 0, args)) {
							t.Errorf("call %d: %d bytes, %v", i, len(got), err)
						}
					})
				}
				all.Wait()
				stop()
				used, bound := peak.Load()-before, int64(calls*20<<10+inFlight*100<<10)
				t.Logf("at most %d functions ran at once; they used %d of at most %d MiB of memory", most.Load(), used>>20, bound>>20)
				if total.Load() != int64(calls) || most.Load() > int64(inFlight) {
					t.Errorf("%d calls ran, at most %d at once, want %d calls and at most %d at once", total.Load(), most.Load(), calls, inFlight)
				}
				if used > bound && !require.Race {
					t.Errorf("used %d bytes of memory, want at most %d", used, bound)
				}
			})
		}
	}
}

// memoryInUse returns the size of heap and stacks after a garbage collection.
func memoryInUse() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapInuse + s.StackInuse)
}

// watchMemory measures the maximum of the memory in use, including garbage, until stop is called.
func watchMemory() (stop func(), peak *atomic.Int64) {
	peak = new(atomic.Int64)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			peak.Store(max(peak.Load(), int64(s.HeapInuse+s.StackInuse)))
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}, peak
}

// TestCloseWhileFunctionsRun: Close waits for running functions, also of split communicators, for at
// most SettleTimeout, and logs those that still run.
func TestCloseWhileFunctionsRun(t *testing.T) {
	const warning = "functions called by other ranks still run after the communicator was closed"
	for i := range 4 {
		obeys, split := i&1 == 0, i&2 == 0
		log := new(testlog.Buffer)
		w := worldtest.Mem().World(t, 2, nexar.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
		comms := w.Comms
		on := comms
		if split {
			on = make([]*nexar.Comm, 2)
			err := worldtest.ForEach(2, func(rank int) (err error) {
				on[rank], err = comms[rank].Dup(t.Context())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		running, release := make(chan struct{}), make(chan struct{})
		var over atomic.Bool
		on[1].Register("hold", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
			close(running)
			<-ctx.Done()
			if !obeys {
				<-release
			}
			over.Store(true)
			return nil, nil
		})
		called := make(chan error, 1)
		go func() {
			_, err := on[0].Call(t.Context(), 1, "hold", nil)
			called <- err
		}()
		<-running
		began := time.Now()
		if err := comms[1].Close(); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		if over.Load() != obeys || strings.Contains(log.String(), warning) == obeys {
			t.Errorf("split %v, function returns when its context ends %v: it has returned %v, the log has the warning %v", split, obeys, over.Load(), strings.Contains(log.String(), warning))
		}
		if !obeys && took < comm.SettleTimeout || took > comm.SettleTimeout+worldtest.Patience {
			t.Errorf("Close took %v", took)
		}
		if err := <-called; !errors.Is(err, nexar.ErrPeerFailed) {
			t.Errorf("call: got error %v, want ErrPeerFailed", err)
		}
		close(release)
	}
}

// TestFunctionCloses: a function may close its own communicator.
func TestFunctionCloses(t *testing.T) {
	w := worldtest.Mem().World(t, 2, nexar.Config{})
	comms := w.Comms
	closed := make(chan error, 1)
	comms[1].Register("close", func(context.Context, int, []byte) ([]byte, error) {
		err := comms[1].Close()
		closed <- err
		return nil, err
	})
	if _, err := comms[0].Call(t.Context(), 1, "close", nil); !errors.Is(err, nexar.ErrPeerFailed) {
		t.Errorf("call: got error %v, want that rank 1 has left", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestCallsBlockEachOther: if functions that call back use all concurrent calls of both ranks, the calls back
// fail at their deadline, with an error that names the limit.
func TestCallsBlockEachOther(t *testing.T) {
	const most = 2
	w := worldtest.Mem().World(t, 2, nexar.Config{MaxConcurrentCalls: most})
	comms := w.Comms
	var here, over sync.WaitGroup // until all calls are in progress, and until all calls back have failed
	here.Add(2 * most)
	over.Add(2 * most)
	inner := make(chan error, 2*most)
	for _, c := range comms {
		c.Register("leaf", func(context.Context, int, []byte) ([]byte, error) { return nil, nil })
		c.Register("bounce", func(ctx context.Context, from int, _ []byte) ([]byte, error) {
			here.Done()
			here.Wait()
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := c.Call(short, from, "leaf", nil)
			inner <- err
			over.Done()
			over.Wait() // The call counts until the function returns.
			return nil, err
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	var calls sync.WaitGroup
	for i := range 2 * most {
		calls.Go(func() {
			_, err := comms[i%2].Call(ctx, 1-i%2, "bounce", nil)
			if err == nil || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
				t.Errorf("got error %v, want an expired deadline", err)
			}
		})
	}
	calls.Wait()
	for range 2 * most {
		want := "s for its turn behind 2 calls in flight to that rank (NEXAR_RPC_IN_FLIGHT=2)"
		if err := <-inner; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), ": it had waited ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got error %v, want one that ends in %q", err, want)
		}
	}
	worldtest.CheckWorks(t, comms)
}

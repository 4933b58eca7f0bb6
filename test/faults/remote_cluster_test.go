package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A callLoad makes ranks call each other continuously.
type callLoad struct {
	comms []*nexar.Comm
	calls atomic.Int64   // answered calls
	busy  []atomic.Int32 // running functions, by rank
	over  []atomic.Int32 // sequences of calls that have ended, by called rank
}

func newCallLoad(comms []*nexar.Comm) *callLoad {
	b := &callLoad{comms: comms, busy: make([]atomic.Int32, len(comms)), over: make([]atomic.Int32, len(comms))}
	registerTurn(comms)
	for rank, c := range comms {
		c.Register("hold", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
			b.busy[rank].Add(1)
			defer b.busy[rank].Add(-1)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
	}
	return b
}

// run lets each rank call all others until the calls fail: short and long ones, and calls
// that never return. It returns the first error of each rank and peer, separately for
// calls that return and for those that do not.
func (b *callLoad) run(ctx context.Context, longest int) (errs [][][2]error) {
	var all sync.WaitGroup
	for rank, c := range b.comms {
		errs = append(errs, make([][2]error, len(b.comms)))
		for to := range b.comms {
			if to == rank {
				continue
			}
			all.Go(func() {
				defer b.over[to].Add(1)
				for i := 0; ; i++ {
					if err := callTurn(ctx, c, to, i, longest*(i%2), 100); err != nil {
						errs[rank][to][0] = err
						return
					}
					b.calls.Add(1)
				}
			})
			all.Go(func() {
				defer b.over[to].Add(1)
				_, errs[rank][to][1] = c.Call(ctx, to, "hold", nil)
			})
		}
	}
	all.Wait()
	return errs
}

// duringCalls calls f while calls are in progress on all ranks.
func (b *callLoad) duringCalls(f func()) {
	all := func() bool {
		for rank := range b.busy {
			if int(b.busy[rank].Load()) < len(b.busy)-1 {
				return false
			}
		}
		return true
	}
	for !all() || b.calls.Load() < 50 {
		time.Sleep(time.Millisecond)
	}
	f()
}

// TestCallsOfDeadRank: all calls to a rank that dies fail with an error that names it, and the contexts
// of its calls end.
func TestCallsOfDeadRank(t *testing.T) {
	const victim = 2
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Mixed(), worldtest.QUIC(), worldtest.TLS()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			w := m.World(t, 4, nexar.Config{})
			comms := w.Comms
			b := newCallLoad(comms)
			ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
			defer cancel()
			go b.duringCalls(func() { w.Kill(victim) })
			for rank, errs := range b.run(ctx, 200_000) {
				for to, pair := range errs {
					for _, err := range pair {
						p, ok := errors.AsType[*nexar.PeerError](err)
						switch {
						case rank == to:
						case !ok || p.Left:
							t.Errorf("rank %d calls rank %d: %v, want a PeerError", rank, to, err)
						case rank != victim && p.Rank != victim:
							t.Errorf("rank %d calls rank %d: %v, want the failure of rank %d", rank, to, err, victim)
						}
					}
				}
			}
			for rank := range b.busy {
				for b.busy[rank].Load() > 0 {
					time.Sleep(time.Millisecond) // go test ends a loop that does not end
				}
			}
			t.Logf("%d calls were answered", b.calls.Load())
		})
	}
}

// TestCallsOfLeavingRank: calls to and from a rank that leaves fail, even during the transfer of long
// arguments. All other calls continue.
func TestCallsOfLeavingRank(t *testing.T) {
	const leaver = 1
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.Mixed(), worldtest.QUIC(), worldtest.TLS()) {
		for _, longest := range []int{1000, 500_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, longest), func(t *testing.T) {
				m.Require(t)
				w := m.World(t, 4, nexar.Config{})
				comms := w.Comms
				b := newCallLoad(comms)
				ctx, cancel := context.WithTimeoutCause(t.Context(), 2*worldtest.Patience, errors.New("too late"))
				defer cancel()
				stopped, stop := context.WithCancelCause(ctx)
				defer stop(nil)
				go b.duringCalls(func() {
					if err := comms[leaver].Close(); err != nil {
						t.Errorf("close: %v", err)
					}
					b.waitAfterLeave(ctx, leaver)
					stop(worldtest.ErrCancelled)
				})
				for rank, errs := range b.run(stopped, longest) {
					for to, pair := range errs {
						for _, err := range pair {
							if rank != to {
								if err := afterLeaving(err, leaver, rank, to); err != nil {
									t.Error(err)
								}
							}
						}
					}
				}
			})
		}
	}
}

// waitAfterLeave waits until all ranks have detected that a rank has left and have stopped calling it,
// and then for 60 further calls.
func (b *callLoad) waitAfterLeave(ctx context.Context, leaver int) {
	for rank, c := range b.comms {
		for rank != leaver && ctx.Err() == nil && !errors.Is(callTurn(ctx, c, leaver, 0, 8, 8), nexar.ErrPeerFailed) {
			time.Sleep(time.Millisecond)
		}
	}
	for int(b.over[leaver].Load()) < 2*(len(b.comms)-1) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	for answered := b.calls.Load(); b.calls.Load() < answered+60 && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
}

// afterLeaving checks the error of a call when another rank has left.
func afterLeaving(err error, leaver, rank, to int) error {
	p, ok := errors.AsType[*nexar.PeerError](err)
	_, begun := errors.AsType[*nexar.CallError](err)
	switch {
	case rank == leaver && errors.Is(err, nexar.ErrClosed):
	case rank != leaver && errors.Is(err, worldtest.ErrCancelled) && !begun:
	case to == leaver && ok && p.Rank == leaver && p.Left:
	case rank != leaver && to != leaver && errors.Is(err, worldtest.ErrCancelled):
	default:
		return fmt.Errorf("rank %d calls rank %d after rank %d has left: unexpected error: %w", rank, to, leaver, err)
	}
	return nil
}

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestManyOperations: 64 operations are under way on each rank, begun by one goroutine, and each
// rank waits for them in another order.
func TestManyOperations(t *testing.T) {
	const n, many = 3, 64
	w := newWorld(t, n, overMem, Config{})
	sizes := []int{0, 1, 100, 5000, 40_000}
	noError(t, w.on(func(rank int, c *Comm) error {
		rng := rand.New(rand.NewPCG(1, uint64(rank)))
		var data [many][]byte
		var ops [many]*Op
		for i := range many {
			data[i] = vector(rank, sizes[i%len(sizes)])
			var err error
			if ops[i], err = c.start(w.work(rank, choice{plan.AllReduce, "ring", 1 + i%4, 0}, data[i])); err != nil {
				return err
			}
		}
		for _, i := range rng.Perm(many) {
			if err := ops[i].Wait(t.Context()); err != nil {
				return err
			}
			if err := checkSum(data[i], n); err != nil {
				return fmt.Errorf("operation %d: %w", i, err)
			}
		}
		return nil
	}))
	for rank, c := range w.comms {
		c.mu.Lock()
		if c.calls.live != 0 || len(c.early) != 0 || w.engines[rank].active.Load() != 0 {
			t.Errorf("rank %d: %d operations, %d early frames and %d active operations are left", rank, c.calls.live, len(c.early), w.engines[rank].active.Load())
		}
		c.mu.Unlock()
	}
}

// TestSmallOperationsDoNotAllocate: all-reduces of 8 bytes allocate nothing in the long run.
func TestSmallOperationsDoNotAllocate(t *testing.T) {
	require.NoRace(t, "it counts allocations")
	const n, warm, count = 2, 500, 10_000
	w := newWorld(t, n, overMem, Config{})
	var before, after runtime.MemStats
	var works [n]exec.Work
	for rank := range n {
		works[rank] = w.work(rank, choice{plan.AllReduce, "recursive-doubling", 1, 0}, make([]byte, 8))
	}
	rounds := func(rounds int) {
		noError(t, w.on(func(rank int, c *Comm) error {
			for range rounds {
				op, err := c.start(works[rank])
				if err == nil {
					err = op.Wait(context.Background())
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
	rounds(warm)
	runtime.ReadMemStats(&before)
	rounds(count)
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / (n * count); per > 0.02 {
		t.Errorf("%.3f allocations for an operation of a rank", per)
	}
}

// TestCancelAtRandom: one rank cancels at a random moment. When an operation has returned, with or
// without an error, its buffers are not used; a communicator that fails on one rank fails on
// all; and no goroutine is left, which TestMain checks.
func TestCancelAtRandom(t *testing.T) {
	const n, kept = 3, 40
	iterations := 1000
	if testing.Short() {
		iterations = 200
	}
	w := newWorld(t, n, overMem, Config{})
	failures := 0
	type ended struct {
		data, copy []byte
		iteration  int
	}
	var watched []ended
	sizes := []int{1, 300, 300, 20_000, 20_000, 20_000, 20_000, 100_000}
	inputs, sums := inputsAndSums(n, sizes)
	check := func(e ended) {
		if !bytes.Equal(e.data, e.copy) {
			t.Errorf("iteration %d: memory was touched after the operation had returned", e.iteration)
		}
	}
	for i := range iterations {
		rng := rand.New(rand.NewPCG(7, uint64(i)))
		size := sizes[rng.IntN(len(sizes))]
		ch := choice{plan.AllReduce, []string{"ring", "recursive-doubling", "rabenseifner"}[rng.IntN(3)], 1 + rng.IntN(3), 0}
		for rank := range n {
			w.comms[rank] = w.engines[rank].NewComm(uint64(100+i), rank, w.links[rank])
		}
		victim, delay := rng.IntN(n), time.Duration(rng.IntN(1+size/100))*time.Microsecond
		data := make([][]byte, n)
		errs := w.on(func(rank int, c *Comm) error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if rank == victim {
				timer := time.AfterFunc(delay, cancel)
				defer timer.Stop()
			}
			data[rank] = bytes.Clone(inputs[size][rank])
			err := w.run(ctx, rank, ch, data[rank])
			if err == nil && !bytes.Equal(data[rank], sums[size]) {
				return errors.New("a wrong sum")
			}
			clear(data[rank]) // The race detector reports other users.
			return err
		})
		failed := checkCancelled(t, i, victim, errs)
		if failed {
			failures++
		}
		for rank, c := range w.comms {
			watched = append(watched, ended{data[rank], bytes.Clone(data[rank]), i})
			if failed {
				if err := w.run(t.Context(), rank, ch, bytes.Clone(inputs[size][rank])); err == nil {
					t.Errorf("iteration %d: rank %d goes on after a failure", i, rank)
				}
			}
			c.Close()
		}
		for len(watched) > kept*n {
			check(watched[0])
			watched = watched[1:]
		}
	}
	for _, e := range watched {
		check(e)
	}
	if failures < 10 || failures > iterations-10 {
		t.Errorf("of %d operations %d were cancelled in time, want at least 10 and not almost all", iterations, failures)
	}
}

// inputsAndSums returns vectors of each size for n ranks, and their sums.
func inputsAndSums(n int, sizes []int) (inputs map[int][][]byte, sums map[int][]byte) {
	inputs, sums = make(map[int][][]byte), make(map[int][]byte)
	for _, size := range sizes {
		sums[size] = make([]byte, 4*size)
		inputs[size] = nil
		for rank := range n {
			in := vector(rank, size)
			inputs[size] = append(inputs[size], in)
			kernel.Reducer(kernel.Int32, kernel.Sum)(sums[size], sums[size], in)
		}
	}
	return inputs, sums
}

// TestCancelDuringTransfer: a rank cancels during long transfers over a slow network. Nothing
// reads or writes its vector afterwards, although its peers do not know yet. The race detector
// checks that, so the test uses no synctest bubble, in which events at different times are
// ordered.
func TestCancelDuringTransfer(t *testing.T) {
	w := newWorld(t, 3, overSim(sim.Config{Rate: 20 << 20, Delay: 30 * time.Millisecond}), Config{})
	enough := errors.New("enough")
	errs := w.on(func(rank int, c *Comm) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if rank == 0 {
			time.AfterFunc(100*time.Millisecond, func() { cancel(enough) })
		}
		data := vector(rank, 1<<20)
		err := w.run(ctx, rank, choice{plan.AllReduce, "ring", 2, 0}, data)
		for range 20 {
			clear(data)
			time.Sleep(time.Millisecond)
		}
		if !bytes.Equal(data, make([]byte, len(data))) {
			t.Errorf("rank %d: memory was touched after the operation had returned", rank)
		}
		return err
	})
	if errs[0] != enough || !isType[*RevokedError](errs[1]) || !isType[*RevokedError](errs[2]) {
		t.Errorf("got %v", errs)
	}
}

// checkCancelled checks the errors of an operation that the rank victim may have cancelled. It
// reports whether any rank has failed.
func checkCancelled(t *testing.T, iteration, victim int, errs []error) (failed bool) {
	t.Helper()
	for rank, err := range errs {
		if err == nil {
			continue
		}
		failed = true
		revoked, ok := errors.AsType[*RevokedError](err)
		if rank == victim && !errors.Is(err, context.Canceled) || rank != victim && (!ok || !isRank(revoked.Rank, victim)) {
			t.Errorf("iteration %d, cancelled on rank %d: rank %d got %v", iteration, victim, rank, err)
		}
	}
	return failed
}

// TestLeaveAfterOwnPart: a rank may leave as soon as its part of the last operation has ended. The
// others complete theirs.
func TestLeaveAfterOwnPart(t *testing.T) {
	const n = 3
	algorithms := []choice{
		{plan.AllReduce, "ring", 2, 0}, {plan.AllReduce, "recursive-doubling", 1, 0}, {plan.AllReduce, "rabenseifner", 1, 0},
		{plan.Broadcast, "binomial", 1, 1}, {plan.Broadcast, "chain", 2, 0}, {plan.Barrier, "dissemination", 1, 0},
	}
	run := func(t *testing.T, over listeners, ch choice, count int) {
		w := newWorld(t, n, over, Config{})
		noError(t, w.on(func(rank int, c *Comm) error {
			for range 3 {
				if err := w.run(t.Context(), rank, ch, vector(rank, count)); err != nil {
					return err
				}
			}
			w.leave(rank)
			return nil
		}))
	}
	times, seeds := 10, int64(3)
	if testing.Short() {
		times, seeds = 3, 1
	}
	for _, ch := range algorithms {
		for _, count := range []int{1, 3000, 60_000} {
			if ch.kind == plan.Barrier && count > 1 {
				continue
			}
			name := fmt.Sprintf("%s/%d", ch.algorithm, count)
			t.Run("mem/"+name, func(t *testing.T) {
				for range times {
					run(t, overMem, ch, count)
				}
			})
			t.Run("sim/"+name, func(t *testing.T) {
				for seed := range seeds {
					synctest.Test(t, func(t *testing.T) {
						run(t, overSim(sim.Config{Seed: seed, Delay: 5 * time.Millisecond, Jitter: 10 * time.Millisecond, Rate: 50 << 20}), ch, count)
					})
				}
			})
		}
	}
}

// TestLeftRankIsNamed: an operation that needs a rank which has left fails at once with an error
// that names it, on all ranks. An operation that has all frames of the rank completes.
func TestLeftRankIsNamed(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{})
	broadcast := choice{plan.Broadcast, "binomial", 1, 2}
	noError(t, []error{
		w.run(t.Context(), 2, broadcast, vector(2, 10)), // The root waits for no other rank,
		func() error { w.leave(2); return nil }(),       // also when it leaves.
	})
	for rank := range 2 {
		data := vector(rank, 10)
		if err := w.run(t.Context(), rank, broadcast, data); err != nil || !bytes.Equal(data, vector(2, 10)) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	until(t, "the departure of rank 2", func() bool {
		w.comms[0].mu.Lock()
		defer w.comms[0].mu.Unlock()
		return hasLeft(w.comms[0], 2)
	})
	err := w.run(t.Context(), 0, ring, vector(0, 10))
	if p, ok := errors.AsType[*PeerError](err); !ok || !isRank(p.Rank, 2) || !p.Left {
		t.Errorf("rank 0: %v, want that rank 2 has left", err)
	}
	err = w.run(t.Context(), 1, ring, vector(1, 10))
	p, ok := errors.AsType[*PeerError](err)
	r, revoked := errors.AsType[*RevokedError](err)
	if !(ok && isRank(p.Rank, 2) && p.Left) && !(revoked && isRank(r.Rank, 0) && isRank(r.Peer, 2)) {
		t.Errorf("rank 1: %v, want that rank 2 has left", err)
	}
}

// TestPeerFailed: the operations of all ranks that have lost a peer fail with an error that names
// it, also if another rank has noticed the loss before and tells them.
func TestPeerFailed(t *testing.T) {
	boom := errors.New("boom")
	for _, count := range []int{1, 1 << 20} {
		w := newWorld(t, 3, overMem, Config{})
		w.engines[2].PeerChanged(PeerChange{Peer: 0, Err: boom}) // It does not affect the others.
		errs := w.on(func(rank int, c *Comm) error {
			if rank == 2 {
				time.Sleep(time.Millisecond)
				for peer := range 2 {
					w.links[peer][2].Fail(boom)
				}
				return nil
			}
			return w.run(t.Context(), rank, ring, vector(rank, count))
		})
		for rank, err := range errs[:2] {
			if p, ok := errors.AsType[*PeerError](err); !ok || !isRank(p.Rank, 2) || p.Left || !strings.Contains(err.Error(), boom.Error()) {
				t.Errorf("rank %d: %v, want that rank 2 has failed: %v", rank, err, boom)
			}
		}
	}
}

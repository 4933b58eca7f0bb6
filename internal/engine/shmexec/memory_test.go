package shmexec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// futexes lets ranks of one process sleep on words.
type futexes struct {
	mu       sync.Mutex
	sleepers map[*atomic.Uint32][]chan struct{}
	slept    atomic.Int64
}

func (r *futexes) sleep(w *atomic.Uint32, old uint32, d time.Duration) {
	r.mu.Lock()
	if w.Load() != old {
		r.mu.Unlock()
		return
	}
	c := make(chan struct{})
	r.sleepers[w] = append(r.sleepers[w], c)
	r.mu.Unlock()
	r.slept.Add(1)
	select {
	case <-c:
	case <-time.After(d):
	}
}

func (r *futexes) wake(w *atomic.Uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.sleepers[w] {
		close(c)
	}
	delete(r.sleepers, w)
}

// newMemories returns the Memories of n ranks of this process.
func newMemories(n, pieceBytes int) ([]*Memory, *futexes) {
	room := &futexes{sleepers: make(map[*atomic.Uint32][]chan struct{})}
	areas := make([][]byte, n)
	for i := range areas {
		words := make([]uint64, AreaSize(pieceBytes)/8+line/8)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
		skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (line - 1)
		areas[i] = b[skip : skip+AreaSize(pieceBytes)]
	}
	memories := make([]*Memory, n)
	for i := range memories {
		memories[i] = New(Config{Rank: i, Areas: areas, Sleep: room.sleep, Wake: room.wake, SameProcess: true})
	}
	return memories, room
}

// newExecution returns an execution on a rank with its own buffers. Chunk i has length(i)
// elements of elem bytes. It belongs to no operation.
func newExecution(m *Memory, p *Program, elem, pieces int, length func(chunk int) int) *Execution {
	u := &exec.Uneven{Starts: []int{0}}
	for i := range p.Chunks {
		u.Starts = append(u.Starts, u.Starts[i]+length(i))
		u.Longest = max(u.Longest, length(i))
	}
	bytes := elem * u.Starts[p.Chunks]
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		panic(err)
	}
	r := m.Executor(new(sync.Mutex)).NewLocked(nil).(*Execution)
	r.StartLocked(new(wire.Call), &exec.Work{
		Schedule: &exec.Schedule{Plan: p, Channels: pieces, Layout: exec.Layout{Elem: elem, Uneven: u}, Pool: pool},
		Data:     make([]byte, bytes), Input: make([]byte, bytes), Reduce: addWords,
	})
	return r
}

// newShort is newExecution with one piece and chunks of the same number of words.
func newShort(m *Memory, p *Program, words int) *Execution {
	return newExecution(m, p, 8, 1, func(int) int { return words })
}

// chunkOf returns a piece of a chunk of a buffer.
func (r *Execution) chunkOf(b plan.Buf, chunk, piece int) []byte {
	return r.Bytes(plan.Span{Buf: b, Lo: chunk, Hi: chunk + 1}, piece)
}

// fill sets the input of a rank.
func (r *Execution) fill(rank int) {
	for piece := range r.Channels {
		for chunk := range r.Chunks {
			for _, b := range []plan.Buf{plan.Data, plan.Input} {
				p := r.chunkOf(b, chunk, piece)
				for i := 0; i < len(p); i += 8 {
					binary.NativeEndian.PutUint64(p[i:], input(rank, chunk, piece, i/8))
				}
			}
		}
	}
}

func addWords(dst, a, b []byte) {
	for i := 0; i < len(dst); i += 8 {
		binary.NativeEndian.PutUint64(dst[i:], binary.NativeEndian.Uint64(a[i:])+binary.NativeEndian.Uint64(b[i:]))
	}
}

func input(rank, chunk, piece, i int) uint64 {
	return uint64(rank+1)*1_000_003 + uint64(chunk)*7919 + uint64(piece)*104_729 + uint64(i)
}

// A trial is a run of an algorithm with a number of ranks.
type trial struct {
	c      plan.Collective
	a      plan.Algorithm
	n      int
	root   int
	pieces int
	max    int // elements of a chunk for each piece
	elem   int // eight-byte words of an element, 0 is 1
}

// length returns the number of elements of a chunk.
func (tr trial) length(chunk int) int {
	switch {
	case tr.c == plan.Barrier:
		return 0
	case tr.c == plan.AllToAll, !tr.a.Uneven: // equal lengths
		return tr.pieces * tr.max
	}
	return (chunk*5 + tr.max) % (tr.max + 1) * tr.pieces
}

// execution returns the execution of a rank, with its input.
func (tr trial) execution(m *Memory, p *Program, rank int) *Execution {
	r := newExecution(m, p, 8*max(1, tr.elem), tr.pieces, tr.length)
	r.fill(rank)
	return r
}

// has returns the ranks that contribute to a chunk of the result of a rank, or nil if the rank has
// no such chunk.
func (tr trial) has(rank, chunk int) (ranks []int, from int) {
	all := make([]int, tr.n)
	for i := range all {
		all[i] = i
	}
	switch tr.c {
	case plan.Broadcast:
		return []int{tr.root}, chunk
	case plan.Reduction:
		if rank != tr.root {
			return []int{rank}, chunk // its own, unchanged
		}
		return all, chunk
	case plan.AllReduce:
		return all, chunk
	case plan.Gather:
		if rank != tr.root {
			return nil, 0
		}
		return []int{chunk}, chunk
	case plan.AllGather:
		return []int{chunk}, chunk
	case plan.Scatter:
		if chunk != rank {
			return nil, 0
		}
		return []int{tr.root}, chunk
	case plan.ReduceScatter:
		if chunk != rank {
			return nil, 0
		}
		return all, chunk
	case plan.AllToAll:
		return []int{chunk}, rank
	case plan.Scan:
		return all[:rank+1], chunk
	case plan.ExclusiveScan:
		if rank == 0 {
			return []int{0}, chunk
		}
		return all[:rank], chunk
	}
	return nil, 0
}

// run runs a trial, and checks the result of every rank.
func (tr trial) run(t *testing.T, memories []*Memory, fingerprint uint32) {
	t.Helper()
	plans := tr.a.Plans(tr.n, tr.root)
	var ranks sync.WaitGroup
	for rank, m := range memories {
		r := tr.execution(m, NewSchedule(plans).Compile(rank), rank)
		r.print = fingerprint
		ranks.Go(func() {
			if err := m.run(t.Context(), r); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			tr.check(t, r, rank)
		})
	}
	ranks.Wait()
}

func (tr trial) check(t *testing.T, r *Execution, rank int) {
	for piece := range r.Channels {
		for chunk := range r.Chunks {
			from, at := tr.has(rank, chunk)
			if from == nil {
				continue
			}
			got := r.chunkOf(plan.Data, chunk, piece)
			for i := 0; i < len(got); i += 8 {
				var want uint64
				for _, r := range from {
					want += input(r, at, piece, i/8)
				}
				if g := binary.NativeEndian.Uint64(got[i:]); g != want {
					t.Errorf("%v %s, %d ranks, root %d: rank %d, chunk %d, piece %d, element %d: %d, want %d",
						tr.c, tr.a.Name, tr.n, tr.root, rank, chunk, piece, i/8, g, want)
					return
				}
			}
		}
	}
}

// single returns the algorithms with plans that work chunk by chunk, as executions in pieces need.
func single(c plan.Collective, n int) []plan.Algorithm {
	return slices.DeleteFunc(plan.Algorithms(c), func(a plan.Algorithm) bool { return !NewSchedule(a.Plans(n, n-1)).Compile(0).Single })
}

// TestPlans runs every algorithm, one after the other in the same memory.
func TestPlans(t *testing.T) {
	const pieceBytes = 64 << 10
	for n := 1; n <= 9; n++ {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			memories, _ := newMemories(n, pieceBytes)
			fingerprint := uint32(0)
			for _, c := range plan.Collectives() {
				for _, a := range single(c, n) {
					for _, most := range []int{0, 1, 40} {
						for _, root := range roots(c, n) {
							fingerprint++
							trial{c, a, n, root, 1 + int(fingerprint)%5, most, 0}.run(t, memories, fingerprint)
						}
					}
				}
			}
		})
	}
}

// TestLongElements: an element may be longer than a strip.
func TestLongElements(t *testing.T) {
	const n, words = 3, 2 * stripBytes / 8
	memories, _ := newMemories(n, 1<<20)
	for i, a := range single(plan.AllReduce, n) {
		trial{plan.AllReduce, a, n, 0, 2, 1, words}.run(t, memories, uint32(i))
	}
}

func roots(c plan.Collective, n int) []int {
	if !c.Rooted() || n == 1 {
		return []int{0}
	}
	return []int{0, n - 1}
}

// TestSkew delays ranks at random, so that others sleep.
func TestSkew(t *testing.T) {
	const n, calls = 4, 60
	memories, room := newMemories(n, 1<<10)
	plans := make([][]plan.Plan, n)
	for root := range plans {
		plans[root] = plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(n, root)
	}
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(rank)))
			for call := range calls {
				if rng.IntN(5) == 0 {
					time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
				}
				root := call / 7 % n // the same root several times in a row, so that leaves fall behind
				r := newShort(memories[rank], NewSchedule(plans[root]).Compile(rank), 3)
				r.fill(rank)
				r.print = uint32(call)
				if err := memories[rank].run(t.Context(), r); err != nil {
					t.Errorf("rank %d, call %d: %v", rank, call, err)
					return
				}
				if got := binary.NativeEndian.Uint64(r.chunkOf(plan.Data, 0, 0)[16:]); got != input(root, 0, 0, 2) {
					t.Errorf("rank %d, call %d: got %d of rank %d, want %d", rank, call, got, root, input(root, 0, 0, 2))
				}
			}
		})
	}
	ranks.Wait()
	if room.slept.Load() == 0 {
		t.Error("no rank has slept")
	}
}

// TestMismatch: a rank that reads a payload of another call returns a MismatchError.
func TestMismatch(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	plans := plan.Algorithm{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }}.Plans(2, 0)
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			r := newShort(memories[rank], NewSchedule(plans).Compile(rank), 0)
			r.print = uint32(rank)
			err := memories[rank].run(t.Context(), r)
			if m, ok := errors.AsType[*MismatchError](err); !ok || m.Rank != 1-rank {
				t.Errorf("rank %d: %v, want a mismatch with rank %d", rank, err, 1-rank)
			}
		})
	}
	ranks.Wait()
}

// TestMismatchOfRoots: ranks that have all finished notice that their calls differ.
func TestMismatchOfRoots(t *testing.T) {
	for range 100 {
		memories, _ := newMemories(3, 1<<10)
		errs := make([]error, 3)
		var ranks sync.WaitGroup
		for rank := range 3 {
			ranks.Go(func() {
				root := min(rank, 1) // Ranks 0 and 1 both send to all.
				plans := plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(3, root)
				r := newShort(memories[rank], NewSchedule(plans).Compile(rank), 1)
				r.print = uint32(root)
				errs[rank] = memories[rank].run(t.Context(), r)
			})
		}
		ranks.Wait()
		found := 0
		for _, err := range errs {
			if _, ok := errors.AsType[*MismatchError](err); ok {
				found++
			}
		}
		if found == 0 {
			t.Fatalf("no rank has noticed: %v", errs)
		}
	}
}

// TestInterrupt: interrupt wakes a rank that sleeps.
func TestInterrupt(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	m := memories[0]
	plans := plan.Algorithm{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }}.Plans(2, 0)
	r := newShort(m, NewSchedule(plans).Compile(0), 0)
	ended := make(chan error)
	go func() { ended <- m.run(t.Context(), r) }()
	for m.sleepsOn.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	if got := m.waiting(); got != 1 {
		t.Errorf("waits for rank %d, want 1", got)
	}
	if m.hasFinished(1, 1) || m.hasFinished(0, 1) {
		t.Error("an operation that has not begun counts as finished")
	}
	if got := m.remaining(1); got != 1 {
		t.Errorf("%d pieces are left, want 1", got)
	}
	r.stopped.Store(true)
	m.interrupt()
	if err := <-ended; err != errStopped {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	if got := m.waiting(); got != 1 {
		t.Errorf("the wait for rank %d has failed, want 1", got)
	}
	r.busy = 1
	if r.finish(errStopped); m.waiting() != -1 || !slices.Equal(r.WaitsForLocked(), []int{1}) {
		t.Errorf("at the end the memory waits for rank %d, and the operation waited for %v", m.waiting(), r.WaitsForLocked())
	}
}

// TestCountersWrap: counters of ranks that never post keep up with those of ranks that do, and all
// wrap around to zero.
func TestCountersWrap(t *testing.T) {
	for _, start := range []int64{1 << 31, 1 << 32, 1 << 33, 1 << 62} {
		wrap(t, start)
	}
}

// wrap runs collectives whose counters reach a number.
func wrap(t *testing.T, number int64) {
	const n = 3
	memories, _ := newMemories(n, 1<<10)
	for _, b := range memories {
		b.count, b.pieces, b.calls = uint32(number-5), number-4, uint32(number-6)
		for i := range b.known {
			b.known[i] = b.pieces
		}
		b.taken.Store(uint32(b.pieces))
		for s := range int64(Depth) {
			word(b.cfg.Areas[b.cfg.Rank], b.cell(s)+countAt).Store(b.count)
		}
	}
	for i := range 20 {
		trial{plan.Broadcast, plan.Algorithm{Plan: plan.FlatBroadcast}, n, i % 2, 1, 5, 0}.run(t, memories, uint32(i))
	}
	for rank, b := range memories {
		for s := range int64(Depth) {
			if c := word(b.cfg.Areas[rank], b.cell(s)+countAt).Load(); b.count-c > Depth {
				t.Errorf("rank %d: counter %d, want about %d", rank, c, b.count)
			}
		}
	}
}

// TestStaleKnowledge: a rank waits for a reader of an earlier piece, however many pieces it has made since it last looked at the
// counter of that reader.
func TestStaleKnowledge(t *testing.T) {
	const n, reader = 8, 3 // no neighbor of rank 0
	for _, since := range []int64{0, 1 << 30, 1<<31 - 1, 1 << 31, 1<<31 + 64, 1 << 32, 1<<32 + 64, 1 << 33} {
		memories, _ := newMemories(n, 1<<10)
		m := memories[0]
		m.known[reader] = 5
		m.pieces = m.known[reader] + since + Depth
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		r := newShort(m, NewSchedule(plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(n, 0)).Compile(0), 1)
		finished := m.pieces - Depth + 1
		m.takens[reader].Store(uint32(finished - 1))
		if err := m.finished(ended, r, []int{reader}); err != context.Canceled {
			t.Errorf("%d pieces after the last look: got %v, want to wait for the reader", since, err)
		}
		for _, ahead := range []int64{0, 1} {
			m.takens[reader].Store(uint32(finished + ahead))
			m.known[reader] = 5
			if err := m.finished(ended, r, []int{reader}); err != nil || m.known[reader] != finished+ahead {
				t.Errorf("%d pieces after the last look: error %v, reader known to have finished %d pieces, want %d",
					since, err, m.known[reader], finished+ahead)
			}
		}
	}
}

func BenchmarkBarrier(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			memories, _ := newMemories(n, 1<<10)
			plans := plan.Algorithm{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }}.Plans(n, 0)
			var ranks sync.WaitGroup
			for rank := range n {
				ranks.Go(func() {
					r := newShort(memories[rank], NewSchedule(plans).Compile(rank), 0)
					for range b.N {
						if err := memories[rank].run(b.Context(), r); err != nil {
							b.Error(err)
						}
					}
				})
			}
			ranks.Wait()
		})
	}
}

package board

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/plan"
)

// A puller reads memory of this process by its address, of buffers that it has
// been told of.
type puller struct {
	mu   sync.Mutex
	bufs map[uint64][]byte
	done int // bytes
}

func newPuller() *puller { return &puller{bufs: make(map[uint64][]byte)} }

func (p *puller) add(b []byte) {
	if len(b) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bufs[uint64(uintptr(unsafe.Pointer(&b[0])))] = b
}

func (p *puller) pull(_ int, dst []byte, addr uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	src, ok := p.bufs[addr]
	if !ok || len(src) < len(dst) {
		return fmt.Errorf("nothing lies at %#x", addr)
	}
	p.done += copy(dst, src[:len(dst)])
	return nil
}

// newPullBoards are boards of ranks that can read each other's memory.
func newPullBoards(n, pieceBytes int) ([]*Board, *puller) {
	boards, _ := newBoards(n, pieceBytes)
	p := newPuller()
	for _, b := range boards {
		b.cfg.Pull = p.pull
	}
	return boards, p
}

// TestPulling runs every algorithm that can be carried out by pulling.
func TestPulling(t *testing.T) {
	can := make(map[plan.Collective]int)
	for n := 2; n <= 9; n++ {
		boards, pulls := newPullBoards(n, 4<<10)
		print := uint32(0)
		for _, c := range plan.Collectives() {
			for _, a := range plan.Algorithms(c) {
				for _, root := range roots(c, n) {
					if !a.Fits(n) || !NewSchedule(a.Plans(n, root)).Pulls() {
						continue
					}
					can[c]++
					for _, most := range []int{0, 1, 1000} { // longer than what fits on an area
						print++
						trial{c, a, n, root, 1, most, pulls}.run(t, boards, print)
					}
				}
			}
		}
		if pulls.done == 0 {
			t.Errorf("%d ranks: nothing was pulled", n)
		}
	}
	for _, c := range []plan.Collective{plan.Broadcast, plan.Gather, plan.AllGather, plan.Scatter, plan.AllToAll} {
		if can[c] == 0 {
			t.Errorf("no algorithm of %v can be carried out by pulling", c)
		}
	}
	for _, c := range []plan.Collective{plan.AllReduce, plan.Reduction, plan.ReduceScatter, plan.Scan} {
		if can[c] > 0 {
			t.Errorf("%v is carried out by pulling, though it combines", c)
		}
	}
}

// TestNothingShownIsWritten: a plan that writes what it has sent before cannot
// be carried out by pulling.
func TestNothingShownIsWritten(t *testing.T) {
	one := plan.Span{Buf: plan.Data, Lo: 0, Hi: 1}
	plans := []plan.Plan{
		{Chunks: 1, Rounds: []plan.Round{{{Kind: plan.Send, A: one, Peer: 1}}, {{Kind: plan.Recv, Dst: one, Peer: 1}}}},
		{Chunks: 1, Rounds: []plan.Round{{{Kind: plan.Recv, Dst: one, Peer: 0}}, {{Kind: plan.Send, A: one, Peer: 0}}}},
	}
	if NewSchedule(plans).Pulls() {
		t.Error("it is said that this can be done by pulling")
	}
}

// TestReturnAfterReaders: who has shown something does not return before all
// have it.
func TestReturnAfterReaders(t *testing.T) {
	const n = 3
	boards, pulls := newPullBoards(n, 1<<10)
	plans := plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(n, 0)
	release := make(chan struct{})
	for _, b := range boards {
		b.cfg.Pull = func(rank int, dst []byte, addr uint64) error {
			<-release
			return pulls.pull(rank, dst, addr)
		}
	}
	returned := make(chan int, n)
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			v := newVectors(1, func(int, int) int { return 3 })
			v.made = pulls.add
			v.fill(plan.Data, rank, 0, 0)
			w := &Work{
				Program: NewSchedule(plans).Pulling(rank), Buffers: v, Pieces: 1, Unit: 24, Elem: 8,
				Poll: func(context.Context) error { return nil },
			}
			if err := boards[rank].Run(t.Context(), w); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			returned <- rank
			if got := binary.NativeEndian.Uint64(v.chunk(plan.Data, 0, 0)); got != input(0, 0, 0, 0) {
				t.Errorf("rank %d: %d", rank, got)
			}
		})
	}
	select {
	case rank := <-returned:
		t.Errorf("rank %d has returned before anything was read", rank)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	ranks.Wait()
}

// TestGivenUp: what was copied from a rank that has given up is not trusted.
func TestGivenUp(t *testing.T) {
	boards, pulls := newPullBoards(2, 1<<10)
	plans := plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(2, 0)
	stop := make(chan struct{})
	run := func(rank int, poll func(context.Context) error) error {
		v := newVectors(1, func(int, int) int { return 3 })
		v.made = pulls.add
		v.fill(plan.Data, rank, 0, 0)
		w := &Work{Program: NewSchedule(plans).Pulling(rank), Buffers: v, Pieces: 1, Unit: 24, Elem: 8, Poll: poll}
		return boards[rank].Run(t.Context(), w)
	}
	stopped := errors.New("stopped")
	boards[1].cfg.Pull = func(rank int, dst []byte, addr uint64) error {
		err := pulls.pull(rank, dst, addr)
		stop <- struct{}{} // now the other one gives up,
		<-stop             // and has
		return err
	}
	var ranks sync.WaitGroup
	ranks.Go(func() {
		err := run(0, func(context.Context) error {
			select {
			case <-stop:
				return stopped
			default:
				return nil
			}
		})
		if err != stopped {
			t.Errorf("rank 0: %v, want %v", err, stopped)
		}
		close(stop)
	})
	ranks.Go(func() {
		err := run(1, func(context.Context) error { return nil })
		if e, ok := errors.AsType[*PullError](err); !ok || e.Rank != 0 {
			t.Errorf("rank 1: %v, want a PullError of rank 0", err)
		}
	})
	ranks.Wait()
}

package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A cutStep has the operations of one step on a rank. All ranks draw the same numbers from rng.
type cutStep struct {
	ctx    context.Context
	comm   *nexar.Comm
	number int64
	rng    *rand.Rand
	done   atomic.Int64 // operations
}

// element returns an element of the data from one rank to another, or to all.
func (s *cutStep) element(from, to, kind, i int) uint64 {
	return worldtest.Mix(uint64(s.number)<<32|uint64(from)<<24|uint64(to)<<16|uint64(kind)<<8) + uint64(i)
}

// vector returns elements.
func (s *cutStep) vector(n, from, to, kind int) []uint64 {
	x := make([]uint64, n)
	for i, first := 0, s.element(from, to, kind, 0); i < n; i++ {
		x[i] = first + uint64(i)
	}
	return x
}

// check compares data with that of vector.
func (s *cutStep) check(what string, x []uint64, from, to, kind int) error {
	s.done.Add(1)
	first := s.element(from, to, kind, 0)
	for i, got := range x {
		if got != first+uint64(i) {
			return fmt.Errorf("%w: %s of step %d from rank %d to %d: element %d of %d is %#x, want %#x", errWrong, what, s.number, from, to, i, len(x), got, first+uint64(i))
		}
	}
	return nil
}

// length draws a number of elements: of messages that are sent at once, or that wait for a grant.
func (s *cutStep) length() int {
	return [...]int{1, 1, 100, 100, 1_000, 1_000, 7_000, 9_000, 9_000, 20_000, 20_000, 131_072}[s.rng.IntN(12)]
}

func (s *cutStep) run() error {
	n, rank := s.comm.Size(), s.comm.Rank()
	var group sync.WaitGroup
	errs := make(chan error, 64)
	do := func(f func() error) {
		group.Go(func() {
			if err := f(); err != nil {
				errs <- err
			}
		})
	}
	for k := range 1 + s.rng.IntN(4) {
		from := s.rng.IntN(n)
		to := (from + 1 + s.rng.IntN(max(1, n-1))) % n
		length, count, tag := s.length(), 1, nexar.Tag(10+k)
		if s.rng.IntN(3) == 0 {
			count, length = 2+s.rng.IntN(40), min(length, 9_000)
		}
		switch isCall := s.rng.IntN(4) == 0; {
		case isCall && from == rank:
			isLimited, limit := s.rng.IntN(3) == 0, time.Duration(s.rng.IntN(20))*time.Millisecond
			do(func() error { return s.call(to, length, k, isLimited, limit) })
		case isCall:
			s.rng.IntN(3)
			s.rng.IntN(20)
		case from == rank && to != rank:
			do(func() error {
				for i := range count {
					if err := nexar.Send(s.ctx, s.comm, s.vector(length, from, to, i), to, tag); err != nil {
						return fmt.Errorf("send %d of %d to rank %d: %w", i, length, to, err)
					}
				}
				return nil
			})
		case to == rank && to != from:
			do(func() error {
				x := make([]uint64, length)
				for i := range count {
					if _, err := nexar.Recv(s.ctx, s.comm, x, from, tag); err != nil {
						return fmt.Errorf("receive %d of %d from rank %d: %w", i, length, from, err)
					}
					if err := s.check("a message", x, from, to, i); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	err := s.collectives()
	group.Wait()
	close(errs)
	for e := range errs {
		err = cmp.Or(err, e)
		if errors.Is(e, errWrong) {
			err = e
		}
	}
	return err
}

// call calls a function, which may be cancelled.
func (s *cutStep) call(to, length, kind int, isLimited bool, limit time.Duration) error {
	ctx, cancel := s.ctx, func() {}
	if isLimited {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	args := make([]byte, length)
	for i := range args {
		args[i] = byte(s.element(s.comm.Rank(), to, kind, i))
	}
	answer, err := s.comm.Call(ctx, to, "echo", args)
	switch {
	case err != nil && isLimited && ctx.Err() != nil && s.ctx.Err() == nil:
		return nil
	case err != nil:
		return err
	case len(answer) != 1+length || answer[0] != byte(s.comm.Rank()) || !slices.Equal(answer[1:], args):
		return fmt.Errorf("%w: the answer of rank %d in step %d", errWrong, to, s.number)
	}
	s.done.Add(1)
	return nil
}

// collectives makes the collectives of the step, in the same order on all ranks.
func (s *cutStep) collectives() error {
	n, rank := s.comm.Size(), s.comm.Rank()
	for range 1 + s.rng.IntN(3) {
		length := s.length()
		switch kind := s.rng.IntN(8); kind {
		case 0, 1, 2:
			x, sum := s.vector(length, rank, 255, kind), uint64(0)
			for r := range n {
				sum += s.element(r, 255, kind, 0)
			}
			if err := nexar.AllReduce(s.ctx, s.comm, x, nexar.Sum); err != nil {
				return err
			}
			s.done.Add(1)
			for i, got := range x {
				if want := sum + uint64(n*i); got != want {
					return fmt.Errorf("%w: element %d of %d of the sum in step %d is %#x, want %#x", errWrong, i, length, s.number, got, want)
				}
			}
		case 3, 4:
			length = min(length, 30_000)
			src, dst := make([]uint64, 0, n*length), make([]uint64, n*length)
			for to := range n {
				src = append(src, s.vector(length, rank, to, 200)...)
			}
			if err := nexar.AllToAll(s.ctx, s.comm, dst, src); err != nil {
				return err
			}
			for from := range n {
				if err := s.check("an all-to-all", dst[from*length:][:length], from, rank, 200); err != nil {
					return err
				}
			}
		case 5, 6:
			root := s.rng.IntN(n)
			x := make([]uint64, length)
			if rank == root {
				copy(x, s.vector(length, root, 255, 201))
			}
			if err := nexar.Broadcast(s.ctx, s.comm, x, root); err != nil {
				return err
			}
			if err := s.check("a broadcast", x, root, 255, 201); err != nil {
				return err
			}
		case 7:
			if err := s.cancelled(); err != nil {
				return err
			}
		}
	}
	return nil
}

// cancelled cancels sends and receives on a communicator of their own. Nobody writes to the memory of a receive after it.
func (s *cutStep) cancelled() error {
	n, rank := s.comm.Size(), s.comm.Rank()
	dup, err := s.comm.Dup(s.ctx)
	if err != nil {
		return err
	}
	length, distance := []int{9_000, 131_072}[s.rng.IntN(2)], 1+s.rng.IntN(max(1, n-1))
	limits := make([]time.Duration, 2*n)
	for i := range limits {
		limits[i] = time.Duration(s.rng.IntN(60)) * time.Millisecond
	}
	to, from := (rank+distance)%n, (rank+n-distance%n)%n
	x := make([]uint64, length)
	var group sync.WaitGroup
	group.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, limits[rank])
		defer cancel()
		if to != rank {
			_ = nexar.Send(ctx, dup, s.vector(length, rank, to, 202), to, 1) // It may be cancelled here or at a peer.
		}
	})
	var wrong error
	if from != rank {
		ctx, cancel := context.WithTimeout(s.ctx, limits[n+rank])
		if _, err := nexar.Recv(ctx, dup, x, from, 1); err == nil {
			wrong = s.check("a message", x, from, rank, 202)
		}
		cancel()
	}
	clear(x)
	group.Wait()
	time.Sleep(50 * time.Millisecond)
	if i := slices.IndexFunc(x, func(e uint64) bool { return e != 0 }); i >= 0 {
		wrong = fmt.Errorf("%w: element %d of %d was written after a cancelled receive in step %d", errWrong, i, length, s.number)
	}
	dup.Close()
	return wrong
}

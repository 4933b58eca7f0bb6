package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
)

// A replicaState is the state that the ranks of a changing world replicate: the number of steps and
// a digest of their results in order.
type replicaState struct {
	Step int64
	Sum  uint64
}

// add adds the result of the next step.
func (l *replicaState) add(result int64) {
	l.Sum = (l.Sum ^ uint64(result)) * 1_099_511_628_211 // as FNV-1a does
	l.Step++
}

// stateAfter returns the right state after a number of steps, which does not depend on the sizes of
// the worlds.
func stateAfter(steps int64) (l replicaState) {
	for l.Step < steps {
		l.add(l.Step)
	}
	return l
}

// errWrong reports a wrong result.
var errWrong = errors.New("wrong")

// A progressLog has the progress of a worker in a changing world.
type progressLog struct {
	mu     sync.Mutex
	node   *nexar.Node
	epochs []epoch // the last epochsKept
	stop   bool    // this worker has been told to stop the world
}

// epochsKept is the number of epochs that a worker reports.
const epochsKept = 6

func (p *progressLog) begin(c *nexar.Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epochs = append(p.epochs, epoch{At: time.Now(), Number: c.Epoch(), Rank: c.Rank(), Size: c.Size()})
	p.epochs = p.epochs[max(0, len(p.epochs)-epochsKept):]
}

// withCurrent calls f with the current epoch under the lock.
func (p *progressLog) withCurrent(f func(e *epoch)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.epochs[len(p.epochs)-1])
}

// stopping returns 1 if this worker has been told to stop the world, or else 0.
func (p *progressLog) stopping() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop {
		return 1
	}
	return 0
}

// leftWorld records that this worker is not in a world any more.
func (p *progressLog) leftWorld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epochs = append(p.epochs, epoch{At: time.Now()})
}

// changeAndRejoin is change for a worker that joins again, as a new node, after it was removed.
func changeAndRejoin(ctx context.Context, s *workerState, o command, r *result) error {
	for {
		err := change(ctx, s, o, r)
		if !errors.Is(err, nexar.ErrNoQuorum) {
			return err
		}
		s.progress.leftWorld()
		if err := s.node.Close(); err != nil {
			return err
		}
	}
}

// change joins a world and makes steps in it, until a rank stops the world or this rank has left. A
// step is an all-reduce and a reconfiguration.
func change(ctx context.Context, s *workerState, o command, r *result) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	p := &s.progress
	p.mu.Lock()
	s.node, p.node = node, node
	p.mu.Unlock()
	var l replicaState
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		p.begin(comm)
		over, err := p.steps(ctx, comm, &l, o.Every)
		r.State = l
		switch {
		case over:
			return err
		case err != nil && !errors.Is(err, nexar.ErrPeerFailed) && !errors.Is(err, nexar.ErrRevoked):
			return err
		}
	}
	r.Text = "left"
	return nil
}

// steps makes the steps of an epoch. It reports whether the world has stopped.
func (p *progressLog) steps(ctx context.Context, c *nexar.Comm, l *replicaState, every time.Duration) (over bool, err error) {
	before := *l
	if err := nexar.Sync(ctx, c, l); err != nil {
		return false, err
	}
	// The steps of two ranks differ by at most one.
	if d := l.Step - before.Step; before.Step > 0 && (d < -1 || d > 1) {
		return false, fmt.Errorf("%w: from step %d to step %d by a Sync", errWrong, before.Step, l.Step)
	}
	for {
		stop, err := p.step(ctx, c, l)
		if err != nil {
			return false, err
		}
		if stop {
			return true, c.Barrier(ctx)
		}
		time.Sleep(every)
		changed, err := p.node.Reconfigure(ctx)
		if err != nil {
			return false, err
		}
		if changed {
			p.withCurrent(func(e *epoch) { e.Reconfigured = time.Now() })
			return false, nil
		}
	}
}

// step sums vectors of various lengths. The last element is positive if a rank wants to stop.
func (p *progressLog) step(ctx context.Context, c *nexar.Comm, l *replicaState) (stop bool, err error) {
	n, round := []int{1, 1000, 30_000}[l.Step%3], int(l.Step)
	x := append(vector(c.Rank(), n, round), 0)
	p.mu.Lock()
	if p.stop {
		x[n] = 1
	}
	p.mu.Unlock()
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
		return false, err
	}
	if err := equal("all_reduce", x[:n], func(i int) int64 { return sum(c.Size(), i, round) }); err != nil {
		return false, fmt.Errorf("%w: rank %d of %d in epoch %d, step %d: %w", errWrong, c.Rank(), c.Size(), c.Epoch(), round, err)
	}
	size := int64(c.Size())
	l.add((x[0] - sum(c.Size(), 0, 0)) / size)
	p.withCurrent(func(e *epoch) {
		if e.Rounds++; e.Rounds == 1 {
			e.First = time.Now()
		}
	})
	return x[n] > 0, nil
}

// progress reports the last epochs.
func progress(_ context.Context, s *workerState, _ command, r *result) error {
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	r.Epochs = append([]epoch(nil), s.progress.epochs...)
	return nil
}

// changingPeers is peers for a worker in a changing world.
func changingPeers(_ context.Context, s *workerState, _ command, r *result) error {
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	r.Peers = s.progress.node.Peers()
	return nil
}

// stop stops the world at the next step.
func stop(_ context.Context, s *workerState, _ command, _ *result) error {
	s.progress.mu.Lock()
	defer s.progress.mu.Unlock()
	s.progress.stop = true
	return nil
}

// leave has this rank leave the world at the next reconfiguration.
func leave(ctx context.Context, s *workerState, _ command, _ *result) error {
	s.progress.mu.Lock()
	node := s.progress.node
	s.progress.mu.Unlock()
	return node.Leave(ctx)
}

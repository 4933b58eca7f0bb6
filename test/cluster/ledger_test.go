package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
)

// A ledger is the state of a changing world: the number of its steps, and a digest of their results in
// order.
type ledger struct {
	Step int64
	Sum  uint64
}

// enter adds the result of the next step.
func (l *ledger) enter(result int64) {
	l.Sum = (l.Sum ^ uint64(result)) * 1_099_511_628_211 // as FNV-1a does
	l.Step++
}

// ledgerAfter returns the right ledger after steps, in any worlds.
func ledgerAfter(steps int64) (l ledger) {
	for l.Step < steps {
		l.enter(l.Step)
	}
	return l
}

// errWrong reports a wrong result.
var errWrong = errors.New("wrong")

// A post is where a worker of a world that changes tells how far it has come.
type post struct {
	mu     sync.Mutex
	node   *nexar.Node
	epochs []epoch // the last ones
	stop   bool    // it wants all to stop
}

// epochsKept is how many epochs a worker tells of.
const epochsKept = 6

func (p *post) begin(c *nexar.Comm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epochs = append(p.epochs, epoch{At: time.Now(), Number: c.Epoch(), Rank: c.Rank(), Size: c.Size()})
	p.epochs = p.epochs[max(0, len(p.epochs)-epochsKept):]
}

// now calls f with the current epoch under the lock.
func (p *post) now(f func(e *epoch)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.epochs[len(p.epochs)-1])
}

// outside notes that this worker is in no world any more.
func (p *post) outside() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.epochs = append(p.epochs, epoch{At: time.Now()})
}

// persist is change for a worker that joins again, as a new node, when the others
// have gone on without it.
func persist(ctx context.Context, d *desk, o order, r *report) error {
	for {
		err := change(ctx, d, o, r)
		if !errors.Is(err, nexar.ErrNoQuorum) {
			return err
		}
		d.post.outside()
		if err := d.node.Close(); err != nil {
			return err
		}
	}
}

// change joins a world and makes steps in it until one of its ranks wants to stop,
// or this one has left. Each is an all-reduce and a checkpoint.
func change(ctx context.Context, d *desk, _ order, r *report) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	p := &d.post
	p.mu.Lock()
	d.node, p.node = node, node
	p.mu.Unlock()
	var l ledger
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		p.begin(comm)
		over, err := p.steps(ctx, comm, &l)
		r.Ledger = l
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

// steps are those of an epoch. It reports whether all is over.
func (p *post) steps(ctx context.Context, c *nexar.Comm, l *ledger) (over bool, err error) {
	before := *l
	if err := nexar.Sync(ctx, c, l); err != nil {
		return false, err
	}
	// No rank can be more than a step from another.
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
		changed, err := p.node.Reconfigure(ctx)
		if err != nil {
			return false, err
		}
		if changed {
			p.now(func(e *epoch) { e.Rested = time.Now() })
			return false, nil
		}
	}
}

// step sums vectors of various lengths; the last element tells whether a rank wants to stop.
func (p *post) step(ctx context.Context, c *nexar.Comm, l *ledger) (stop bool, err error) {
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
	if err := same("all_reduce", x[:n], func(i int) int64 { return sum(c.Size(), i, round) }); err != nil {
		return false, fmt.Errorf("%w: rank %d of %d in epoch %d, step %d: %w", errWrong, c.Rank(), c.Size(), c.Epoch(), round, err)
	}
	size := int64(c.Size())
	l.enter((x[0] - sum(c.Size(), 0, 0)) / size)
	p.now(func(e *epoch) {
		if e.Rounds++; e.Rounds == 1 {
			e.First = time.Now()
		}
	})
	return x[n] > 0, nil
}

// progress tells of the last epochs.
func progress(_ context.Context, d *desk, _ order, r *report) error {
	d.post.mu.Lock()
	defer d.post.mu.Unlock()
	r.Epochs = append([]epoch(nil), d.post.epochs...)
	return nil
}

// stop has all ranks stop.
func stop(_ context.Context, d *desk, _ order, _ *report) error {
	d.post.mu.Lock()
	defer d.post.mu.Unlock()
	d.post.stop = true
	return nil
}

// leave has this rank leave the world.
func leave(ctx context.Context, d *desk, _ order, _ *report) error {
	d.post.mu.Lock()
	node := d.post.node
	d.post.mu.Unlock()
	return node.Leave(ctx)
}

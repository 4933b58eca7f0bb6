package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
)

// joinMany joins N nodes of this process at the seed of the environment.
func joinMany(ctx context.Context, s *workerState, o command, _ *result) error {
	s.nodes = make([]*nexar.Node, o.N)
	return s.onEachNode(func(i int) (err error) {
		s.nodes[i], err = nexar.Join(ctx, nexar.Config{Log: slog.New(&s.views)})
		return err
	})
}

// onEachNode calls f with the index of each node of the process concurrently.
func (s *workerState) onEachNode(f func(i int) error) error {
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i := range s.nodes {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// A viewLog is a [slog.Handler] that records the time at which the last of some nodes has got a view.
type viewLog struct {
	slog.Handler // nil
	mu           sync.Mutex
	count        int
	last         time.Time
}

func (v *viewLog) Enabled(context.Context, slog.Level) bool { return true }
func (v *viewLog) WithAttrs([]slog.Attr) slog.Handler       { return v }
func (v *viewLog) WithGroup(string) slog.Handler            { return v }

func (v *viewLog) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Message == "world has changed":
		v.mu.Lock()
		defer v.mu.Unlock()
		v.count++
		v.last = time.Now()
	case r.Level >= slog.LevelWarn:
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		fmt.Fprintln(os.Stderr, text)
	}
	return nil
}

// loopMany repeats an operation on the world of each node of the process.
func loopMany(ctx context.Context, s *workerState, o command, r *result) error {
	for ; r.Rounds < o.Rounds; r.Rounds++ {
		began := time.Now()
		err := s.onEachNode(func(i int) error { return operations()[o.Op](ctx, s.nodes[i].World(), o.N, r.Rounds) })
		if err != nil {
			return err
		}
		r.Times = append(r.Times, time.Since(began))
	}
	return nil
}

// recoverMany waits on each node of the process for an epoch of [command].Peer ranks, and makes an all-reduce
// there. The times of the result are those of the last node.
func recoverMany(ctx context.Context, s *workerState, o command, r *result) error {
	var mu sync.Mutex
	var last epoch
	err := s.onEachNode(func(i int) error {
		for comm, err := range s.nodes[i].Epochs(ctx) {
			if err != nil {
				return err
			}
			if comm.Size() > o.Peer {
				select {
				case <-comm.Done():
					continue
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			at := time.Now()
			if err := allReduce(ctx, comm, 1, 0); err != nil {
				return err
			}
			first := time.Now()
			mu.Lock()
			defer mu.Unlock()
			if last.Number == 0 {
				last = epoch{Number: comm.Epoch(), Size: comm.Size()}
			}
			if comm.Epoch() != last.Number || comm.Size() != last.Size {
				return fmt.Errorf("epoch %d of %d ranks, another node has epoch %d of %d", comm.Epoch(), comm.Size(), last.Number, last.Size)
			}
			if at.After(last.At) {
				last.At = at
			}
			if first.After(last.First) {
				last.First = first
			}
			return nil
		}
		return errors.New("Epochs has ended")
	})
	s.views.mu.Lock()
	defer s.views.mu.Unlock()
	if s.views.count != len(s.nodes) {
		err = errors.Join(err, fmt.Errorf("%d nodes have got %d views, want one each", len(s.nodes), s.views.count))
	}
	last.Adopted = s.views.last
	r.Epochs = []epoch{last}
	return err
}

// reportHeap reports the memory of the process, the number of connections of its nodes in [result].Rounds, and in
// [result].Size how many of them are those of watches. [memory].Heap has the bytes of objects only.
func reportHeap(_ context.Context, s *workerState, _ command, r *result) error {
	for _, n := range s.nodes {
		for _, p := range n.Peers() {
			switch p.LinkPurpose {
			case "":
			case "watch":
				r.Size++
				r.Rounds++
			default:
				r.Rounds++
			}
		}
	}
	r.Memory = memoryNow()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Memory.Heap = int(m.HeapAlloc) // without the unused parts of its blocks
	return nil
}

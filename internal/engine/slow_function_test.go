package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/transport/sim"
)

// slowLimit is the timeout of the operations of these tests.
const slowLimit = 2 * time.Second

// eachPayload runs f in fake time, with payloads that are sent at once and with payloads that need a grant. The goroutines that
// read the two kinds call the function of a reduction.
func eachPayload(t *testing.T, ranks int, f func(t *testing.T, w *world)) {
	for name, cfg := range map[string]Config{"sent at once": {}, "granted": {EagerMax: 64}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, ranks, overSim(sim.Config{Delay: time.Millisecond}), cfg)) })
		})
	}
}

// A startedSum is an all-reduce under way.
type startedSum struct {
	op     *Op
	vector []byte
}

// startSum starts an all-reduce of the ranks of a communicator. Each call of its function takes some time.
func (w *world) startSum(c *Comm, took time.Duration) (s startedSum, err error) {
	s.vector = vector(c.rank, 100)
	members := &world{links: make([][]*link.Link, c.Size()), pool: w.pool}
	work := members.work(c.rank, ring, s.vector)
	work.Timeout = slowLimit
	add := work.Reduce
	work.Reduce = func(dst, a, b []byte) {
		if took > 0 {
			time.Sleep(took)
		}
		add(dst, a, b)
	}
	s.op, err = c.start(work)
	return s, err
}

// wait waits for the sum of two ranks.
func (s startedSum) wait(t *testing.T) error {
	if err := s.op.Wait(t.Context()); err != nil {
		return err
	}
	return checkSum(s.vector, 2)
}

// TestSlowFunctionOfEarlierOperation: an operation does not time out while this rank is in its function, or in that of an earlier
// one, which runs on the goroutine that reads the link.
func TestSlowFunctionOfEarlierOperation(t *testing.T) {
	eachPayload(t, 2, func(t *testing.T, w *world) {
		noError(t, w.on(func(rank int, c *Comm) error {
			var sums []startedSum
			for i := range 3 {
				took := time.Duration(0)
				if i == 0 {
					took = 5 * slowLimit
				}
				s, err := w.startSum(c, took)
				if err != nil {
					return err
				}
				sums = append(sums, s)
			}
			for i, s := range sums {
				if err := s.wait(t); err != nil {
					return fmt.Errorf("operation %d: %w", i, err)
				}
			}
			return nil
		}))
	})
}

// TestSlowFunctionOfAnotherComm: an operation does not time out while this rank is in the function of an operation of another
// communicator, which runs on the goroutine that reads their link.
func TestSlowFunctionOfAnotherComm(t *testing.T) {
	eachPayload(t, 2, func(t *testing.T, w *world) {
		noError(t, w.on(func(rank int, c *Comm) error {
			slow, err := w.startSum(c, 5*slowLimit)
			if err != nil {
				return err
			}
			other := w.engines[rank].NewComm(commID+1, rank, w.links[rank])
			for i := range 3 {
				s, err := w.startSum(other, 0)
				if err == nil {
					err = s.wait(t)
				}
				if err != nil {
					return fmt.Errorf("operation %d of the other communicator: %w", i, err)
				}
			}
			return slow.wait(t)
		}))
	})
}

// TestSlowFunctionOverAnotherLink: an operation over links that no slow function occupies times out.
func TestSlowFunctionOverAnotherLink(t *testing.T) {
	eachPayload(t, 3, func(t *testing.T, w *world) {
		const limit = slowLimit + 3*watchTick
		pair := func(rank, peer int) []*link.Link {
			links := []*link.Link{w.links[rank][rank], w.links[rank][peer]}
			if peer < rank {
				links[0], links[1] = links[1], links[0]
			}
			return links
		}
		slow := make([]startedSum, 2)
		for rank := range slow {
			var err error
			if slow[rank], err = w.startSum(w.engines[rank].NewComm(commID+1, rank, pair(rank, 1-rank)), 2*limit); err != nil {
				t.Fatal(err)
			}
		}
		alone, err := w.startSum(w.engines[0].NewComm(commID+2, 0, pair(0, 2)), 0)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err, d := alone.op.Wait(t.Context()), time.Since(began); !isType[*TimeoutError](err) || d > limit {
			t.Errorf("after %v: %v, want a TimeoutError after %v", d, err, slowLimit)
		}
		for rank, s := range slow {
			if err := s.wait(t); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// TestFastFunctionsDelayNoTimeout: an operation times out although this rank is nearly always in the function of some operation of
// another communicator.
func TestFastFunctionsDelayNoTimeout(t *testing.T) {
	eachPayload(t, 2, func(t *testing.T, w *world) {
		const took, limit = 3 * watchTick / 4, 5 * slowLimit / 4
		alone, err := w.startSum(w.engines[0].NewComm(commID+1, 0, w.links[0]), 0)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		timedOut := make(chan error, 1)
		go func() {
			err := alone.op.Wait(t.Context())
			if d := time.Since(began); !isType[*TimeoutError](err) || d > limit {
				err = fmt.Errorf("after %v: %w, want a TimeoutError after %v", d, err, slowLimit)
			} else {
				err = nil
			}
			timedOut <- err
		}()
		noError(t, w.on(func(rank int, c *Comm) error {
			for range limit/took + 1 {
				s, err := w.startSum(c, took)
				if err == nil {
					err = s.wait(t)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		if err := <-timedOut; err != nil {
			t.Error(err)
		}
	})
}

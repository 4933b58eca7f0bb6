package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport/sim"
)

// TestSlowFunctionOfEarlierOperation: an operation does not time out while this rank is in the function of an earlier one, which
// runs on the goroutine that reads the link.
func TestSlowFunctionOfEarlierOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2 * time.Second
		w := newWorld(t, 2, overSim(sim.Config{Delay: time.Millisecond}), Config{})
		noError(t, w.on(func(rank int, c *Comm) error {
			var ops []*Op
			var vectors [][]byte
			for i := range 3 {
				data := vector(rank, 100)
				work := w.work(rank, ring, data)
				work.Timeout = limit
				if i == 0 {
					add := work.Reduce
					work.Reduce = func(dst, a, b []byte) {
						time.Sleep(5 * limit)
						add(dst, a, b)
					}
				}
				op, err := c.start(work)
				if err != nil {
					return err
				}
				ops, vectors = append(ops, op), append(vectors, data)
			}
			for i, op := range ops {
				if err := op.Wait(t.Context()); err != nil {
					return fmt.Errorf("operation %d: %w", i, err)
				}
				if err := checkSum(vectors[i], 2); err != nil {
					return fmt.Errorf("operation %d: %w", i, err)
				}
			}
			return nil
		}))
	})
}

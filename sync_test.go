package nexar

import (
	"errors"
	"fmt"
	"testing"
)

// TestSyncWithoutState: ranks without the state receive it from a rank that has it; if none has it,
// the error is ErrNoState.
func TestSyncWithoutState(t *testing.T) {
	onAll(t, localCluster(t, 3, Config{}), func(rank int, c *Comm) error {
		c.node.hasState.Store(rank == 2)
		x := []int32{int32(rank)}
		if err := Sync(t.Context(), c, x); err != nil || x[0] != 2 || !c.node.hasState.Load() {
			return fmt.Errorf("state %v (error %v), want that of rank 2", x, err)
		}
		if err := c.Barrier(t.Context()); err != nil {
			return err
		}
		c.node.hasState.Store(false)
		if err := Sync(t.Context(), c, x); !errors.Is(err, ErrNoState) {
			return fmt.Errorf("got error %v, want %v", err, ErrNoState)
		}
		return c.Barrier(t.Context())
	})
}

package nexar

import (
	"errors"
	"fmt"
	"testing"
)

// TestSubOutOfStep: a rank that has created a different number of communicators cannot create the
// next one with the others, and the parent still works.
func TestSubOutOfStep(t *testing.T) {
	askew := localCluster(t, 3, Config{})
	onAll(t, askew, func(rank int, c *Comm) error {
		if rank == 0 {
			c.children.Add(1) // as if another goroutine had called Sub meanwhile
		}
		if child, err := c.Sub(t.Context(), []int{1, 2}); child != nil || !errors.Is(err, ErrInvalidRank) {
			return fmt.Errorf("got %v, want %w", err, ErrInvalidRank)
		}
		return nil
	})
	onAll(t, askew, func(_ int, c *Comm) error { return c.Barrier(t.Context()) })
}

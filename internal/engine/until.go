package engine

import (
	"context"
	"sync"
)

// Until is ctx until over is closed, for the reason that why then gives. Stop is called
// when it is no longer needed.
func Until(ctx context.Context, over <-chan struct{}, why func() error) (until context.Context, stop func()) {
	until, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-over:
			cancel(why())
		case <-until.Done():
		}
	})
	return until, func() {
		cancel(nil)
		watch.Wait()
	}
}

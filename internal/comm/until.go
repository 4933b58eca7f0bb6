package comm

import (
	"context"
	"sync"
)

// Until returns a context that ends with ctx, or when over is closed. Its cause is then the
// result of why. Stop releases it.
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

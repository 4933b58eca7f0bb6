package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestMismatchThenLeave: the root of a short broadcast succeeds at once and leaves, at once or after another
// call. The others have another root. All of them get an error that names both calls, whether they wait at that time or call later.
func TestMismatchThenLeave(t *testing.T) {
	const n, odd = 3, 2
	calls := map[string]func(ctx context.Context, c *nexar.Comm, root int) error{
		"Broadcast": func(ctx context.Context, c *nexar.Comm, root int) error {
			return nexar.Broadcast(ctx, c, make([]float32, 10), root)
		},
		"StartBroadcast": func(ctx context.Context, c *nexar.Comm, root int) error {
			return nexar.StartBroadcast(ctx, c, make([]float32, 10), root).Wait()
		},
	}
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC(), worldtest.SHM()} {
		for name, call := range calls {
			for _, c := range []struct {
				waits   bool
				further int // calls of the rank that leaves
			}{{false, 0}, {true, 0}, {false, 1}, {true, 1}} {
				t.Run(fmt.Sprintf("%s/%s/the others wait: %v/%d further calls", m.Name, name, c.waits, c.further), func(t *testing.T) {
					comms := m.Cluster(t, n, nexar.Config{})
					ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
					defer cancel()
					worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error { return c.Barrier(ctx) })
					left := make(chan struct{})
					worldtest.OnAll(t, comms, func(rank int, comm *nexar.Comm) error {
						if rank == odd {
							defer close(left)
							err := call(ctx, comm, odd)
							for range c.further {
								if err == nil {
									err = call(ctx, comm, odd)
								}
							}
							if _, ok := errors.AsType[*nexar.MismatchError](err); ok {
								err = nil // It may have seen the call of a rank that waits.
							}
							return errors.Join(err, comm.Close())
						}
						if rank == 0 || !c.waits {
							<-left
						}
						err := call(ctx, comm, 0)
						for err == nil {
							err = comm.Barrier(ctx)
						}
						e, ok := errors.AsType[*nexar.MismatchError](err)
						if !ok || e.Call.Seq != 2 || e.PeerCall.Seq != 2 || e.Call.Root+e.PeerCall.Root != odd || e.Rank != odd && e.Peer != odd {
							return fmt.Errorf("%w, want a mismatch of broadcast #2 of rank %d with those of the others", err, odd)
						}
						return nil
					})
				})
			}
		}
	}
}

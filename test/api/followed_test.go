package api

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestManyStarted: a StartRecv, StartSend or StartExchange that waits for another rank takes about 1 KB and no goroutine, whether its
// context can end or not. All end with their context, and the receives leave the communicator usable.
func TestManyStarted(t *testing.T) {
	require.NoRace(t, "it counts memory")
	const many, longest = 100_000, 200_000 // longer than an eager message
	bytesMax := map[string]int{"recv": 1000, "recv any": 1000, "send": 1200, "exchange": 1200}
	type start = func(ctx context.Context, c *nexar.Comm, i int, x []byte) *nexar.Handle
	for name, start := range map[string]start{
		"recv": func(ctx context.Context, c *nexar.Comm, i int, x []byte) *nexar.Handle {
			return nexar.StartRecv(ctx, c, x[:1], 1, nexar.Tag(i))
		},
		"recv any": func(ctx context.Context, c *nexar.Comm, i int, x []byte) *nexar.Handle {
			return nexar.StartRecv(ctx, c, x[:1], nexar.AnyRank, nexar.AnyTag)
		},
		"send": func(ctx context.Context, c *nexar.Comm, i int, x []byte) *nexar.Handle {
			return nexar.StartSend(ctx, c, x, 1, nexar.Tag(i))
		},
		"exchange": func(ctx context.Context, c *nexar.Comm, i int, x []byte) *nexar.Handle {
			return nexar.StartExchange(ctx, c, x[:1], nil, nexar.NoRank, 1, nexar.Tag(i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			many := many
			if name == "recv any" {
				many = min(many, 20_000) // Each end looks through all of them.
			}
			c := worldtest.Local(t, 2, nexar.Config{})[0]
			x := make([]byte, longest+many)
			handles := make([]*nexar.Handle, many)
			cancelled, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			goroutines, before := runtime.NumGoroutine(), memoryInUse()
			for i := range handles {
				ctx := context.Background()
				if i%2 == 0 {
					ctx = cancelled
				}
				handles[i] = start(ctx, c, i, x[i:i+longest])
			}
			each := (memoryInUse() - before) / many
			t.Logf("%d bytes each", each)
			if each > bytesMax[name] {
				t.Errorf("%d bytes each, want at most %d", each, bytesMax[name])
			}
			if n := runtime.NumGoroutine() - goroutines; n > 100 {
				t.Errorf("%d goroutines for %d operations", n, many)
			}
			why := errors.New("no longer needed")
			cancel(why)
			for i := 0; i < many; i += 2 {
				if err := handles[i].Wait(); !errors.Is(err, why) {
					t.Fatalf("operation %d: error %v, want %v", i, err, why)
				}
			}
			if err := c.Err(); (err != nil) != (name == "send") {
				t.Errorf("the communicator: %v", err)
			}
			c.Close()
			if err := nexar.WaitAll(handles...); !errors.Is(err, nexar.ErrClosed) && !errors.Is(err, nexar.ErrRevoked) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

// memoryInUse returns the bytes of the heap and of stacks in use.
func memoryInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// BenchmarkStarted measures half a round trip of StartRecv and Wait.
func BenchmarkStarted(b *testing.B) {
	for _, bytes := range []int{8, 256 << 10} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			comms := worldtest.Local(b, 2, nexar.Config{})
			b.ReportAllocs()
			began := time.Now()
			worldtest.OnAll(b, comms, func(rank int, c *nexar.Comm) error {
				x, y := make([]byte, bytes), make([]byte, bytes)
				for i := range 2 * b.N {
					if i%2 == rank {
						if err := nexar.Send(b.Context(), c, x, 1-rank, 0); err != nil {
							return err
						}
					} else if err := nexar.StartRecv(b.Context(), c, y, 1-rank, 0).Wait(); err != nil {
						return err
					}
				}
				return nil
			})
			b.ReportMetric(float64(time.Since(began).Nanoseconds())/float64(2*b.N), "ns/message")
		})
	}
}

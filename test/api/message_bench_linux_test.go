package api

import (
	"fmt"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// BenchmarkMessage is the work of a Send and of the Recv that gets its message: one goroutine does both, so that no
// cache line moves and nobody waits. It reports the time of the processors, and as min-ns/op the least
// time of a batch, which a loaded machine does not change.
func BenchmarkMessage(b *testing.B) {
	const batch = 500
	for _, m := range []worldtest.Medium{worldtest.SHM(), worldtest.Mem()} {
		for _, bytes := range []int{8, 1 << 10} {
			b.Run(fmt.Sprintf("%s/%dB", m.Name, bytes), func(b *testing.B) {
				comms, ctx := m.Cluster(b, 2, nexar.Config{}), b.Context()
				src, dst := make([]byte, bytes), make([]byte, bytes)
				b.ReportAllocs()
				least, calls, used := time.Duration(math.MaxInt64), 0, processorTime(b)
				for begun := time.Now(); b.Loop(); {
					if err := nexar.Send(ctx, comms[0], src, 1, 0); err != nil {
						b.Fatal(err)
					}
					if _, err := nexar.Recv(ctx, comms[1], dst, 0, 0); err != nil {
						b.Fatal(err)
					}
					if calls++; calls%batch == 0 {
						now := time.Now()
						least, begun = min(least, now.Sub(begun)), now
					}
				}
				b.ReportMetric(float64(processorTime(b)-used)/float64(calls), "cpu-ns/op")
				b.ReportMetric(float64(least)/batch, "min-ns/op")
			})
		}
	}
}

// processorTime returns the time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

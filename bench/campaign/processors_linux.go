package campaign

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	probes     = 200 // of which the median counts
	probeTrips = 20  // round trips that one probe measures together
)

// A line is a value that shares its cache line with no other.
type line struct {
	_ [128]byte
	n atomic.Int64
	_ [128]byte
}

// RoundTrip returns the time in microseconds in which a cache line goes from the first of this process's processors to the
// second and back: the median of some thousand. It returns 0 with a single processor. A virtual machine's processors may
// lie near each other now and far apart a few seconds later.
func RoundTrip() float64 {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < 2 {
		return 0
	}
	var two []int
	for cpu := 0; len(two) < 2; cpu++ {
		if all.IsSet(cpu) {
			two = append(two, cpu)
		}
	}
	var ping, pong line
	times := make([]float64, probes)
	pinned := func(cpu int, work func()) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlock it: the thread ends with the goroutine
			var one unix.CPUSet
			one.Set(cpu)
			_ = unix.SchedSetaffinity(0, &one)
			work()
		}()
		return done
	}
	// Each waits for the other with bounded spinning, since both may share a processor with other work.
	await := func(l *line, n int64) {
		for spins := 1; l.n.Load() < n; spins++ {
			if spins%(1<<14) == 0 {
				runtime.Gosched()
			}
		}
	}
	first := pinned(two[0], func() {
		for i, n := 0, int64(0); i < probes; i++ {
			began := time.Now()
			for range probeTrips {
				n++
				ping.n.Store(n)
				await(&pong, n)
			}
			times[i] = float64(time.Since(began)) / float64(time.Microsecond) / probeTrips
		}
	})
	second := pinned(two[1], func() {
		for n := int64(1); n <= probes*probeTrips; n++ {
			await(&ping, n)
			pong.n.Store(n)
		}
	})
	<-first
	<-second
	slices.Sort(times)
	return times[len(times)/2]
}

package tcp

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocator checks that a receiver reports the processor of its peer, without
// allocations.
func TestLocator(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &allowed)
	for name, cfg := range variants() {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		for cpu, seen := 0, 0; seen < allowed.Count(); cpu++ {
			if !allowed.IsSet(cpu) {
				continue
			}
			seen++
			var there unix.CPUSet
			there.Set(cpu)
			if err := unix.SchedSetaffinity(0, &there); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				s.Write(make([]byte, 10))
				collect(t, r, 10)
			}
			if got := r.PeerCPU(); got != cpu {
				t.Errorf("%s: the peer has written on processor %d, want %d", name, got, cpu)
			}
		}
		if got := testing.AllocsPerRun(100, func() { r.PeerCPU() }); got > 0 {
			t.Errorf("%s: PeerCPU makes %v allocations", name, got)
		}
		dialed.Close()
		r.PeerCPU() // no panic after the end
	}
}

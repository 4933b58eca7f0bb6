//go:build linux

package rdma

import "sync/atomic"

// Counters are the sums of all conns of the process.
type Counters struct {
	// Copied is the number of bytes that were copied to or from buffers of the transport: frames, and payloads that are
	// neither written remotely, nor sent from registered memory, nor reduced where they arrive.
	Copied uint64
	// Written is the number of bytes of remote writes.
	Written uint64
	// Waits is the number of times that a goroutine requested an event of the device and waited for it, which are system calls.
	Waits uint64
	// Fallbacks is the number of conns that have gone over to TCP after the failure of their QP.
	Fallbacks uint64
}

var counters struct{ copied, written, waits, fallbacks atomic.Uint64 }

// ReadCounters returns the counters. They are not of the same instant.
func ReadCounters() Counters {
	return Counters{Copied: counters.copied.Load(), Written: counters.written.Load(), Waits: counters.waits.Load(), Fallbacks: counters.fallbacks.Load()}
}

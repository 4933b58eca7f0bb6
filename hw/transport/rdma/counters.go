//go:build linux

package rdma

import "sync/atomic"

// Counters count the work of the transports with this value in [Config.Counters]. They may be read at any time.
type Counters struct{ copied, written, waits, failures atomic.Uint64 }

// Copied is the number of bytes that were copied to or from buffers of the transport: frames, and payloads that are
// neither written remotely, nor sent from registered memory, nor reduced where they arrive.
func (c *Counters) Copied() uint64 { return c.copied.Load() }

// Written is the number of bytes of remote writes.
func (c *Counters) Written() uint64 { return c.written.Load() }

// Waits is the number of times that a goroutine requested an event of the device and waited for it, which are system calls.
func (c *Counters) Waits() uint64 { return c.waits.Load() }

// Failures is the number of conns that have ended because a queue pair, its device or its port has failed or stalled.
func (c *Counters) Failures() uint64 { return c.failures.Load() }

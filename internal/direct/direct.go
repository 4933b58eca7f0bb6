// Package direct registers the buffers of devices with network cards, so that payloads go between the two without memory of
// the host.
//
// A buffer is registered when it is first used for a peer, which takes about as long as a copy of some MiB, and stays
// registered until it is freed. A call holds the memory of its buffers as long as a network card may access it.
//
// A sink for memory of a device announces a key, and the peer writes it. A payload that arrives through a pipe all the same is in memory
// of the host, and copied at the end. The other way, a transfer is written remotely, or copied to the host one segment at a time. Work of
// the device counts for the timeout of the call. If it fails, the call fails on this rank, and the other ranks are told. The work memory of a
// failed call is freed and not kept, since queued work may still write it.
package direct

import (
	"log/slog"
	"sync"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/transport"
)

// A Registry has the registrations of a node. It may be used by several goroutines.
type Registry struct {
	Log *slog.Logger // of refused registrations

	mu      sync.Mutex
	entries map[key]*entry
	told    map[refusal]struct{}            // logged
	idle    map[device.Direct]device.Buffer // of Work
	closed  bool
}

// A key is a buffer and its Exposer.
type key struct {
	by     transport.Exposer
	buffer device.Buffer
}

// A refusal is a device without access for an Exposer.
type refusal struct {
	by transport.Exposer
	on device.Device
}

// An entry is the registration of a buffer.
type entry struct {
	once     sync.Once
	exposure transport.Exposure
	err      error // why there is none
}

// Memory is the memory of a buffer that a network card may access until Release.
type Memory struct {
	Bytes   []byte // of the device: the processor cannot access it
	Method  string // of the registration
	release func()
}

// Release ends the accesses of network cards. The caller knows that the connections have ended all of them.
func (m *Memory) Release() { m.release() }

// Vector returns a region of the buffer.
func (m *Memory) Vector(r device.Region) Vector {
	return Vector{r, m.Bytes[r.Offset : r.Offset+r.Bytes : r.Offset+r.Bytes]}
}

// Hold registers a buffer of a device, unless it is registered, and keeps its memory until Release. It fails if the network
// card cannot access the memory, with the reason, which it logs once for each device.
func (r *Registry) Hold(by transport.Exposer, b device.Buffer) (*Memory, error) {
	on := b.Device().(device.Direct)
	memory, err := on.Direct(b)
	var release func()
	if err == nil {
		release, err = memory.Hold()
	}
	if err != nil {
		r.tell(by, on, err)
		return nil, err
	}
	e := r.entry(key{by, b}, memory)
	e.once.Do(func() {
		e.exposure, e.err = by.Expose(transport.DeviceMemory{Address: memory.Address, Bytes: memory.Bytes, DMABuf: memory.DMABuf})
	})
	if e.err != nil {
		release()
		r.tell(by, on, e.err)
		return nil, e.err
	}
	return &Memory{e.exposure.Memory, e.exposure.Method, release}, nil
}

// entry returns the entry of a buffer, which ends when the buffer is freed.
func (r *Registry) entry(k key, memory *device.DirectMemory) *entry {
	r.mu.Lock()
	e := r.entries[k]
	isNew := e == nil
	if isNew {
		if r.entries == nil {
			r.entries = make(map[key]*entry)
		}
		e = new(entry)
		r.entries[k] = e
	}
	r.mu.Unlock()
	if isNew {
		memory.AtFree(func() {
			r.mu.Lock()
			delete(r.entries, k)
			r.mu.Unlock()
			if e.exposure.Close != nil {
				_ = e.exposure.Close() // fails if the transport has been closed before
			}
		})
	}
	return e
}

// tell logs why memory of a device is copied through memory of the host.
func (r *Registry) tell(by transport.Exposer, on device.Device, err error) {
	k := refusal{by, on}
	r.mu.Lock()
	_, known := r.told[k]
	if !known {
		if r.told == nil {
			r.told = make(map[refusal]struct{})
		}
		r.told[k] = struct{}{}
	}
	r.mu.Unlock()
	if !known {
		r.Log.Warn("memory of a device is copied through memory of the host", "device", on.Name(), "err", err)
	}
}

// Registered returns the number of registered buffers.
func (r *Registry) Registered() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.entries)
}

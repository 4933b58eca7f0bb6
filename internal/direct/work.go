package direct

import (
	"context"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/transport"
)

// Work returns memory of a device of at least some bytes, for an operation: registered, and held. The Registry keeps one such
// buffer of each device between operations, since a registration takes long.
func (r *Registry) Work(ctx context.Context, by transport.Exposer, on device.Direct, bytes int) (device.Buffer, *Memory, error) {
	r.mu.Lock()
	b := r.idle[on]
	delete(r.idle, on)
	r.mu.Unlock()
	if b != nil && b.Len() < bytes {
		_ = b.Free() // The device may be closed.
		b = nil
	}
	if b == nil {
		var err error
		if b, err = on.Alloc(ctx, bytes); err != nil {
			return nil, nil, err
		}
	}
	m, err := r.Hold(by, b)
	if err != nil {
		_ = b.Free()
		return nil, nil, err
	}
	m.Bytes = m.Bytes[:bytes:bytes]
	return b, m, nil
}

// Return takes memory of Work back, after its Release. No queued work of the device may use it: the next operation gets it at once.
func (r *Registry) Return(b device.Buffer) {
	on := b.Device().(device.Direct)
	r.mu.Lock()
	other := r.idle[on]
	if r.idle == nil {
		r.idle = make(map[device.Direct]device.Buffer)
	}
	if !r.closed && (other == nil || other.Len() < b.Len()) {
		r.idle[on] = b
		b = other
	}
	r.mu.Unlock()
	if b != nil {
		_ = b.Free()
	}
}

// Close frees the memory that the Registry keeps.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	idle := r.idle
	r.idle = nil
	r.mu.Unlock()
	for _, b := range idle {
		_ = b.Free() // The device may be closed.
	}
}

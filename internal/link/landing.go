package link

import (
	"slices"
	"sync"
)

// A Landing is memory of a device that receives payloads. The peer writes them remotely where that works. Other payloads, and
// the rest of those that cannot be written remotely any more, arrive in memory of the host, since a reader must not wait for a
// device. Its owner copies these parts to the device when the operation has ended.
type Landing struct {
	memory []byte // of the device: only its addresses are used

	mu    sync.Mutex
	host  []byte // as long as memory; nil until it is needed
	parts []Part // of host, in the order of their offsets, with gaps between them
}

// A Part is a part of a Landing, from byte At on, that is in memory of the host.
type Part struct {
	At    int
	Bytes []byte
}

// NewLanding returns a Landing of memory of a device, which the processor cannot access.
func NewLanding(memory []byte) *Landing { return &Landing{memory: memory} }

// Parts returns the parts in memory of the host, in the order of the offsets.
func (d *Landing) Parts() []Part {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.parts)
}

// OnHost returns the n bytes from offset at on if all of them are in memory of the host, and reports whether any is.
func (d *Landing) OnHost(at, n int) (all []byte, some bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		if p.At <= at && at+n <= p.At+len(p.Bytes) {
			return p.Bytes[at-p.At : at-p.At+n], true
		}
		some = some || p.At < at+n && at < p.At+len(p.Bytes)
	}
	return nil, some
}

// Overlay copies those of the len(b) bytes from offset at on that are in memory of the host to b.
func (d *Landing) Overlay(b []byte, at int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.parts {
		if from, to := max(p.At, at), min(p.At+len(p.Bytes), at+len(b)); from < to {
			copy(b[from-at:to-at], p.Bytes[from-p.At:])
		}
	}
}

// Put notes that b has arrived at offset at. It copies b.
func (d *Landing) Put(b []byte, at int) {
	copy(d.room(at, len(b)), b)
	d.arrived(at, len(b))
}

// room returns the memory of the host for n bytes from offset at on.
func (d *Landing) room(at, n int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		d.host = make([]byte, len(d.memory))
	}
	return d.host[at : at+n : at+n]
}

// arrived notes that n bytes from offset at on are in memory of the host.
func (d *Landing) arrived(at, n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to := at, at+n
	kept := d.parts[:0]
	i := 0
	for _, p := range d.parts {
		switch {
		case p.At+len(p.Bytes) < from:
			kept = append(kept, p)
			i++
		case p.At > to:
			kept = append(kept, p)
		default:
			from, to = min(from, p.At), max(to, p.At+len(p.Bytes))
		}
	}
	d.parts = slices.Insert(kept, i, Part{from, d.host[from:to]})
}

// Drop notes that the device has n bytes from offset at on, which replace those in memory of the host.
func (d *Landing) Drop(at, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.parts) == 0 {
		return
	}
	var kept []Part
	for _, p := range d.parts {
		end := p.At + len(p.Bytes)
		if before := min(end, at); p.At < before {
			kept = append(kept, Part{p.At, p.Bytes[:before-p.At]})
		}
		if behind := max(p.At, at+n); behind < end {
			kept = append(kept, Part{behind, p.Bytes[behind-p.At:]})
		}
	}
	d.parts = kept
}

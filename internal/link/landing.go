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

	mu     sync.Mutex
	blocks []*block // for the payloads that have arrived in memory of the host
	parts  []Part   // of blocks, in the order of their offsets
}

// A Part is a part of a Landing, from byte At on, that is in memory of the host.
type Part struct {
	At    int
	Bytes []byte
	of    *block
}

func (p Part) end() int { return p.At + len(p.Bytes) }

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
	p := payload{at, len(b)}
	copy(d.room(p, at, len(b)), b)
	d.arrived(p, at, len(b))
}

// A payload is the range of a Landing that a payload is for.
type payload struct{ at, bytes int }

// A block is memory of the host for the range of a payload, and later ones for parts of the same range.
type block struct {
	at    int
	bytes []byte
}

// blockLocked returns the latest block that has memory for a payload, or nil.
func (d *Landing) blockLocked(p payload) *block {
	for _, b := range slices.Backward(d.blocks) {
		if b.at <= p.at && p.at+p.bytes <= b.at+len(b.bytes) {
			return b
		}
	}
	return nil
}

// room returns the memory of the host for n bytes from offset at on, which are of a payload.
func (d *Landing) room(p payload, at, n int) []byte {
	d.mu.Lock()
	b := d.blockLocked(p)
	d.mu.Unlock()
	if b == nil {
		more := &block{p.at, make([]byte, p.bytes)} // may take long: other readers do not wait
		d.mu.Lock()
		if b = d.blockLocked(p); b == nil {
			b = more
			d.blocks = append(d.blocks, b)
		}
		d.mu.Unlock()
	}
	return b.bytes[at-b.at : at-b.at+n : at-b.at+n]
}

// arrived notes that n bytes of a payload from offset at on are in memory of the host.
func (d *Landing) arrived(p payload, at, n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blockLocked(p)
	d.dropLocked(at, n)
	from, to := at, at+n
	i, _ := slices.BinarySearchFunc(d.parts, at, func(p Part, at int) int { return p.At - at })
	behind := i
	if i > 0 && d.parts[i-1].of == b && d.parts[i-1].end() == from {
		i--
		from = d.parts[i].At
	}
	if behind < len(d.parts) && d.parts[behind].of == b && d.parts[behind].At == to {
		to = d.parts[behind].end()
		behind++
	}
	d.parts = slices.Replace(d.parts, i, behind, Part{from, b.bytes[from-b.at : to-b.at], b})
}

// Drop notes that the device has n bytes from offset at on, which replace those in memory of the host.
func (d *Landing) Drop(at, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dropLocked(at, n)
}

func (d *Landing) dropLocked(at, n int) {
	if len(d.parts) == 0 {
		return
	}
	var kept []Part
	for _, p := range d.parts {
		if before := min(p.end(), at); p.At < before {
			kept = append(kept, Part{p.At, p.Bytes[:before-p.At], p.of})
		}
		if behind := max(p.At, at+n); behind < p.end() {
			kept = append(kept, Part{behind, p.Bytes[behind-p.At:], p.of})
		}
	}
	d.parts = kept
}

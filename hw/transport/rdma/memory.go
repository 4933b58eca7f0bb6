//go:build linux

package rdma

import (
	"unsafe"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// A cached is the registration of memory of [transport.Map]. It permits no remote access of its own.
type cached struct {
	m    *transport.Mapping
	mr   *verbs.MR
	uses int
	gone bool // neither in the cache nor exposed: deregistered after the last use
}

// A region is registered memory, until release.
type region struct {
	dev    *device
	mr     *verbs.MR
	cached *cached // nil if mr is for this region alone
	memory []byte  // keeps memory of the Go heap, which does not move, reachable
}

const localAccess = verbs.AccessLocalWrite | verbs.AccessWindowBind

// register registers memory: from the cache if it is mapped, and else for this region alone. Memory of the Go heap
// stays reachable until release: the heap may return the pages of unreachable objects to the system, under the registration.
func (dev *device) register(memory []byte) (*region, error) {
	if m := transport.MappingOf(memory); m != nil {
		return dev.registerMapping(m)
	}
	if e := exposures.find(dev, memory); e != nil {
		return e.use()
	}
	return dev.registerExactly(memory)
}

// registerExactly registers memory for one region.
func (dev *device) registerExactly(memory []byte) (*region, error) {
	if err := dev.hold(); err != nil {
		return nil, err
	}
	mr, err := dev.pd.Register(unsafe.Pointer(&memory[0]), len(memory), localAccess)
	if err != nil {
		dev.letGo()
		return nil, err
	}
	return &region{dev: dev, mr: mr, memory: memory}, nil
}

// registerMapping registers mapped memory. A device that is closed, but still used, has no cache anymore.
func (dev *device) registerMapping(m *transport.Mapping) (*region, error) {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.freedLocked() {
		return nil, transport.ErrClosed
	}
	c := dev.cache[m]
	if c == nil {
		b := m.Bytes()
		mr, err := dev.pd.Register(unsafe.Pointer(&b[0]), len(b), localAccess)
		if err != nil {
			return nil, err
		}
		c = &cached{m: m, mr: mr, gone: dev.closed}
		if !dev.closed {
			dev.cache[m] = c
			dev.bytes += len(b)
			m.OnFree(dev, func() { dev.forget(m) })
		}
	} else {
		dev.removeFromOrder(c)
	}
	c.uses++
	dev.uses++
	if c.gone {
		return &region{dev: dev, mr: c.mr, cached: c}, nil
	}
	dev.order = append(dev.order, c)
	for dev.bytes > dev.limit && len(dev.order) > 1 {
		dev.evictLocked(dev.order[0])
	}
	return &region{dev: dev, mr: c.mr, cached: c}, nil
}

func (dev *device) removeFromOrder(c *cached) {
	for i, o := range dev.order {
		if o == c {
			dev.order = append(dev.order[:i], dev.order[i+1:]...)
			return
		}
	}
}

// evictLocked removes a registration from the cache. It ends with its last use.
func (dev *device) evictLocked(c *cached) {
	dev.removeFromOrder(c)
	delete(dev.cache, c.m)
	dev.bytes -= len(c.m.Bytes())
	c.gone = true
	if c.uses == 0 {
		c.mr.Close()
	}
}

// forget removes memory that is freed from the cache.
func (dev *device) forget(m *transport.Mapping) {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if c := dev.cache[m]; c != nil {
		dev.evictLocked(c)
	}
}

func (dev *device) dropCacheLocked() {
	for len(dev.order) > 0 {
		dev.evictLocked(dev.order[0])
	}
}

// isMapped reports whether memory needs no registration of its own.
func isMapped(memory []byte) bool {
	return transport.MappingOf(memory) != nil || exposures.find(nil, memory) != nil
}

// release ends the use of the region.
func (r *region) release() {
	defer r.dev.letGo()
	if r.cached == nil {
		r.mr.Close()
		r.memory = nil
		return
	}
	r.dev.mu.Lock()
	defer r.dev.mu.Unlock()
	r.cached.uses--
	if r.cached.gone && r.cached.uses == 0 {
		r.cached.mr.Close()
	}
}

package transport

import (
	"slices"
	"sync"
	"unsafe"
)

// A Mapping is memory outside of the Go heap. Transports may keep it registered, so that payloads in it are sent and
// received without copies. Memory of the heap cannot stay registered: the heap may return its pages to the system.
type Mapping struct {
	bytes []byte

	mu     sync.Mutex
	onFree map[any]func() // by owner
}

// mappings are all mappings, sorted by their addresses.
var mappings struct {
	sync.RWMutex
	list []*Mapping
}

// Map maps n bytes, which are zero and aligned to pages. The memory is valid until Free. n must be positive.
func Map(n int) (*Mapping, error) {
	b, err := mapMemory(n)
	if err != nil {
		return nil, err
	}
	m := &Mapping{bytes: b}
	mappings.Lock()
	defer mappings.Unlock()
	i, _ := findMapping(m.start())
	mappings.list = slices.Insert(mappings.list, i, m)
	return m, nil
}

// MappingOf returns the mapping that contains all of b, or nil. It is nil for an empty slice.
func MappingOf(b []byte) *Mapping {
	if len(b) == 0 {
		return nil
	}
	mappings.RLock()
	defer mappings.RUnlock()
	if len(mappings.list) == 0 {
		return nil
	}
	start := uintptr(unsafe.Pointer(&b[0]))
	i, exact := findMapping(start)
	if !exact {
		i--
	}
	if i < 0 || start+uintptr(len(b)) > mappings.list[i].start()+uintptr(len(mappings.list[i].bytes)) {
		return nil
	}
	return mappings.list[i]
}

func findMapping(start uintptr) (int, bool) {
	return slices.BinarySearchFunc(mappings.list, start, func(m *Mapping, start uintptr) int {
		switch s := m.start(); {
		case s < start:
			return -1
		case s > start:
			return 1
		}
		return 0
	})
}

func (m *Mapping) start() uintptr { return uintptr(unsafe.Pointer(&m.bytes[0])) }

// Bytes returns the memory.
func (m *Mapping) Bytes() []byte { return m.bytes }

// OnFree makes Free call f before the memory is unmapped: a transport, the owner of f, deregisters the memory. An
// owner has one function; a later one replaces it.
func (m *Mapping) OnFree(owner any, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onFree == nil {
		m.onFree = make(map[any]func())
	}
	m.onFree[owner] = f
}

// Free unmaps the memory. No operation may use it, and no slice of it may be accessed afterwards. Free may be called
// once.
func (m *Mapping) Free() {
	mappings.Lock()
	i, _ := findMapping(m.start())
	mappings.list = slices.Delete(mappings.list, i, i+1)
	mappings.Unlock()
	m.mu.Lock()
	calls := m.onFree
	m.onFree = nil
	m.mu.Unlock()
	for _, f := range calls {
		f()
	}
	unmapMemory(m.bytes)
}

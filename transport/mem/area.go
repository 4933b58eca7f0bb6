package mem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/transport"
)

// pageSize is the alignment of areas.
const pageSize = 4 << 10

// Share gives each endpoint that listens after the call count areas of size bytes (see
// [transport.MemorySharer]). Their memory is allocated at first use.
func (n *Network) Share(count, size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.areaCount, n.areaSize = count, size
}

// areas are the areas of one endpoint.
type areas struct {
	size int
	mu   sync.Mutex
	list [][]byte // nil until first use
}

func newAreas(count, size int) *areas {
	if size == 0 {
		count = 0
	}
	return &areas{size: size, list: make([][]byte, count)}
}

func (a *areas) area(i int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list[i] == nil {
		a.list[i] = newArea(a.size)
	}
	return a.list[i]
}

// newArea allocates memory that is aligned to a page. It consists of words, so that
// atomic counters in it are valid on every platform.
func newArea(size int) []byte {
	words := make([]uint64, (size+pageSize)/8+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (pageSize - 1)
	return b[skip : skip+size : skip+size]
}

// Areas implements [transport.MemorySharer].
func (c *conn) Areas() (count, size int) {
	own, peer := c.owner.areas, c.other().owner.areas
	if own.size != peer.size || len(own.list) != len(peer.list) || len(own.list) == 0 {
		return 0, 0
	}
	return len(own.list), own.size
}

// AcquireAreas implements [transport.MemorySharer].
func (c *conn) AcquireAreas() (transport.Areas, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return areaPair{c.owner.areas, c.other().owner.areas}, nil
}

// An areaPair implements [transport.Areas]. The garbage collector releases the memory.
type areaPair struct{ own, peer *areas }

func (p areaPair) Area(i int) (own, peer []byte) { return p.own.area(i), p.peer.area(i) }
func (p areaPair) Reserve(int, int) error        { return nil }
func (p areaPair) Release()                      {}

// PeerEnded implements [transport.MemorySharer]. Both nodes are in this process, so only
// Close of the peer's transport counts: after Kill, its goroutines may still run.
func (c *conn) PeerEnded() func() bool { return c.other().owner.hasLeft }

func (e *endpoint) hasLeft() bool {
	select {
	case <-e.left:
		return true
	default:
		return false
	}
}

// FutexWait implements [transport.MemorySharer].
func (c *conn) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	c.owner.FutexWait(word, old, d)
}

// FutexWake implements [transport.MemorySharer].
func (c *conn) FutexWake(word *atomic.Uint32) { c.owner.FutexWake(word) }

// areasKey is the key of the areas of every endpoint.
const areasKey = 1

// Areas implements [transport.HostMemory].
func (e *endpoint) Areas() (count, size int) { return len(e.areas.list), e.areas.size }

// AreasKey implements [transport.HostMemory].
func (e *endpoint) AreasKey() uint64 { return areasKey }

// AttachAreas implements [transport.HostMemory].
func (e *endpoint) AttachAreas(peer string, key uint64) (transport.Areas, error) {
	target := e.network.lookup(peer)
	switch {
	case e.isClosed():
		return nil, transport.ErrClosed
	case target == nil:
		return nil, fmt.Errorf("mem: attach the areas of %q: no transport listens at this name: %w", peer, transport.ErrNotLocal)
	case key != areasKey || len(e.areas.list) == 0 || len(e.areas.list) != len(target.areas.list) || e.areas.size != target.areas.size:
		return nil, fmt.Errorf("mem: attach the areas of %q: %w", peer, errNoAreas)
	}
	return areaPair{e.areas, target.areas}, nil
}

var errNoAreas = errors.New("the two nodes have no areas, or areas that differ")

// FutexWait implements [transport.HostMemory].
func (e *endpoint) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	e.network.futexes.wait(word, old, d)
}

// FutexWake implements [transport.HostMemory].
func (e *endpoint) FutexWake(word *atomic.Uint32) { e.network.futexes.wake(word) }

// PeerEnded implements [transport.HostMemory]. An endpoint that was killed ends when it is closed.
func (e *endpoint) PeerEnded(peer string) func() bool {
	n := e.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, known := range []*endpoint{n.endpoints[peer], n.killed[peer]} {
		if known != nil {
			return known.hasLeft
		}
	}
	return func() bool { return true }
}

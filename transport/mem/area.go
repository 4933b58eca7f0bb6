package mem

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/transport"
)

// areaAlign is the alignment of areas, that of pages.
const areaAlign = 4 << 10

// Share gives every endpoint that listens from now on so many areas of so many
// bytes, which its peers can read; see transport.MemorySharer. An area takes no memory
// before somebody asks for it.
func (n *Network) Share(count, size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.areas, n.areaSize = count, size
}

// areas are those of an endpoint, which are made when they are asked for.
type areas struct {
	size int
	mu   sync.Mutex
	made [][]byte // nil: not yet
}

func newAreas(count, size int) *areas {
	if size == 0 {
		count = 0
	}
	return &areas{size: size, made: make([][]byte, count)}
}

func (a *areas) area(i int) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made[i] == nil {
		a.made[i] = newArea(a.size)
	}
	return a.made[i]
}

// newArea is memory that begins with a page. It is made of words, so that
// counters in it are aligned wherever that is.
func newArea(size int) []byte {
	words := make([]uint64, (size+areaAlign)/8+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (areaAlign - 1)
	return b[skip : skip+size : skip+size]
}

// Areas implements transport.MemorySharer.
func (c *conn) Areas() (count, size int) {
	own, peer := c.owner.areas, c.other().owner.areas
	if own.size != peer.size || len(own.made) != len(peer.made) || len(own.made) == 0 {
		return 0, 0
	}
	return len(own.made), own.size
}

// AcquireAreas implements transport.MemorySharer.
func (c *conn) AcquireAreas() (transport.Areas, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return both{c.owner.areas, c.other().owner.areas}, nil
}

// both are the areas of two nodes, which the heap keeps.
type both struct{ own, peer *areas }

// Area implements transport.Areas.
func (b both) Area(i int) (own, peer []byte) { return b.own.area(i), b.peer.area(i) }

// Reserve implements transport.Areas. The heap provides memory, or ends the process.
func (b both) Reserve(int, int) error { return nil }

// Release implements transport.Areas.
func (b both) Release() {}

// PeerEnded implements transport.MemorySharer. The process of the peer is this one: it has
// ended what it did when it has closed its transport.
func (c *conn) PeerEnded() func() bool {
	left := c.other().owner.left
	return func() bool {
		select {
		case <-left:
			return true
		default:
			return false
		}
	}
}

// FutexWait implements transport.MemorySharer.
func (c *conn) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	c.owner.network.beds.sleep(word, old, d)
}

// FutexWake implements transport.MemorySharer.
func (c *conn) FutexWake(word *atomic.Uint32) { c.owner.network.beds.wake(word) }

// beds are where goroutines sleep until someone changes a word and wakes them.
type beds struct {
	mu       sync.Mutex
	sleepers map[*atomic.Uint32][]*sleeper
	free     []*sleeper
}

type sleeper struct {
	woken chan struct{} // gets one value from whoever wakes it
	timer *time.Timer
}

func (b *beds) sleep(word *atomic.Uint32, old uint32, d time.Duration) {
	s := b.lie(word, old)
	if s == nil {
		return
	}
	s.timer.Reset(d)
	select {
	case <-s.woken:
	case <-s.timer.C:
		if !b.rise(word, s) {
			<-s.woken
		}
	}
	s.timer.Stop()
	b.mu.Lock()
	b.free = append(b.free, s)
	b.mu.Unlock()
}

// lie returns a sleeper for word, or nil if that has no longer the value old.
func (b *beds) lie(word *atomic.Uint32, old uint32) *sleeper {
	b.mu.Lock()
	defer b.mu.Unlock()
	if word.Load() != old {
		return nil
	}
	var s *sleeper
	if n := len(b.free); n > 0 {
		s, b.free = b.free[n-1], b.free[:n-1]
	} else {
		s = &sleeper{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	}
	if b.sleepers == nil {
		b.sleepers = make(map[*atomic.Uint32][]*sleeper)
	}
	b.sleepers[word] = append(b.sleepers[word], s)
	return s
}

// rise takes a sleeper back. It reports false if someone wakes it.
func (b *beds) rise(word *atomic.Uint32, s *sleeper) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.sleepers[word] {
		if other == s {
			b.sleepers[word] = append(b.sleepers[word][:i], b.sleepers[word][i+1:]...)
			return true
		}
	}
	return false
}

func (b *beds) wake(word *atomic.Uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asleep := b.sleepers[word]
	if len(asleep) == 0 {
		return
	}
	for _, s := range asleep {
		s.woken <- struct{}{}
	}
	b.sleepers[word] = asleep[:0]
}

package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

var (
	_ transport.Capable = (*conn)(nil)
	_ transport.Areas   = (*holding)(nil)
)

// areas are the areas of a node and those of its peers.
type areas struct {
	count int
	each  int // bytes
	apart int // bytes from one to the next: whole pages
	size  int // of all together; 0 if there are none
	fd    int // of own, to be sent to peers

	reserve func(b []byte) error // reserveMemory, unless a test replaces it

	mu    sync.Mutex
	own   *mapping // nil after close; who holds it has it as well
	peers map[fileID]*mapping
}

// A mapping is all areas of a node, whole pages, for all conns to it, or from it. Who
// uses them may still be at that when the conn has ended, or the node was closed, so
// they are mapped as long as anybody holds them.
type mapping struct {
	mem     []byte
	id      fileID
	holders int // see areas.mu
}

// A fileID tells files apart: a peer that comes again has the same area.
type fileID struct{ dev, ino uint64 }

func newAreas(count, each int) (*areas, error) {
	page := os.Getpagesize()
	apart := (min(each, math.MaxInt-page) + page - 1) / page * page
	if apart < each || apart > 0 && count > math.MaxInt/apart {
		return nil, fmt.Errorf("%d areas of %d bytes are too large", count, each)
	}
	a := &areas{
		count: count, each: each, apart: apart, size: count * apart, fd: -1,
		own: &mapping{holders: 1}, peers: make(map[fileID]*mapping), reserve: reserveMemory,
	}
	if a.size == 0 {
		return a, nil
	}
	var err error
	if a.fd, a.own.mem, err = newMemory("nexar-area", a.size, areaSeals); err != nil {
		return nil, err
	}
	return a, nil
}

// close leaves the areas to those who still hold them.
func (a *areas) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(a.own)
	a.own = nil
	if a.fd >= 0 {
		unix.Close(a.fd)
	}
}

// drop is what one holds no longer. It is called with the lock held.
func (a *areas) drop(m *mapping) {
	if m.holders--; m.holders > 0 {
		return
	}
	if m.mem != nil {
		unix.Munmap(m.mem)
	}
	if a.peers[m.id] == m {
		delete(a.peers, m.id)
	}
}

// A holding is the areas of a node and of a peer, as long as it is held. It implements
// transport.Areas.
type holding struct {
	areas     *areas
	own, peer *mapping
	released  bool // see areas.mu
}

// hold holds the own areas and those of a peer. It is called with the lock held.
func (a *areas) hold(own, peer *mapping) *holding {
	own.holders++
	peer.holders++
	return &holding{areas: a, own: own, peer: peer}
}

// mapPeer holds the own areas and those of a peer, which it maps unless they have been
// already. The peer can no more make them writable than we can.
func (a *areas) mapPeer(fd int) (*holding, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("fstat of the peer's area: %w", err)
	}
	id := fileID{uint64(stat.Dev), stat.Ino}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		return nil, transport.ErrClosed
	}
	peer := a.peers[id]
	if peer == nil {
		mem, err := mapMemory(fd, a.size, areaSeals, unix.PROT_READ)
		if err != nil {
			return nil, err
		}
		peer = &mapping{mem: mem, id: id}
		a.peers[id] = peer
	}
	return a.hold(a.own, peer), nil
}

// again is the same, held once more, or nil if it has been released.
func (h *holding) again() *holding {
	h.areas.mu.Lock()
	defer h.areas.mu.Unlock()
	if h.released {
		return nil
	}
	return h.areas.hold(h.own, h.peer)
}

// Area implements transport.Areas.
func (h *holding) Area(i int) (own, peer []byte) {
	from, to := i*h.areas.apart, i*h.areas.apart+h.areas.each
	return h.own.mem[from:to:to], h.peer.mem[from:to:to]
}

// Reserve implements transport.Areas.
func (h *holding) Reserve(i, n int) error {
	own, _ := h.Area(i)
	if err := h.areas.reserve(own[:n]); err != nil {
		return fmt.Errorf("shm: an area that others read: %w", err)
	}
	return nil
}

// Release implements transport.Areas. It does nothing for nil.
func (h *holding) Release() {
	if h == nil {
		return
	}
	h.areas.mu.Lock()
	defer h.areas.mu.Unlock()
	if !h.released {
		h.released = true
		h.areas.drop(h.own)
		h.areas.drop(h.peer)
	}
}

// Areas implements transport.MemorySharer.
func (c *conn) Areas() (count, size int) {
	if c.areas == nil {
		return 0, 0
	}
	return c.owner.areas.count, c.owner.areas.each
}

// AcquireAreas implements transport.MemorySharer.
func (c *conn) AcquireAreas() (transport.Areas, error) {
	if c.areas == nil {
		return nil, errors.New("shm: the nodes share no areas")
	}
	if h := c.areas.again(); h != nil {
		return h, nil
	}
	<-c.done
	return nil, c.err
}

// PeerEnded implements transport.MemorySharer. A node has its name until its process ends or
// closes it, also while that stands still; to ask it would be noticed there.
func (c *conn) PeerEnded() func() bool {
	own, peer := socketName(c.owner.cfg.Cluster, c.owner.cfg.Node), socketName(c.owner.cfg.Cluster, c.peer)
	return func() bool {
		runtime.LockOSThread() // and with it the network namespace, in which names are
		defer runtime.UnlockOSThread()
		return isTaken(own) && !isTaken(peer)
	}
}

// isTaken reports whether somebody may have a name in the abstract namespace.
func isTaken(name string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: name}) != nil
}

// FutexWait implements transport.MemorySharer. It blocks a thread.
func (c *conn) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	if d > 0 {
		futexWait(word, old, d)
	}
}

// FutexWake implements transport.MemorySharer.
func (c *conn) FutexWake(word *atomic.Uint32) { futexWake(word) }

// Operations of futex(2), which golang.org/x/sys does not name. They are not
// private to a process: the kernel takes words for the same that lie at the
// same place of a file, even where they are mapped read-only.
const (
	futexWaitOp = 0
	futexWakeOp = 1
)

func futexWait(word *atomic.Uint32, old uint32, d time.Duration) error {
	timeout := unix.NsecToTimespec(int64(d))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitOp, uintptr(old),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("futex wait: %w", errno)
	}
	return nil
}

// futexWake returns how many it has woken.
func futexWake(word *atomic.Uint32) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOp, math.MaxInt32, 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("futex wake: %w", errno)
	}
	return int(n), nil
}

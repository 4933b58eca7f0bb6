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
	_ transport.Capable    = (*conn)(nil)
	_ transport.Areas      = (*areaRef)(nil)
	_ transport.HostMemory = (*endpoint)(nil)
)

// areas are the areas of a node and of its peers.
type areas struct {
	count  int
	each   int // size of an area in bytes
	stride int // bytes from one area to the next: whole pages
	size   int // of all areas together
	fd     int // the file of own, which is sent to peers
	key    uint64

	reserve func(b []byte) error // reserveMemory, unless a test replaces it

	mu    sync.Mutex
	own   *mapping // nil after close; areaRefs may still refer to it
	peers map[fileID]*mapping
}

// A mapping is all areas of one node, for all conns between it and this node. It stays mapped
// while an areaRef refers to it, also after the conn has ended or the node was closed.
type mapping struct {
	mem  []byte
	id   fileID
	refs int // guarded by areas.mu
}

// A fileID identifies a file: a peer that reconnects has the same areas.
type fileID struct{ dev, ino uint64 }

// newAreas makes the areas of the node of a [Config], in a file with a name of its own.
func newAreas(cfg Config) (*areas, error) {
	count, each := cfg.Areas, cfg.AreaSize
	page := os.Getpagesize()
	stride := (min(each, math.MaxInt-page) + page - 1) / page * page
	if stride < each || stride > 0 && count > math.MaxInt/stride {
		return nil, fmt.Errorf("%d areas of %d bytes exceed the address space", count, each)
	}
	a := &areas{
		count: count, each: each, stride: stride, size: count * stride, fd: -1,
		own: &mapping{refs: 1}, peers: make(map[fileID]*mapping), reserve: reserveMemory,
	}
	if a.size == 0 {
		return a, nil
	}
	var err error
	if a.fd, a.own.mem, err = newMemory(areaName(cfg, cfg.Node), a.size, areaSeals); err != nil {
		return nil, err
	}
	a.key = areaKey(os.Getpid(), a.fd)
	return a, nil
}

// close closes the file of the areas. They stay mapped while an areaRef refers to them.
func (a *areas) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unrefLocked(a.own)
	a.own = nil
	if a.fd >= 0 {
		unix.Close(a.fd)
	}
}

// unrefLocked unmaps a mapping with its last reference.
func (a *areas) unrefLocked(m *mapping) {
	if m.refs--; m.refs > 0 {
		return
	}
	if m.mem != nil {
		unix.Munmap(m.mem)
	}
	if a.peers[m.id] == m {
		delete(a.peers, m.id)
	}
}

// An areaRef keeps the areas of a node and of a peer mapped until Release. It implements
// transport.Areas.
type areaRef struct {
	areas     *areas
	own, peer *mapping
	released  bool // guarded by areas.mu
}

// refLocked returns a new reference to two mappings.
func (a *areas) refLocked(own, peer *mapping) *areaRef {
	own.refs++
	peer.refs++
	return &areaRef{areas: a, own: own, peer: peer}
}

// mapPeer maps the areas of a peer, unless they are mapped already, and returns a reference to
// them and to the own areas. They are sealed, so that no process but the peer can write them.
func (a *areas) mapPeer(fd int) (*areaRef, error) {
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
	return a.refLocked(a.own, peer), nil
}

// clone returns another reference, or nil after Release.
func (h *areaRef) clone() *areaRef {
	h.areas.mu.Lock()
	defer h.areas.mu.Unlock()
	if h.released {
		return nil
	}
	return h.areas.refLocked(h.own, h.peer)
}

// Area implements transport.Areas.
func (h *areaRef) Area(i int) (own, peer []byte) {
	from, to := i*h.areas.stride, i*h.areas.stride+h.areas.each
	return h.own.mem[from:to:to], h.peer.mem[from:to:to]
}

// Reserve implements transport.Areas.
func (h *areaRef) Reserve(i, n int) error {
	own, _ := h.Area(i)
	if err := h.areas.reserve(own[:n]); err != nil {
		return fmt.Errorf("shm: reserve memory of an area: %w", err)
	}
	return nil
}

// Release implements transport.Areas. It does nothing for nil.
func (h *areaRef) Release() {
	if h == nil {
		return
	}
	h.areas.mu.Lock()
	defer h.areas.mu.Unlock()
	if !h.released {
		h.released = true
		h.areas.unrefLocked(h.own)
		h.areas.unrefLocked(h.peer)
	}
}

// Areas implements transport.MemorySharer.
func (c *conn) Areas() (count, size int) {
	if c.areas == nil {
		return 0, 0
	}
	return c.endpoint.areas.count, c.endpoint.areas.each
}

// AcquireAreas implements transport.MemorySharer.
func (c *conn) AcquireAreas() (transport.Areas, error) {
	if c.areas == nil {
		return nil, errors.New("shm: the nodes share no areas")
	}
	if h := c.areas.clone(); h != nil {
		return h, nil
	}
	<-c.done
	return nil, c.err
}

// PeerEnded implements transport.MemorySharer.
func (c *conn) PeerEnded() func() bool { return c.endpoint.PeerEnded(c.peer) }

// PeerEnded implements transport.HostMemory. The name of a node is taken until its process
// ends or closes it, also while the process is stopped. The peer does not notice the check.
func (e *endpoint) PeerEnded(node string) func() bool {
	own, peer := socketName(e.cfg.Cluster, e.cfg.Node), socketName(e.cfg.Cluster, node)
	return func() bool {
		runtime.LockOSThread() // and its network namespace, which has the names
		defer runtime.UnlockOSThread()
		return isNameTaken(own) && !isNameTaken(peer)
	}
}

// isNameTaken reports whether a name in the abstract namespace is, or may be, taken.
func isNameTaken(name string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: name}) != nil
}

// FutexWait implements transport.MemorySharer.
func (c *conn) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	c.endpoint.FutexWait(word, old, d)
}

// FutexWake implements transport.MemorySharer.
func (c *conn) FutexWake(word *atomic.Uint32) { c.endpoint.FutexWake(word) }

// FutexWait implements transport.HostMemory. It blocks a thread.
func (e *endpoint) FutexWait(word *atomic.Uint32, old uint32, d time.Duration) {
	if d > 0 {
		_ = futexWait(word, old, d)
	}
}

// FutexWake implements transport.HostMemory.
func (e *endpoint) FutexWake(word *atomic.Uint32) { _, _ = futexWake(word) }

// Operations of futex(2), which golang.org/x/sys does not name. They are shared between
// processes: the kernel identifies a word by its file and offset, also in a read-only mapping.
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

// futexWake returns the number of threads that it has woken.
func futexWake(word *atomic.Uint32) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOp, math.MaxInt32, 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("futex wake: %w", errno)
	}
	return int(n), nil
}

package shm

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

var _ transport.Sharer = (*conn)(nil)

// areas are the areas of a node and those of its peers.
type areas struct {
	count int
	each  int // bytes
	apart int // bytes from one to the next: whole pages
	size  int // of all together; 0 if there are none
	fd    int // of own, to be sent to peers

	mu    sync.Mutex
	own   *mapping // nil after close; conns have it as well
	peers map[fileID]weak.Pointer[mapping]
}

// A mapping is all areas of a node, whole pages, for all conns to it, or from it. Who
// uses them may still be at that when the conn has ended, or the node was closed, so it
// is the garbage collector that knows when they are no longer needed.
type mapping struct{ mem []byte }

func newMapping(mem []byte) *mapping {
	m := &mapping{mem}
	runtime.AddCleanup(m, func(mem []byte) { unix.Munmap(mem) }, mem)
	return m
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
		own: new(mapping), peers: make(map[fileID]weak.Pointer[mapping]),
	}
	if a.size == 0 {
		return a, nil
	}
	fd, mem, err := newMemory("nexar-area", a.size, areaSeals)
	if err != nil {
		return nil, err
	}
	a.fd, a.own = fd, newMapping(mem)
	return a, nil
}

// mapPeer is the own area and that of a peer, which it maps unless it has been
// already. The peer can no more make it writable than we can.
func (a *areas) mapPeer(fd int) (own, peer *mapping, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, nil, fmt.Errorf("fstat of the peer's area: %w", err)
	}
	id := fileID{uint64(stat.Dev), stat.Ino}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.own == nil {
		return nil, nil, transport.ErrClosed
	}
	if p := a.peers[id].Value(); p != nil {
		return a.own, p, nil
	}
	mem, err := mapMemory(fd, a.size, areaSeals, unix.PROT_READ)
	if err != nil {
		return nil, nil, err
	}
	p := newMapping(mem)
	a.peers[id] = weak.Make(p)
	runtime.AddCleanup(p, a.forget, id)
	return a.own, p, nil
}

// forget forgets the areas of a peer that nobody can reach any more.
func (a *areas) forget(id fileID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.peers[id].Value() == nil { // They may have been mapped again.
		delete(a.peers, id)
	}
}

// close leaves the areas to those who still use them.
func (a *areas) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = nil
	if a.fd >= 0 {
		unix.Close(a.fd)
	}
}

// Areas implements transport.Sharer.
func (c *conn) Areas() (count, size int) {
	if c.area == nil {
		return 0, 0
	}
	return c.owner.areas.count, c.owner.areas.each
}

// Area implements transport.Sharer.
func (c *conn) Area(i int) (own, peer []byte) {
	a := c.owner.areas
	from, to := i*a.apart, i*a.apart+a.each
	return c.own.mem[from:to:to], c.area.mem[from:to:to]
}

// PeerEnded implements transport.Sharer. A node has its name until its process ends or
// closes it, also while that stands still; to ask it would be noticed there.
func (c *conn) PeerEnded() func() bool {
	name := []byte(socketName(c.owner.cfg.Cluster, c.peer) + "\n")
	return func() bool {
		sockets, err := os.ReadFile("/proc/net/unix")
		return err == nil && !bytes.Contains(sockets, name)
	}
}

// Sleep implements transport.Sharer. It blocks a thread.
func (c *conn) Sleep(word *atomic.Uint32, old uint32, d time.Duration) {
	if d > 0 {
		futexWait(word, old, d)
	}
}

// Wake implements transport.Sharer.
func (c *conn) Wake(word *atomic.Uint32) { futexWake(word) }

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

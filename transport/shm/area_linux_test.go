package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// wordAt returns the word at an offset of an area.
func wordAt(area []byte, i int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&area[i]))
}

// acquireAreas acquires the areas of s until the test ends.
func hold(t *testing.T, s transport.MemorySharer) transport.Areas {
	t.Helper()
	areas, err := s.AcquireAreas()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(areas.Release)
	return areas
}

// TestAreas: each side reads the writes of the other side.
func TestAreas(t *testing.T) {
	const size = 10_001
	const count = 3
	a, b := newPair(t, Config{Areas: count, AreaSize: size})
	for i := range count {
		ownA, peerA := hold(t, a).Area(i)
		ownB, peerB := hold(t, b).Area(i)
		for _, area := range [][]byte{ownA, peerA, ownB, peerB} {
			if len(area) != size || cap(area) != size || uintptr(unsafe.Pointer(&area[0]))%uintptr(os.Getpagesize()) != 0 {
				t.Fatalf("an area of %d bytes at %p", len(area), &area[0])
			}
			if !bytes.Equal(area, make([]byte, size)) {
				t.Error("an area is not zero at first")
			}
		}
		for j := range size {
			ownA[j], ownB[j] = byte(j+i), byte(j*7+i)
		}
		if !bytes.Equal(peerA, ownB) || !bytes.Equal(peerB, ownA) {
			t.Error("the two sides see different contents of an area")
		}
	}
	if n, each := b.Areas(); n != count || each != size {
		t.Errorf("%d areas of %d bytes, want %d of %d", n, each, count, size)
	}
}

// TestAreaIsReadOnly: no peer can make an area writable.
func TestAreaIsReadOnly(t *testing.T) {
	a, b := newPair(t, Config{AreaSize: 4096})
	_, peer := hold(t, a).Area(0)
	if err := unix.Mprotect(peer, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("mprotect makes the area of a peer writable")
	}
	fd := b.endpoint.areas.fd // the peer has received a copy
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("mmap makes the area of a peer writable")
	}
	if n, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
		t.Errorf("pwrite writes %d bytes to the area of a peer", n)
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("ftruncate shortens the area of a peer")
	}
}

// TestAreasThatDiffer: nodes with areas that differ in number or length share none. Pipes work.
func TestAreasThatDiffer(t *testing.T) {
	for _, sizes := range [][4]int{
		{1, 0, 1, 0}, {1, 4096, 1, 0}, {1, 0, 1, 4096}, {1, 4096, 1, 8192}, {1, 4096, 1, 4095}, {1, 4096, 2, 4096}, {1, 8192, 2, 4096},
	} {
		cluster := uniqueCluster()
		from := newNode(t, Config{Cluster: cluster, Node: "a", Areas: sizes[0], AreaSize: sizes[1]})
		to := newNode(t, Config{Cluster: cluster, Node: "b", Areas: sizes[2], AreaSize: sizes[3]})
		a, b := connectNodes(t, from, to)
		for _, c := range []*conn{a, b} {
			if count, size := c.Areas(); count != 0 || size != 0 {
				t.Errorf("areas of %v bytes: got %d of %d bytes", sizes, count, size)
			}
		}
		s, r := newPipe(t, a, b)
		s.Write([]byte{1})
		if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("areas of %v bytes: read %d, %v", sizes, n, err)
		}
	}
}

// TestAreasAreUnmapped: the areas of a peer that has ended, and of a closed node, are unmapped
// with the last reference.
func TestAreasAreUnmapped(t *testing.T) {
	cluster := uniqueCluster()
	from := newNode(t, Config{Cluster: cluster, Node: "a", AreaSize: 4096})
	for i := range 3 {
		to := newNode(t, Config{Cluster: cluster, Node: fmt.Sprint("b", i), AreaSize: 4096})
		a, _ := connectNodes(t, from, to)
		areas := hold(t, a)
		if _, peer := areas.Area(0); peer[7] != 0 {
			t.Error("the area is not zero at first")
		}
		to.Close()
		<-a.Done()
		areas.Release()
		areas.Release()
	}
	wantMappings(t, 1) // its own
	from.areas.mu.Lock()
	if n := len(from.areas.peers); n > 0 {
		t.Errorf("the areas of %d peers are mapped, want 0", n)
	}
	from.areas.mu.Unlock()
	from.Close()
	wantMappings(t, 0)
}

// TestAreasOutliveConn: areas stay mapped until Release, also when the conn has ended
// and both nodes were closed; and a peer that reconnects has no second mapping.
func TestAreasOutliveConn(t *testing.T) {
	cluster := uniqueCluster()
	from := newNode(t, Config{Cluster: cluster, Node: "a", AreaSize: 4096})
	to := newNode(t, Config{Cluster: cluster, Node: "b", AreaSize: 4096})
	a, b := connectNodes(t, from, to)
	_, peer := hold(t, a).Area(0)
	own, _ := hold(t, b).Area(0)
	a.Close()
	<-b.Done()
	if _, err := a.AcquireAreas(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("areas of a connection that was closed: %v", err)
	}
	if _, err := b.AcquireAreas(); !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("areas of a connection that the peer has closed: %v", err)
	}
	if a.PeerEnded()() || b.PeerEnded()() {
		t.Error("PeerEnded reports true for a closed connection")
	}
	own[7] = 7
	if peer[7] != 7 {
		t.Error("the area of the peer has changed")
	}
	second, _ := connectNodes(t, from, to)
	if _, again := hold(t, second).Area(0); &again[0] != &peer[0] {
		t.Error("the area of the same peer is mapped a second time")
	}
	to.Close()
	if !a.PeerEnded()() {
		t.Error("PeerEnded reports false for a closed node")
	}
	from.Close()
	if own[7]++; peer[7] != 8 {
		t.Error("the areas were unmapped with the nodes")
	}
}

const (
	turns  = 1000
	lineAt = 128 // a word that only the parent writes
)

// shareArea is a child that answers the parent's word with its own, and then
// wakes the sleepers on another word of the parent, until the parent has changed it.
func shareArea(c transport.Conn) {
	s := transport.CapabilitiesOf(c).MemorySharer
	areas, err := s.AcquireAreas()
	if err != nil {
		panic(err)
	}
	own, peer := areas.Area(0)
	answer, question := wordAt(own, 0), wordAt(peer, 0)
	for turn := range uint32(turns) {
		for question.Load() == turn {
			s.FutexWait(question, turn, time.Minute)
		}
		answer.Store(turn + 1)
		s.FutexWake(answer)
	}
	for question.Load() == turns {
		s.FutexWake(wordAt(peer, lineAt))
		time.Sleep(time.Millisecond)
	}
}

// TestSleep: a futex wakes sleepers of the other process, whichever of the two
// has the area.
func TestSleep(t *testing.T) {
	o := orders{Task: "area", Cluster: uniqueCluster(), Node: "child", AreaSize: 4096}
	startChild(t, o)
	node := newNode(t, Config{Cluster: o.Cluster, Node: "parent", AreaSize: 4096})
	c, err := node.Dial(t.Context(), "child", "child")
	if err != nil {
		t.Fatal(err)
	}
	s := transport.CapabilitiesOf(c).MemorySharer
	own, peer := hold(t, s).Area(0)
	question, answer := wordAt(own, 0), wordAt(peer, 0)
	start := time.Now()
	for turn := range uint32(turns) {
		question.Store(turn + 1)
		s.FutexWake(question)
		for answer.Load() == turn {
			s.FutexWait(answer, turn, time.Minute)
		}
	}
	t.Logf("%v for a round trip", time.Since(start)/turns)

	start = time.Now()
	s.FutexWait(wordAt(own, lineAt), 0, time.Minute)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("the peer has not woken this process in %v", took)
	}
	question.Store(turns + 1)
}

// TestSleepReturns: FutexWait does not sleep if the word has changed, and no longer
// than the given time.
func TestSleepReturns(t *testing.T) {
	a, b := newPair(t, Config{AreaSize: 4096})
	own, _ := hold(t, a).Area(0)
	_, peer := hold(t, b).Area(0)
	word, seen := wordAt(own, 64), wordAt(peer, 64)
	word.Store(5)
	start := time.Now()
	b.FutexWait(seen, 4, time.Minute)
	b.FutexWait(seen, 5, 0)
	b.FutexWait(seen, 5, -time.Second)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("FutexWait on a word that has changed took %v", took)
	}
	start = time.Now()
	b.FutexWait(seen, 5, 20*time.Millisecond)
	if took := time.Since(start); took < 15*time.Millisecond {
		// It may return early, but a kernel that always does would burn time.
		t.Errorf("FutexWait of 20ms took %v", took)
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for seen.Load() == 5 {
				b.FutexWait(seen, 5, time.Minute)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	word.Store(6)
	start = time.Now()
	a.FutexWake(word)
	all.Wait()
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("three sleepers took %v to wake", took)
	}
}

// TestAreaIsSparse: a large area needs no memory until it is used.
func TestAreaIsSparse(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a", AreaSize: 1 << 30})
	var stat unix.Stat_t
	if err := unix.Fstat(node.areas.fd, &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Size != 1<<30 || stat.Blocks != 0 {
		t.Errorf("an area of %d bytes has %d blocks, want 0 of %d", stat.Size, stat.Blocks, 1<<30)
	}
	if _, err := New(Config{Cluster: node.cfg.Cluster, Node: "b", AreaSize: math.MaxInt}); err == nil || !strings.Contains(err.Error(), "area") {
		t.Errorf("an area of math.MaxInt bytes: %v", err)
	}
}

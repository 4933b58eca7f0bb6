package shm

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

const shownBytes = 1<<20 + 3

func shownByte(i int) byte { return byte(i ^ i>>8 ^ i>>16) }

// show is a child that says in its area where it has something.
func show(c transport.Conn) {
	shown := make([]byte, shownBytes)
	for i := range shown {
		shown[i] = shownByte(i)
	}
	own, _ := c.(transport.Sharer).Areas()
	(*atomic.Uint64)(unsafe.Pointer(&own[0])).Store(uint64(uintptr(unsafe.Pointer(&shown[0]))))
	<-c.Done()
	shown[0]++ // It has to be there until then.
}

// TestPull: what a peer shows can be copied from its memory, whichever side has
// dialed, and nothing after its end.
func TestPull(t *testing.T) {
	o := orders{Task: "show", Cluster: uniqueCluster(), Node: "child", AreaSize: 4096}
	peer := startChild(t, o)
	node := newNode(t, Config{Cluster: o.Cluster, Node: "parent", AreaSize: 4096})
	tc, err := node.Dial(t.Context(), "child", "child")
	if err != nil {
		t.Fatal(err)
	}
	c := tc.(*conn)
	err = pull(c.pid, make([]byte, 1), 0)
	forbidden := errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)
	require.Have(t, "pull", !forbidden, fmt.Sprintf("the system does not let a process read the memory of its child: %v", err))
	if !c.Pulls() {
		t.Fatal("the memory of a child cannot be read")
	}
	_, area := c.Areas()
	at := (*atomic.Uint64)(unsafe.Pointer(&area[0]))
	for end := time.Now().Add(10 * time.Second); at.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child shows nothing")
		}
	}
	want := make([]byte, shownBytes)
	for i := range want {
		want[i] = shownByte(i)
	}
	for _, n := range []int{0, 1, 4096, shownBytes} {
		got := make([]byte, n)
		if err := c.Pull(got, at.Load()); err != nil || !bytes.Equal(got, want[:n]) {
			t.Errorf("%d bytes: %v, or they are others", n, err)
		}
		var mark [8]byte
		clear(got)
		err := c.PullMarked(got, at.Load(), mark[:], at.Load()+100)
		if err != nil || !bytes.Equal(got, want[:n]) || !bytes.Equal(mark[:], want[100:108]) {
			t.Errorf("%d bytes and a mark: %v, or they are others", n, err)
		}
	}
	if err := c.Pull(make([]byte, 8), 8); err == nil {
		t.Error("something lies where nothing is mapped")
	}
	if err := c.PullMarked(make([]byte, 8), at.Load(), make([]byte, 8), 8); err == nil {
		t.Error("a mark lies where nothing is mapped")
	}
	peer.kill()
	<-c.Done()
	if err := c.Pull(make([]byte, 8), at.Load()); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("after the end of the peer: %v, want ErrPeerGone", err)
	}
}

// TestSecretOfAnother: memory in which something else lies is not taken for
// that of the peer.
func TestSecretOfAnother(t *testing.T) {
	s := newSecret()
	value, at := s.tell()
	us := int32(unix.Getpid())
	if canPull(us, value+1, at) || canPull(us, value, 16) {
		t.Error("another secret is taken for the right one")
	}
	if canPull(1<<30, value, at) {
		t.Error("the memory of no process can be read")
	}
	s[0]++ // It has to be there until then.
}

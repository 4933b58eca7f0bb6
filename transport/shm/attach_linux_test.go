package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// attach attaches the areas of one node at another one until the test ends.
func attach(tb testing.TB, at, of *endpoint) transport.Areas {
	tb.Helper()
	areas, err := at.AttachAreas(of.Addr(), of.AreasKey())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(areas.Release)
	return areas
}

// TestAttachAreas: nodes without a conn read the writes of each other, which no peer can make. Nothing is left of the
// areas after their release.
func TestAttachAreas(t *testing.T) {
	cfg := Config{Cluster: uniqueCluster(), Node: "a", Areas: 3, AreaSize: 5000}
	a := newNode(t, cfg)
	cfg.Node = "b"
	b := newNode(t, cfg)
	files, maps := openFiles(t), mappings(t)
	atA, atB := attach(t, a, b), attach(t, b, a)
	if n := openFiles(t); n > files {
		t.Errorf("%d open files, before %d", n, files)
	}
	for i := range 3 {
		ownA, peerA := atA.Area(i)
		ownB, peerB := atB.Area(i)
		for _, own := range [][]byte{ownA, ownB} {
			wordAt(own, 64).Store(uint32(i) + 7)
		}
		if wordAt(peerA, 64).Load() != uint32(i)+7 || wordAt(peerB, 64).Load() != uint32(i)+7 || len(peerA) != 5000 {
			t.Errorf("area %d: a node does not see the word of the other one", i)
		}
		page := peerA[:cap(peerA)]
		if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE); err == nil {
			t.Error("mprotect makes an attached area writable")
		}
	}
	if err := atA.Reserve(1, 5000); err != nil {
		t.Error(err)
	}
	again := attach(t, a, b)
	if n := mappings(t); n != maps+2 {
		t.Errorf("%d mappings with two peers, one of them attached twice; before %d", n, maps)
	}
	b.Close()
	if _, peer := again.Area(2); wordAt(peer, 64).Load() != 9 {
		t.Error("the areas are lost when the peer closes its transport")
	}
	for _, areas := range []transport.Areas{atA, atB, again} {
		areas.Release()
		areas.Release()
	}
	wantMappings(t, 1) // its own
}

// TestAttachRefuses: a node attaches nothing but the areas of the named node.
func TestAttachRefuses(t *testing.T) {
	cfg := Config{Cluster: uniqueCluster(), Node: "a", Areas: 2, AreaSize: 4096}
	node := func(name string, change func(*Config)) *endpoint {
		other := cfg
		other.Node = name
		change(&other)
		return newNode(t, other)
	}
	same := func(*Config) {}
	a, b, c := newNode(t, cfg), node("b", same), node("c", same)
	closed := node("closed", same)
	key := closed.AreasKey()
	closed.Close()
	pipe, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe)
	for name, test := range map[string]struct {
		peer string
		key  uint64
		want error
	}{
		"none":                   {"b", 0, nil},
		"no process":             {"b", areaKey(1<<22+1, 3), transport.ErrNotLocal},
		"negative process":       {"b", 1<<63 | 3, nil},
		"no file":                {"b", areaKey(os.Getpid(), 1<<20), transport.ErrNotLocal},
		"another file":           {"b", areaKey(os.Getpid(), pipe), transport.ErrNotLocal},
		"another process":        {"b", areaKey(1, int(uint32(b.AreasKey()))), transport.ErrNotLocal},
		"another node":           {"b", c.AreasKey(), transport.ErrNotLocal},
		"another cluster":        {"d", node("d", func(o *Config) { o.Cluster += "2" }).AreasKey(), transport.ErrNotLocal},
		"more areas":             {"e", node("e", func(o *Config) { o.Areas = 3 }).AreasKey(), transport.ErrNotLocal},
		"equal bytes, otherwise": {"f", node("f", func(o *Config) { o.Areas, o.AreaSize = 1, 8192 }).AreasKey(), transport.ErrNotLocal},
		"no areas":               {"g", node("g", func(o *Config) { o.Areas, o.AreaSize = 0, 0 }).AreasKey(), nil},
		"closed":                 {"closed", key, transport.ErrNotLocal},
	} {
		areas, err := a.AttachAreas(test.peer, test.key)
		t.Logf("%s: %v", name, err)
		if err == nil {
			areas.Release()
			t.Errorf("%s: attached", name)
		} else if !errors.Is(err, test.want) && test.want != nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", test.peer)) {
			t.Errorf("%s: got %v, want one that names the node and wraps %v", name, err, test.want)
		}
	}
	attach(t, a, b)
	a.Close()
	if _, err := a.AttachAreas("b", b.AreasKey()); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("attach at a closed node: %v", err)
	}
}

// TestAttachImpostor: a file with the name of the areas of a node that its owner could shorten is not mapped.
func TestAttachImpostor(t *testing.T) {
	cfg := Config{Cluster: uniqueCluster(), Node: "a", AreaSize: 4096}
	a := newNode(t, cfg)
	for _, seals := range []int{unix.F_SEAL_SEAL, pipeSeals} {
		fd, mem, err := newMemory(areaName(a.cfg, "b"), 4096, seals)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.AttachAreas("b", areaKey(os.Getpid(), fd))
		if err == nil || !strings.Contains(err.Error(), "seals") {
			t.Errorf("seals %#x: %v", seals, err)
		}
		unix.Munmap(mem)
		unix.Close(fd)
	}
}

// attachedArea is a child that prints the key of its areas and counts in a word of them.
func attachedArea(o orders) {
	tr, err := New(Config{Cluster: o.Cluster, Node: o.Node, AreaSize: o.AreaSize})
	check(err)
	node := tr.(*endpoint)
	wordAt(node.areas.own.mem, 0).Store(77)
	fmt.Println(node.AreasKey())
	if o.Dial != "" { // as another user
		var key uint64
		_, err := fmt.Sscan(o.Dial, &key)
		check(err)
		_, err = node.AttachAreas("ours", key)
		say(err)
	}
	io.Copy(io.Discard, os.Stdin)
	check(tr.Close())
}

// key returns the key that a child prints.
func (ch *child) key(tb testing.TB) (key uint64) {
	tb.Helper()
	if _, err := fmt.Sscan(ch.line(), &key); err != nil {
		tb.Fatal(err)
	}
	return key
}

// TestAttachProcess: the areas of another process stay readable after its death. A later attempt to attach them fails,
// and PeerEnded reports the death.
func TestAttachProcess(t *testing.T) {
	cfg := Config{Cluster: uniqueCluster(), Node: "a", AreaSize: 4096}
	a := newNode(t, cfg)
	ch := launch(t, exec.Command(os.Args[0]), orders{Task: "attachedArea", Cluster: cfg.Cluster, Node: "b", AreaSize: 4096})
	key := ch.key(t)
	areas, err := a.AttachAreas("b", key)
	if err != nil {
		t.Fatal(err)
	}
	defer areas.Release()
	ended := a.PeerEnded("b")
	if ended() {
		t.Error("the peer counts as ended")
	}
	ch.kill()
	if _, peer := areas.Area(0); wordAt(peer, 0).Load() != 77 {
		t.Error("the word of the other process is not there")
	}
	if _, err := a.AttachAreas("b", key); !errors.Is(err, transport.ErrNotLocal) {
		t.Errorf("attach the areas of a dead process: %v", err)
	}
	for start := time.Now(); !ended(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatal("the peer does not count as ended")
		}
	}
}

// TestAttachOtherUser: no user attaches the areas of another one, neither one without rights nor root.
func TestAttachOtherUser(t *testing.T) {
	require.Root(t)
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "ours", AreaSize: 4096})
	cmd := exec.Command(copyBinary(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUserID, Gid: otherUserID}}
	cmd.Dir = "/"
	ch := launch(t, cmd, orders{Task: "attachedArea", Cluster: node.cfg.Cluster, Node: "theirs", AreaSize: 4096, Dial: fmt.Sprint(node.AreasKey())})
	key := ch.key(t)
	if got := ch.line(); !strings.Contains(got, "permission denied") {
		t.Errorf("the other user attaches: %s", got)
	}
	_, err := node.AttachAreas("theirs", key)
	if !errors.Is(err, transport.ErrIdentity) || !strings.Contains(err.Error(), "belong to user 65534") {
		t.Errorf("root attaches the areas of another user: %v", err)
	}
	ch.exit(t)
}

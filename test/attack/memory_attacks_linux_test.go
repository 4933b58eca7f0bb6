package attack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/require"
)

// memoryAttacks are those that take memory from ranks.
func memoryAttacks() []attack {
	return []attack{
		{"memory cgroup", "a rank in a memory cgroup of 40 MB works, and one that needs more is killed or gets an error, and goes alone", 15 * time.Second, false, attackCgroup},
		{"no shared memory", "a rank whose system refuses pages of shared memory gets an error that says so in place of SIGBUS, and goes alone", 15 * time.Second, false, attackNoPages},
	}
}

// cgroupBytes is the memory that a cgroup allows.
const cgroupBytes = 40 << 20

// A cgroup limits the memory of the processes that are started in it.
type cgroup struct{ dir string }

// newCgroup makes a cgroup, of whichever version the system has.
func newCgroup(t *testing.T) *cgroup {
	t.Helper()
	var last error
	for _, version := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		c := &cgroup{filepath.Join(version.root, fmt.Sprintf("nexar-attack-%d-%d", os.Getpid(), time.Now().UnixNano()))}
		if last = os.Mkdir(c.dir, 0o755); last != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(c.dir) })
		if last = c.write(version.limit, cgroupBytes); last == nil {
			return c
		}
	}
	require.Have(t, "cgroup", false, fmt.Sprintf("no memory cgroup can be made: %v", last))
	return nil
}

// Start implements starter. Memory that the process has by the time it is moved
// counts for the group that it comes from.
func (c *cgroup) Start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	return c.write("cgroup.procs", cmd.Process.Pid)
}

// write sets a file of the cgroup, which must exist: a directory that is no cgroup has
// none.
func (c *cgroup) write(name string, value int) error {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(value))
	return errors.Join(err, f.Close())
}

// attackCgroup has a rank work in a small cgroup, and then allocate more.
func attackCgroup(t *testing.T, rng *rand.Rand) {
	group := newCgroup(t)
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "shm,tcp,quic"))
	w.seed(nil, arguments{World: ranks, Listen: "127.0.0.1:0"})
	for range ranks - 1 {
		w.rank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	victim := w.rank(group, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	w.progress(20)
	victim.harm()
	victim.tell("eat")
	w.size(ranks - 1)
	w.progress(5)
	w.finish()
}

// attackNoPages has the system refuse pages to a rank, as it does under strict
// overcommit when there are none left.
func attackNoPages(t *testing.T, rng *rand.Rand) {
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "shm,tcp,quic"))
	w.local(ranks, arguments{Elastic: true})
	i := rng.Perm(ranks)
	victim, other := w.ranks[i[0]], w.ranks[i[1]]
	victim.tell("exhaust")
	time.Sleep(100 * time.Millisecond)
	// The next world needs memory of its own.
	victim.harm()
	for _, p := range w.ranks {
		// The victim reports each link that it cannot use, before it is known
		// that all of them are its own.
		p.accuse()
	}
	other.signal(os.Kill)
	w.size(ranks - 2)
	e := victim.await(bound, "error of the rank without memory", func(e event) bool { return e.Kind == evOut || e.Kind == evError })
	if text := e.Text + victim.log.String(); !strings.Contains(text, "the system has no memory for") {
		t.Errorf("the rank without memory does not say so: %s\n%s", e.Text, victim.log.Tail(3000))
	}
	w.progress(5)
	w.finish()
}

// eat allocates many times the memory of the cgroup.
func eat() {
	const chunk = 4 << 20
	var kept [][]byte
	for range 8 * cgroupBytes / chunk {
		b := make([]byte, chunk)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "allocated", len(kept), "chunks")
}

// exhaust has the kernel refuse this process to populate pages from now on: with a
// filter for madvise(MADV_POPULATE_WRITE), which all threads get.
func exhaust() error {
	const (
		load, jumpEqual, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		number, advice       = 0, 16 + 2*8 // where seccomp_data has them
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: jumpEqual, Jf: 3, K: unix.SYS_MADVISE},
		{Code: load, K: advice},
		{Code: jumpEqual, Jf: 1, K: unix.MADV_POPULATE_WRITE},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

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

// memoryAttacks are attacks that take memory from ranks.
func memoryAttacks() []attack {
	return []attack{
		{"memory cgroup", "a rank in a memory cgroup of 40 MB works, and one that needs more is killed or gets an error, and is the only one removed", 15 * time.Second, false, attackCgroup},
		{"no shared memory", "a rank for which the system has no pages of shared memory gets an error in place of SIGBUS, and is the only one removed", 15 * time.Second, false, attackNoPages},
	}
}

// cgroupBytes is the limit of a cgroup.
const cgroupBytes = 40 << 20

// A cgroup limits the memory of the processes that are started in it.
type cgroup struct{ dir string }

// newCgroup creates a cgroup, of version 1 or 2.
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
	require.Have(t, "cgroup", false, fmt.Sprintf("cannot create a memory cgroup: %v", last))
	return nil
}

// Start implements launcher. Memory that the process allocates before it is moved counts for its
// previous cgroup.
func (c *cgroup) Start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	return c.write("cgroup.procs", cmd.Process.Pid)
}

// write writes an existing file of the cgroup. A directory outside a cgroup file system has none.
func (c *cgroup) write(name string, value int) error {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(value))
	return errors.Join(err, f.Close())
}

// attackCgroup has a rank work in a small cgroup and then allocate more.
func attackCgroup(t *testing.T, rng *rand.Rand) {
	group := newCgroup(t)
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "shm,tcp,quic"))
	w.startSeed(nil, arguments{World: ranks, Listen: "127.0.0.1:0"})
	for range ranks - 1 {
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	victim := w.startRank(group, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	w.waitForSteps(20)
	victim.markVictim()
	victim.send("allocate much")
	w.waitForSize(ranks - 1)
	w.waitForSteps(5)
	w.finish()
}

// attackNoPages has the system refuse pages to a rank, as under strict overcommit when none are left.
func attackNoPages(t *testing.T, rng *rand.Rand) {
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "shm,tcp,quic"))
	w.startLocal(ranks, arguments{Elastic: true})
	i := rng.Perm(ranks)
	victim, other := w.ranks[i[0]], w.ranks[i[1]]
	victim.send("refuse pages")
	time.Sleep(100 * time.Millisecond)
	// The next world needs new memory.
	victim.markVictim()
	for _, p := range w.ranks {
		// The victim reports each link that it cannot use, before the seed knows that the
		// victim is the common end.
		p.markSuspect()
	}
	other.signal(os.Kill)
	w.waitForSize(ranks - 2)
	e := victim.await(bound, "error of the rank without memory", func(e event) bool { return e.Kind == evOut || e.Kind == evError })
	if text := e.Text + victim.log.String(); !strings.Contains(text, "the system has no memory for") {
		t.Errorf("neither the error nor the log of the rank names the missing memory: %s\n%s", e.Text, victim.log.Tail(3000))
	}
	w.waitForSteps(5)
	w.finish()
}

// allocateMuch allocates many times the memory of the cgroup.
func allocateMuch() {
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

// refusePages has the kernel refuse to populate pages of this process from now on, by a seccomp
// filter of all threads for madvise(MADV_POPULATE_WRITE).
func refusePages() error {
	const (
		load, jumpEqual, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		number, advice       = 0, 16 + 2*8 // offsets in seccomp_data
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

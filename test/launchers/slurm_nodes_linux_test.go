package launchers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Other tests rely on these properties of nodes: each has its hostname, finds the others by theirs, and takes all its processes
// with it when it is killed.
func TestSlurmNodes(t *testing.T) {
	t.Parallel()
	s := startSlurm(t, 2, 2)
	lines := strings.Split(strings.TrimSpace(s.run("srun", "-N", "2", "sh", "-c", "echo $(hostname) $(getent ahostsv4 n2 | head -n 1)")), "\n")
	slices.Sort(lines)
	for i, line := range lines {
		if fields := strings.Fields(line); len(fields) < 2 || fields[0] != nodeName(i) || fields[1] != nodeAddress(1) {
			t.Errorf("node %d says %q: expected its name and the address %s of n2", i, line, nodeAddress(1))
		}
	}

	lock, ready := filepath.Join(s.dir, "lock"), filepath.Join(s.dir, "ready")
	job := s.command(t.Context(), "srun", "-w", "n2", "sh", "-c", `exec 9>"$1"; flock 9; setsid sleep 1000 & touch "$2"; wait`, "sh", lock, ready)
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = job.Process.Kill()
		_ = job.Wait() // It is killed.
	}()
	s.await("task that runs", func() (string, bool) {
		_, err := os.Stat(ready)
		return "", err == nil
	})
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	free := func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if free() == nil {
		t.Fatal("the task does not have its lock")
	}
	s.nodes[1].kill()
	if err := free(); err != nil {
		t.Errorf("a process of the killed node has the lock: %v", err)
	}
	if out := s.run("srun", "-w", "n1", "hostname"); out != "n1\n" {
		t.Errorf("the other node says %q", out)
	}
}

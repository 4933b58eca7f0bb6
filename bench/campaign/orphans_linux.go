package campaign

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// orphans kills processes that have left the process group of their parent and outlived it, such as
// the daemons of mpirun. The kernel reparents them to this process, a child subreaper.
type orphans struct {
	before map[int]bool // children from before, which are left alone
}

// watchOrphans makes this process a child subreaper. If the kernel refuses, end finds no orphans.
func watchOrphans() *orphans {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	o := &orphans{before: make(map[int]bool)}
	for _, pid := range children() {
		o.before[pid] = true
	}
	return o
}

// end kills all children that this process has got since watchOrphans, and their descendants.
func (o *orphans) end() {
	for again := true; again; {
		again = false
		for _, pid := range children() {
			if o.before[pid] {
				continue
			}
			// A child that has not been waited for keeps its process ID.
			if syscall.Kill(pid, syscall.SIGKILL) != nil {
				continue
			}
			if _, err := syscall.Wait4(pid, nil, 0, nil); err == nil {
				again = true
			}
		}
	}
}

// children returns the IDs of the child processes of this process.
func children() []int {
	var pids []int
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil
	}
	for _, name := range lists {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // The thread has ended.
		}
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

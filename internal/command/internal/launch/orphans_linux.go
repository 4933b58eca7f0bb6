package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orphans are the descendants of this process that no [child] accounts for.
//
// While an orphans value is open, this process is a child subreaper: the kernel makes it the parent of every descendant that
// loses its own parent, in any session or process group. So an orphan is a direct child of this process, or becomes one when the
// orphans above it have ended. The pid of a direct child stays reserved until this process has waited for it, so a signal to a
// direct child cannot reach an unrelated process.
type orphans struct {
	kept       []int        // direct children from before adoptOrphans, which are not orphans
	terminated map[int]bool // processes and process groups that were sent SIGTERM
}

// adoptOrphans makes this process a subreaper, until close.
func adoptOrphans() *orphans {
	// Available since Linux 3.4, without privileges.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	return &orphans{kept: directChildren(), terminated: make(map[int]bool)}
}

func (*orphans) close() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

// reap waits for direct children that have ended, except the pids in running: os/exec waits for these. It does not block.
func (o *orphans) reap(running map[int]bool) {
	for _, p := range o.direct() {
		if running[p.pid] {
			continue
		}
		_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG|unix.WALL, nil)
	}
}

// none reports whether no orphan is left. It reaps orphans that have ended. Every child of Run must have been reaped.
func (o *orphans) none() bool {
	o.reap(nil)
	if len(o.kept) > 0 {
		return len(o.direct()) == 0 && len(o.among(childrenByParent())) == 0 // which misses none
	}
	// Without any child there is no descendant. The kernel decides this under a lock that also guards forking, so no process can
	// slip through.
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) == unix.ECHILD
}

// terminate sends SIGTERM to every orphan that is a direct child, once, and returns these. It skips members of process groups that were
// sent SIGTERM before, by this method or, those in groups, by the caller.
func (o *orphans) terminate(groups map[int]bool) []process {
	direct := o.direct()
	for _, p := range direct {
		group, _ := unix.Getpgid(p.pid)
		if !o.terminated[p.pid] && !o.terminated[group] && !groups[group] {
			p.signal(unix.SIGTERM)
		}
		o.terminated[p.pid] = true
	}
	return direct
}

// killTimeMax bounds kill: a process that hangs in the kernel does not end, and
// a process of another user cannot be killed.
const killTimeMax = 10 * time.Second

// kill ends all orphans and returns the survivors.
//
// Killing a direct child makes its children direct children in turn, so that the next pass reaches them. A process that forks in
// the meantime is therefore never lost, only found later.
func (o *orphans) kill() []process {
	end := time.Now().Add(killTimeMax)
	for pass := 0; !o.none(); pass++ {
		for _, p := range o.direct() {
			p.signal(unix.SIGKILL)
		}
		if pass%16 == 15 {
			time.Sleep(time.Millisecond) // Some processes take a while to end.
		}
		if time.Now().After(end) {
			return o.direct()
		}
	}
	return nil
}

// direct returns the orphans that are direct children, including ended ones.
func (o *orphans) direct() []process { return o.among(directChildren()) }

// among returns the orphans in the pids of children.
func (o *orphans) among(children []int) (found []process) {
	for _, pid := range children {
		if !slices.Contains(o.kept, pid) {
			found = append(found, process{pid})
		}
	}
	return found
}

// directChildren returns the pids of the children of this process. It may miss a child while others start and end. Without
// /proc it returns none.
func directChildren() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if len(lists) == 0 {
		return childrenByParent()
	}
	return pids
}

// childrenByParent reads the parents of all processes, see proc_pid_stat(5). It takes longer than directChildren, works on kernels
// without CONFIG_PROC_CHILDREN, and misses no child that was there before and has not been waited for.
func childrenByParent() (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		if _, parent := readStat(stat); parent == strconv.Itoa(os.Getpid()) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// readStat returns the state of a process and its parent, see proc_pid_stat(5).
func readStat(path string) (state, parent string) {
	text, _ := os.ReadFile(path)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // behind the name of the program
	if len(fields) < 2 {
		return "", ""
	}
	return fields[0], fields[1]
}

// A process is a direct child of this process.
type process struct{ pid int }

// signal sends a signal to the process, or to its process group if it leads one: one system call reaches all members, even if they
// fork. Another group may have members that are no orphans.
func (p process) signal(s os.Signal) {
	sig, ok := s.(unix.Signal)
	if !ok {
		return
	}
	pid := p.pid
	if group, err := unix.Getpgid(pid); err == nil && group == pid {
		pid = -pid
	}
	_ = unix.Kill(pid, sig)
}

// name returns the name of the program.
func (p process) name() string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/comm")
	if err != nil {
		return "(unknown)"
	}
	return strings.TrimSuffix(string(text), "\n")
}

// stopped reports whether a signal has stopped the process, or a debugger.
func (p process) stopped() bool {
	state, _ := readStat("/proc/" + strconv.Itoa(p.pid) + "/stat")
	return strings.EqualFold(state, "t")
}

// groupLeft reports whether the process group of a child that was reaped has a member that this process does not wait for.
func groupLeft(group int) bool {
	for {
		// Members without a parent have become children of this process.
		if pid, err := unix.Wait4(-group, nil, unix.WNOHANG|unix.WALL, nil); err == unix.EINTR || pid > 0 {
			continue
		}
		return unix.Kill(-group, 0) == nil
	}
}

package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orphans are the descendants of this process that no [child] accounts for.
//
// While an orphans value is open, this process is a child subreaper: the kernel
// makes it the parent of every descendant that loses its own parent, in any session
// or process group. The pid of a direct
// child stays reserved until this process has waited for it, so a signal to a
// direct child cannot reach an unrelated process.
type orphans struct {
	// The maps hold start times, which tell a process from a later one with the same pid.
	kept       map[int]uint64 // direct children from before adoptOrphans, which are not orphans
	terminated map[int]uint64 // processes that were sent SIGTERM
	read       readFile
}

// adoptOrphans makes this process a subreaper, until close.
func adoptOrphans() *orphans { return adoptOrphansBy(os.ReadFile) }

// adoptOrphansBy is adoptOrphans with another function that reads the entries of processes.
func adoptOrphansBy(read readFile) *orphans {
	o := &orphans{kept: make(map[int]uint64), terminated: make(map[int]uint64), read: read}
	for _, pid := range directChildren() {
		if p, err := lookUp(strconv.Itoa(pid), read); err == nil {
			o.kept[pid] = p.start
		}
	}
	// Available since Linux 3.4, without privileges.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	return o
}

func (*orphans) close() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

// isKept reports whether pid, which was the pid of a direct child a moment ago, belongs to a
// direct child from before adoptOrphans. Its owner may wait for it at any time, and the pid
// is then free for an orphan.
func (o *orphans) isKept(pid int) bool {
	start, ok := o.kept[pid]
	if !ok {
		return false
	}
	p, err := readProcess(strconv.Itoa(pid), o.read)
	return err != nil || p.start == start
}

// reap waits for direct children that have ended, except the pids in running:
// os/exec waits for these. It does not block.
func (o *orphans) reap(running map[int]bool) {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	if err != nil || info.Signo == 0 {
		return
	}
	for _, pid := range directChildren() {
		if !o.isKept(pid) && !running[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil)
		}
	}
}

// none reports whether no orphan is left. It reaps orphans that have ended.
// Every child of Run must have been reaped.
func (o *orphans) none() bool {
	o.reap(nil)
	// Without any child there is no descendant. The kernel decides this under
	// a lock that also guards forking, so no process can slip through.
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	if err == unix.ECHILD {
		return true
	}
	return len(o.kept) > 0 && !o.hasChild()
}

// hasChild reports whether this process has a direct child that is an orphan, running or
// ended. It also reports true if /proc cannot be read.
//
// /proc is no snapshot: if a process forks behind the position of the reader and ends before
// the reader reaches it, the new process is not seen. Ended children therefore count. A
// running orphan is a direct child or descends from one, which stays a direct child until
// this process has waited for it. No other goroutine waits for orphans, so a child that is
// there when the reader starts is still there, running or ended, when the reader reaches it.
func (o *orphans) hasChild() bool {
	all, err := processes(o.read)
	if err != nil {
		return true
	}
	for _, p := range all {
		if p.parent == os.Getpid() && !o.keeps(p) {
			return true
		}
	}
	return false
}

// keeps reports whether p is a direct child from before adoptOrphans.
func (o *orphans) keeps(p process) bool {
	start, ok := o.kept[p.pid]
	return ok && start == p.start
}

// terminate sends SIGTERM to every orphan once and returns the running orphans. It
// skips members of the given process groups, which were sent SIGTERM before.
func (o *orphans) terminate(groups map[int]bool) []process {
	running := o.list()
	for _, p := range running {
		if start, ok := o.terminated[p.pid]; ok && start == p.start {
			continue
		}
		o.terminated[p.pid] = p.start
		if !groups[p.group] {
			p.signal(unix.SIGTERM)
		}
	}
	return running
}

// killTimeMax bounds kill: a process that hangs in the kernel does not end, and
// a process of another user cannot be killed.
const killTimeMax = 10 * time.Second

// kill ends all orphans and returns the survivors.
//
// Killing a direct child makes its children direct children in turn, so that
// the next pass reaches them. A process that forks in the meantime is therefore
// never lost, only found later.
func (o *orphans) kill() []process {
	end := time.Now().Add(killTimeMax)
	for pass := 0; !o.none(); pass++ {
		for _, pid := range directChildren() {
			if o.isKept(pid) {
				continue
			}
			if group, err := unix.Getpgid(pid); err == nil && group == pid {
				// One system call kills a whole group, forking or not.
				_ = unix.Kill(-pid, unix.SIGKILL)
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if pass%16 == 15 {
			o.killGroups()
			time.Sleep(time.Millisecond) // Some processes take a while to end.
		}
		if time.Now().After(end) {
			return o.list()
		}
	}
	return nil
}

// killGroups kills every process group that consists of orphans only.
func (o *orphans) killGroups() {
	all, err := processes(o.read)
	if err != nil {
		return // A process that is missing in all might be a member that is no orphan.
	}
	members := make(map[int]int)
	for _, p := range all {
		members[p.group]++
	}
	ours := make(map[int]int)
	for _, p := range o.among(all) {
		ours[p.group]++
	}
	for group, n := range ours {
		if n == members[group] && group > 1 {
			_ = unix.Kill(-group, unix.SIGKILL)
		}
	}
}

// list returns the running orphans. It may miss a process that starts or loses its parent
// during the call; see hasChild.
func (o *orphans) list() []process {
	all, _ := processes(o.read)
	var running []process
	for _, p := range o.among(all) {
		if !p.ended() {
			running = append(running, p)
		}
	}
	return running
}

// among returns the orphans in all, including ended ones.
func (o *orphans) among(all []process) []process {
	byParent := make(map[int][]process)
	for _, p := range all {
		byParent[p.parent] = append(byParent[p.parent], p)
	}
	var found []process
	for next := byParent[os.Getpid()]; len(next) > 0; {
		p := next[0]
		next = next[1:]
		if !o.keeps(p) {
			found = append(found, p)
			next = append(next, byParent[p.pid]...)
		}
	}
	return found
}

// A process is an entry of /proc.
type process struct {
	pid, parent, group int
	start              uint64 // distinguishes it from a later process with the same pid; 0 if the process is hidden
	state              byte
	name               string
}

// hidden describes a process whose entry of /proc is not readable. With the mount option hidepid=1, these are the processes of
// other users, and of programs with privileges of their own. Its parent is this process or 0, which is the
// parent of no other process in the list.
func hidden(pid int) process {
	p := process{pid: pid, state: '?', name: "(hidden)"}
	p.group, _ = unix.Getpgid(pid) // It needs no permission.
	var info unix.Siginfo
	if unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) != nil {
		return p // not a child
	}
	p.parent = os.Getpid()
	if info.Signo != 0 {
		p.state = 'Z'
	}
	return p
}

// ended reports whether the process is a zombie.
func (p process) ended() bool { return p.state == 'Z' || p.state == 'X' }

// signal sends a signal to the process. It never signals another process that reuses the pid.
func (p process) signal(s os.Signal) {
	sig, ok := s.(unix.Signal)
	if !ok {
		return
	}
	if p.parent == os.Getpid() {
		_ = unix.Kill(p.pid, sig)
		return
	}
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, err := readProcess(strconv.Itoa(p.pid), os.ReadFile); err == nil && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// A readFile is os.ReadFile, or in tests a function that fails for some processes.
type readFile func(name string) ([]byte, error)

// processes returns all processes in /proc, see hidden for those of others. If some cannot be read for another reason, it
// returns the others and an error.
func processes(read readFile) ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, failure := dir.Readdirnames(-1)
	all := make([]process, 0, len(names))
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		p, err := lookUp(name, read)
		switch {
		case err == nil:
			all = append(all, p)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
			failure = err
		}
	}
	return all, failure
}

// lookUp is readProcess, but also returns hidden processes.
func lookUp(pid string, read readFile) (process, error) {
	p, err := readProcess(pid, read)
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return p, err
	}
	n, failed := strconv.Atoi(pid)
	if failed != nil {
		return p, err
	}
	return hidden(n), nil
}

// readProcess reads /proc/PID/stat. If the process does not exist, the error is
// fs.ErrNotExist, or ESRCH if it was reaped during the call.
func readProcess(pid string, read readFile) (process, error) {
	name := "/proc/" + pid + "/stat"
	stat, err := read(name)
	if err != nil {
		return process{}, err
	}
	p, ok := parseStat(stat)
	if !ok {
		return process{}, fmt.Errorf("%s: %q has another format than proc_pid_stat(5)", name, stat)
	}
	return p, nil
}

// parseStat parses the contents of /proc/PID/stat, see proc_pid_stat(5). The
// name of the program is in parentheses and may contain parentheses.
func parseStat(stat []byte) (p process, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	const parent, group, start = 1, 2, 19
	if len(fields) <= start {
		return p, false
	}
	p.name, p.state = string(stat[open+1:end]), fields[0][0]
	for field, text := range map[*int]string{
		&p.pid: strings.TrimSpace(string(stat[:open])), &p.parent: fields[parent], &p.group: fields[group],
	} {
		n, err := strconv.Atoi(text)
		if err != nil {
			return p, false
		}
		*field = n
	}
	n, err := strconv.ParseUint(fields[start], 10, 64)
	p.start = n
	return p, err == nil
}

// directChildren returns the pids of the children of this process. It reads
// /proc/self/task/TID/children, which is much shorter than /proc but may miss a child
// while others start and end, or /proc on kernels without CONFIG_PROC_CHILDREN.
func directChildren() []int {
	tasks, _ := os.ReadDir("/proc/self/task")
	var pids []int
	known := false
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		known = known || err == nil
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if known {
		return pids
	}
	all, _ := processes(os.ReadFile)
	for _, p := range all {
		if p.parent == os.Getpid() {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// groupLeft reports whether the process group of a child that was reaped has a running
// member.
func groupLeft(group int) bool {
	if unix.Kill(-group, 0) != nil {
		return false
	}
	// Another group may reuse the id by now.
	for _, p := range (&orphans{read: os.ReadFile}).list() {
		if p.group == group {
			return true
		}
	}
	return false
}

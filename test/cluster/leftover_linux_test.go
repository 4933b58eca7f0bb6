package cluster

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// goneMax limits the time from the end of a process or node to the release of its resources.
const goneMax = time.Minute

// leftovers lists the resources that could outlive the processes of a test: named files and
// abstract sockets. The kernel frees unnamed resources with their process.
type leftovers struct {
	t       *testing.T
	dir     string // TMPDIR of the workers
	exe     string // the executable of the workers
	files   map[string]bool
	sockets map[string]int // the listening process
	// inherited are the files that this process has open, which workers inherit: a log or a lock of the program that runs
	// the tests.
	inherited map[string]bool
}

// watchLeftovers is called before newWorkerSet, so that it checks for leftovers after the workers have
// ended.
func watchLeftovers(t *testing.T) *leftovers {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &leftovers{t: t, dir: t.TempDir(), exe: exe, files: make(map[string]bool), sockets: make(map[string]int), inherited: make(map[string]bool)}
	for _, link := range descriptors(t, os.Getpid()) {
		l.inherited[link] = true
	}
	before := sharedFiles(t)
	t.Cleanup(func() {
		l.wantAllGone(func() (left []string) {
			for name := range sharedFiles(t) {
				// Other programs use the directory as well.
				if !before[name] && (strings.Contains(name, "nexar") || l.files[name]) {
					left = append(left, name)
				}
			}
			return left
		})
	})
	return l
}

// vars returns variables for the workers.
func (l *leftovers) vars() []string { return []string{"TMPDIR=" + l.dir} }

// sharedFiles returns the names of the files of POSIX shared memory.
func sharedFiles(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	entries, err := os.ReadDir("/dev/shm")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names[filepath.Join("/dev/shm", e.Name())] = true
	}
	return names
}

// note records the resources of running workers. With named, each must have an abstract socket,
// which shows that note finds them.
func (l *leftovers) note(workers []*worker, named bool) {
	l.t.Helper()
	for _, w := range workers {
		pid := w.cmd.Process.Pid
		names, count := abstractSockets(l.t, pid), 0
		for _, link := range descriptors(l.t, pid) {
			if name := names[link]; name != "" {
				l.sockets[name] = pid
				count++
			}
			l.noteFile(link)
		}
		for _, m := range sharedMappings(l.t, pid) {
			l.noteFile(m)
		}
		if named && count == 0 {
			l.t.Errorf("%s has no abstract socket, want the one at which it listens", w.name)
		}
	}
}

// noteFile records the name of a file that a worker may have created.
func (l *leftovers) noteFile(name string) {
	if !filepath.IsAbs(name) || name == l.exe || strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/sys/") || l.inherited[name] {
		return
	}
	if info, err := os.Lstat(name); err == nil && info.Mode()&fs.ModeDevice == 0 {
		l.files[name] = true
	}
}

// wantGone checks that the abstract sockets of a killed process are free.
func (l *leftovers) wantGone(w *worker) {
	l.t.Helper()
	l.untilNone(func() (left []string) {
		taken := namesTaken(l.t)
		for name, pid := range l.sockets {
			if pid == w.cmd.Process.Pid && taken[name] {
				left = append(left, fmt.Sprintf("%s of %s, which was killed", name, w.name))
			}
		}
		return left
	})
}

// wantAllGone checks that no resource of any process is left.
func (l *leftovers) wantAllGone(more func() []string) {
	l.t.Helper()
	l.untilNone(func() []string {
		left := more()
		taken := namesTaken(l.t)
		for name := range l.sockets {
			if taken[name] {
				left = append(left, name)
			}
		}
		for name := range l.files {
			if _, err := os.Lstat(name); err == nil {
				left = append(left, name)
			}
		}
		entries, err := os.ReadDir(l.dir)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, filepath.Join(l.dir, e.Name()))
		}
		return left
	})
}

func (l *leftovers) untilNone(left func() []string) {
	l.t.Helper()
	began := time.Now()
	names := left()
	for len(names) > 0 && time.Since(began) < goneMax {
		time.Sleep(5 * time.Millisecond)
		names = left()
	}
	if len(names) > 0 {
		l.t.Errorf("left over after %v: %s", goneMax, strings.Join(names, ", "))
	}
}

// openResources counts the open files of each worker by kind, and its shared mappings.
func (l *leftovers) openResources(workers []*worker) []map[string]int {
	l.t.Helper()
	mustSucceed(l.t, runAll(workers, command{Do: "memory"})) // waits until they run
	counts := make([]map[string]int, len(workers))
	for i, w := range workers {
		counts[i] = l.openResourcesOf(w)
	}
	return counts
}

func (l *leftovers) openResourcesOf(w *worker) map[string]int {
	l.t.Helper()
	held := make(map[string]int)
	for _, link := range descriptors(l.t, w.cmd.Process.Pid) {
		kind, _, _ := strings.Cut(link, ":[") // socket:[NUMBER] or pipe:[NUMBER]
		if kind == "anon_inode" {
			kind = link
		}
		held[kind]++
	}
	for _, name := range sharedMappings(l.t, w.cmd.Process.Pid) {
		held["mapping of "+name]++
	}
	return held
}

// wantReleased checks that workers that have closed their nodes have only the resources from before
// they joined and those of the network poller of Go.
func (l *leftovers) wantReleased(workers []*worker, before []map[string]int) {
	l.t.Helper()
	l.untilNone(func() (left []string) {
		for _, w := range workers {
			for kind, n := range l.openResourcesOf(w) {
				had := before[w.rank][kind]
				if had == 0 && (kind == "anon_inode:[eventpoll]" || kind == "anon_inode:[eventfd]") {
					had = 1
				}
				if n > had {
					left = append(left, fmt.Sprintf("%s has %d of %q, and had %d before it joined", w.name, n, kind, had))
				}
			}
		}
		return left
	})
}

// descriptors returns the names of the open files of a process.
func descriptors(t *testing.T, pid int) (links []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		// A descriptor may be closed by now.
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			links = append(links, link)
		}
	}
	return links
}

// sharedMappings returns the names of files that a process has mapped shared.
func sharedMappings(t *testing.T, pid int) (names []string) {
	t.Helper()
	for _, fields := range table(t, fmt.Sprintf("/proc/%d/maps", pid)) {
		if len(fields) > 5 && strings.HasSuffix(fields[1], "s") {
			names = append(names, strings.Join(fields[5:], " "))
		}
	}
	return names
}

// abstractSockets returns the names of the abstract sockets in the namespace of a process, by the link
// target of their descriptors.
func abstractSockets(t *testing.T, pid int) map[string]string {
	t.Helper()
	names := make(map[string]string)
	for _, fields := range table(t, fmt.Sprintf("/proc/%d/net/unix", pid)) {
		if len(fields) > 7 && strings.HasPrefix(fields[7], "@") {
			names["socket:["+fields[6]+"]"] = fields[7]
		}
	}
	return names
}

// namesTaken returns the names in use in the abstract namespace of this process.
func namesTaken(t *testing.T) map[string]bool {
	t.Helper()
	taken := make(map[string]bool)
	for _, name := range abstractSockets(t, os.Getpid()) {
		taken[name] = true
	}
	return taken
}

// table reads the fields of each line of a file.
func table(t *testing.T, path string) (rows [][]string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		rows = append(rows, strings.Fields(lines.Text()))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

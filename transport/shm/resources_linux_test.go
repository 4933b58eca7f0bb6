package shm

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openFiles counts the file descriptors of this process.
func openFiles(tb testing.TB) int { return countDir(tb, "/proc/self/fd") }

func threads(tb testing.TB) int { return countDir(tb, "/proc/self/task") }

func countDir(tb testing.TB, dir string) int {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return len(entries)
}

// mappings counts the mappings of this package.
func mappings(tb testing.TB) int {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Count(string(text), "memfd:nexar")
}

// wantOpenFiles and wantMappings wait until there are no more than limit: resources are freed
// shortly after Close.
func wantOpenFiles(tb testing.TB, before int) {
	tb.Helper()
	wantAtMost(tb, "files", before, openFiles)
}

func wantMappings(tb testing.TB, before int) {
	tb.Helper()
	wantAtMost(tb, "mappings", before, mappings)
}

func wantAtMost(tb testing.TB, what string, limit int, count func(testing.TB) int) {
	tb.Helper()
	n := count(tb)
	for start := time.Now(); n > limit && time.Since(start) < 30*time.Second; n = count(tb) {
		time.Sleep(time.Millisecond)
	}
	if n > limit {
		tb.Errorf("%d %s, want at most %d", n, what, limit)
	}
}

// TestMemoryOfPipes: a closed pipe has no memory, and a pipe in use occupies its ring only.
func TestMemoryOfPipes(t *testing.T) {
	a, b := newPair(t, Config{})
	wantMappings(t, 0) // Those of earlier tests may end late.
	var senders []*sender
	var receivers []*receiver
	for i := range 6 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		s, r := newPipe(t, from, to)
		senders, receivers = append(senders, s), append(receivers, r)
	}
	small := resident(t)
	for i, s := range senders {
		var group sync.WaitGroup
		group.Go(func() { s.Write(make([]byte, 2<<20)) })
		if n, err := receivers[i].ReadFunc(2<<20, func([]byte) {}); err != nil {
			t.Fatalf("read %d bytes: %v", n, err)
		}
		group.Wait()
	}
	full := resident(t)
	t.Logf("6 pipes: %d KiB unused, %d KiB after use", small>>10, full>>10)
	if small > 6*headerBytes || full > 1<<20 {
		t.Errorf("6 pipes occupy %d bytes unused, %d after use, want at most %d and %d", small, full, 6*headerBytes, 1<<20)
	}
	for i := range senders {
		senders[i].Close()
		receivers[i].Close()
		if n, want := mappings(t), 10-2*i; n != want {
			t.Errorf("%d mappings, want %d after %d pipes were closed", n, want, i+1)
		}
	}
}

// TestMemoryAtEOF: a pipe that was read to its end frees its memory without a Close of the
// reader.
func TestMemoryAtEOF(t *testing.T) {
	a, b := newPair(t, Config{})
	wantMappings(t, 0) // Those of earlier tests may end late.
	s, r := newPipe(t, a, b)
	s.Close()
	r.Read(make([]byte, 1))
	if n := mappings(t); n != 0 {
		t.Errorf("%d mappings", n)
	}
}

// resident returns the memory that the mappings of this package occupy. Both ends of each pipe
// are in this process and count one half each.
func resident(tb testing.TB) int {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		tb.Fatal(err)
	}
	total, ours := 0, false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if !strings.HasSuffix(fields[0], ":") {
			ours = strings.Contains(line, "memfd:nexar-pipe")
		}
		if ours && fields[0] == "Pss:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				tb.Fatal(err)
			}
			total += kib << 10
		}
	}
	return total
}

// TestIdle: idle conns use no processor time and no threads, with any number of waiting
// goroutines.
func TestIdle(t *testing.T) {
	const conns, pipes = 4, 15
	cluster := uniqueCluster()
	hub := newNode(t, Config{Cluster: cluster, Node: "hub"})
	before := threads(t)
	var group sync.WaitGroup
	for i := range conns {
		node := newNode(t, Config{Cluster: cluster, Node: strconv.Itoa(i)})
		a, b := connectNodes(t, node, hub)
		for range pipes {
			s, r := newPipe(t, a, b)
			group.Go(func() { // reads one byte, so that it has spun, and waits
				for {
					if _, err := r.Read(make([]byte, 1)); err != nil {
						return
					}
				}
			})
			s.Write([]byte{1})
		}
	}
	time.Sleep(100 * time.Millisecond)
	start, cpu := time.Now(), cpuTime(t)
	time.Sleep(2 * time.Second)
	used, wall := cpuTime(t)-cpu, time.Since(start)
	t.Logf("%d conns with %d readers each used %v in %v; %d threads before, %d now",
		conns, pipes, used, wall, before, threads(t))
	if used > 100*time.Millisecond {
		t.Errorf("%d idle conns used %v in %v", conns, used, wall)
	}
	if n := threads(t); n > before+10 {
		t.Errorf("%d goroutines that wait have made %d threads of %d", conns*pipes, n, before)
	}
	hub.Close()
	group.Wait()
}

// cpuTime returns the processor time of this process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

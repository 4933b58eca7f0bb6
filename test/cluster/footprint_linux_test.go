package cluster

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// Limits for a rank in "make footprint". Other runs, on busy machines or with the race detector,
// multiply them (footprint.check).
const (
	// workingMax limits the peak memory of a rank beyond the vector of the all-reduce.
	workingMax = 48 << 20
	// nearPeerMax and farPeerMax limit the memory for an idle peer, over shared memory and
	// over TCP.
	nearPeerMax = 1 << 20
	farPeerMax  = 512 << 10
	// idleMax limits the part of a processor that an idle rank uses.
	idleMax = 0.01
)

const (
	footprintRanks = 4
	fewPeers       = 2
)

// longVector returns the length of the vector of the all-reduce in bytes, and the number of
// all-reduces.
func longVector() (bytes, times int) {
	if require.Race {
		return 16 << 20, 2
	}
	return 64 << 20, 5
}

// manyPeers returns the size of the larger world.
func manyPeers() int {
	if require.Race {
		return 6
	}
	return 10
}

// isStrict reports whether the exact limits apply, as in "make footprint".
func isStrict() bool { return os.Getenv(reportVariable) != "" }

// A footprint builds the report, line by line.
type footprint struct{ strings.Builder }

// check adds a measured value to the report and fails the test if it exceeds the limit. If the run
// is not strict, the limit is multiplied by wide.
func (f *footprint) check(t *testing.T, what string, value, limit, wide float64, unit string) {
	t.Helper()
	if !isStrict() {
		limit *= wide
		if require.Race {
			limit *= 8
		}
	}
	verdict := "pass"
	if value > limit {
		verdict = "FAIL"
		t.Errorf("%s: %.2f %s, want at most %.2f", what, value, unit, limit)
	}
	f.add(t, fmt.Sprintf("%-66s %8.2f %-4s at most %7.2f  %s", what, value, unit, limit, verdict))
}

func (f *footprint) add(t *testing.T, line string) {
	t.Helper()
	t.Log(line)
	fmt.Fprintln(f, line)
}

// TestFootprint measures the memory and processor time of a rank.
func TestFootprint(t *testing.T) {
	t.Parallel()
	f := new(footprint)
	fmt.Fprintf(f, "Memory and processor time of a rank, printed by \"make footprint\".\n%s\n\n", machine())
	fmt.Fprintln(f, strings.TrimSpace(`
Each rank is a process that does only the work named in the line. Resident memory is VmRSS of Linux, which
counts the program itself and all pages of shared memory that the process has touched; its peak is
VmHWM. "Given back" is after Go has returned unused memory to the system. Time is utime and
stime of the process. Values are those of the worst rank, for peers the mean over the ranks.`)+"\n")
	t.Run("working", f.working)
	t.Run("peers", f.peers)
	t.Run("idle", f.idle)
	t.Run("crowd", f.inProcess)
	if isStrict() {
		writeReport(t, f.String())
	}
}

// working measures an all-reduce of a long vector in shared memory.
func (f *footprint) working(t *testing.T) {
	c := newWorkerSet(t)
	vector, times := longVector()
	workers := c.startWorld(footprintRanks, "NEXAR_TRANSPORTS=shm")
	mustSucceed(t, runAll(workers, command{Do: "loop", Op: "barrier", Rounds: 1}))
	idle := largestStatus(t, workers, "VmHWM")
	mustSucceed(t, runAll(workers, command{Do: "reduce-floats", N: vector / 4, Rounds: times}))
	peak := largestStatus(t, workers, "VmHWM")
	what := fmt.Sprintf("%d ranks, shm, all-reduce of %d MiB of float32, %d times", footprintRanks, vector/mib, times)
	f.add(t, what+":")
	f.check(t, "  peak of a rank beyond the vector", float64(peak-vector)/mib, workingMax/mib, 2, "MiB")
	f.add(t, fmt.Sprintf("  peak in all %.2f MiB; of a rank before the all-reduce %.2f MiB; difference beyond the vector %.2f MiB",
		float64(peak)/mib, float64(idle)/mib, float64(peak-idle-vector)/mib))
}

// peers compares processes in worlds of different size.
func (f *footprint) peers(t *testing.T) {
	for _, way := range []struct {
		name  string
		limit float64
	}{{"shm", nearPeerMax}, {"tcp", farPeerMax}} {
		t.Run(way.name, func(t *testing.T) {
			var rss, tidy [2]float64
			for i, n := range []int{fewPeers, manyPeers()} {
				rss[i], tidy[i] = f.resident(t, n, way.name)
			}
			more := float64(manyPeers() - fewPeers)
			f.add(t, fmt.Sprintf("an idle rank, %s, %d ranks %.2f MiB, %d ranks %.2f MiB; given back %.2f and %.2f MiB:",
				way.name, fewPeers, rss[0]/mib, manyPeers(), rss[1]/mib, tidy[0]/mib, tidy[1]/mib))
			f.check(t, "  each further peer", (rss[1]-rss[0])/more/1024, way.limit/1024, 4, "KiB")
			f.check(t, "  each further peer, given back", (tidy[1]-tidy[0])/more/1024, way.limit/1024, 4, "KiB")
		})
	}
}

// resident returns the mean resident memory of the ranks of an idle world: as measured, and after
// Go has returned unused memory.
func (f *footprint) resident(t *testing.T, ranks int, way string) (rss, tidy float64) {
	c := newWorkerSet(t)
	workers := c.startWorld(ranks, "NEXAR_TRANSPORTS="+way)
	mustSucceed(t, runAll(workers, command{Do: "loop", Op: "barrier", Rounds: 1}))
	time.Sleep(time.Second)
	for _, w := range workers {
		rss += float64(procStatus(t, w, "VmRSS")) / float64(ranks)
	}
	mustSucceed(t, runAll(workers, command{Do: "free-memory"}))
	for _, w := range workers {
		tidy += float64(procStatus(t, w, "VmRSS")) / float64(ranks)
	}
	return rss, tidy
}

// idle measures the processor time of idle ranks: without a call, and in a barrier that one rank
// does not enter.
func (f *footprint) idle(t *testing.T) {
	worlds := []*idleWorld{{transports: "shm"}, {transports: "shm", barrier: true}, {transports: "tcp"}, {transports: "tcp", barrier: true}}
	t.Run("worlds", func(t *testing.T) {
		for _, w := range worlds {
			t.Run(w.String(), func(t *testing.T) {
				t.Parallel()
				w.run(t)
			})
		}
	})
	for _, w := range worlds {
		f.check(t, w.String(), 100*w.share, 100*idleMax, 10, "%")
	}
}

// An idleWorld is a measurement of a world that is idle.
type idleWorld struct {
	transports string
	barrier    bool
	share      float64 // of a processor, that a rank uses
}

func (w *idleWorld) String() string {
	what := "idle without a call"
	if w.barrier {
		what = "idle in a barrier that one rank does not enter"
	}
	return fmt.Sprintf("%d ranks, %s, %s", footprintRanks, w.transports, what)
}

func (w *idleWorld) run(t *testing.T) {
	wait := 3 * time.Second
	if isStrict() {
		wait = 20 * time.Second
	}
	c := newWorkerSet(t)
	workers := c.startWorld(footprintRanks, "NEXAR_TRANSPORTS="+w.transports, "NEXAR_BARRIER_TIMEOUT_SECS=-1")
	enter := command{Do: "loop", Op: "barrier", Rounds: 1}
	mustSucceed(t, runAll(workers, enter))
	var running []<-chan result
	if w.barrier {
		for _, w := range workers[1:] {
			running = append(running, w.start(enter))
		}
	}
	time.Sleep(time.Second) // Work in progress ends meanwhile.
	before := make([]time.Duration, len(workers))
	for i, w := range workers {
		before[i] = cpuTime(t, w)
	}
	began := time.Now()
	time.Sleep(wait)
	for i, worker := range workers {
		w.share = max(w.share, (cpuTime(t, worker)-before[i]).Seconds()/time.Since(began).Seconds())
	}
	if w.barrier {
		mustSucceed(t, []result{workers[0].do(enter)})
		mustSucceed(t, awaitAll(workers[1:], running))
	}
}

// largestStatus returns the largest value of a memory field of the workers.
func largestStatus(t *testing.T, workers []*worker, field string) (bytes int) {
	for _, w := range workers {
		bytes = max(bytes, procStatus(t, w, field))
	}
	return bytes
}

// procStatus returns a memory field of /proc/PID/status of a worker.
func procStatus(t *testing.T, w *worker, field string) (bytes int) {
	t.Helper()
	bytes = statusOf(w.cmd.Process.Pid, field)
	if bytes == 0 {
		t.Fatalf("/proc has no %s for %s", field, w.name)
	}
	return bytes
}

// cpuTime returns the processor time that a worker has used.
func cpuTime(t *testing.T, w *worker) time.Duration {
	t.Helper()
	d, err := processorTime(w.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// processorTime returns the processor time, user and system, that a process has used without its children.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may contain spaces.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const utime, stime, tick = 11, 12, 10 * time.Millisecond // proc(5); the unit is a hundredth of a second
	total := 0
	for _, i := range []int{utime, stime} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return 0, err
		}
		total += n
	}
	return time.Duration(total) * tick, nil
}

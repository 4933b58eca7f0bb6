package cluster

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Limits for a rank in "make footprint". Other runs, on busy machines and under the race
// detector, have wider ones.
const (
	// workingMax is how much memory a rank may have had at most beyond the
	// vector of the all-reduce.
	workingMax = 48 << 20
	// nearPeerMax and farPeerMax are how much an idle peer may take, in shared
	// memory and over QUIC with TCP beside it.
	nearPeerMax = 1 << 20
	farPeerMax  = 512 << 10
	// idleMax is the part of a processor that an idle rank may use.
	idleMax = 0.01
)

const (
	footprintRanks = 4
	fewPeers       = 2
)

// longVector is the length of the vector of the all-reduce, in bytes, and how
// often there is one.
func longVector() (bytes, times int) {
	if race {
		return 16 << 20, 2
	}
	return 64 << 20, 5
}

// manyPeers is the size of the larger world.
func manyPeers() int {
	if race {
		return 6
	}
	return 10
}

// strictly reports whether the limits are to be held, as by "make footprint".
func strictly() bool { return os.Getenv(reportVariable) != "" }

// A footprint is the report, line by line.
type footprint struct{ strings.Builder }

// say adds a measured value to the report, and fails the test if it exceeds the
// limit. A run that is not strict has one that is several times as wide.
func (f *footprint) say(t *testing.T, what string, value, limit, wide float64, unit string) {
	t.Helper()
	if !strictly() {
		limit *= wide
		if race {
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
	fmt.Fprintf(f, "What a rank takes, printed by \"make footprint\".\n%s\n\n", machine())
	fmt.Fprintln(f, strings.TrimSpace(`
Each rank is a process that does nothing but what is said. Resident memory is VmRSS of Linux, which
counts the program itself and all pages of shared memory that the process has touched; at its peak,
VmHWM. "Given back" is after Go has returned to the system what it does not use. Time is utime and
stime of the process. The worst rank counts, save for peers, where it is the mean over the ranks.`)+"\n")
	t.Run("working", f.working)
	t.Run("peers", f.peers)
	t.Run("idle", f.idle)
	t.Run("crowd", f.crowd)
	if strictly() {
		writeReport(t, f.String())
	}
}

// working measures an all-reduce of a long vector in shared memory.
func (f *footprint) working(t *testing.T) {
	c := newCrew(t)
	vector, times := longVector()
	team := c.team(footprintRanks, "NEXAR_TRANSPORTS=shm")
	ok(t, all(team, order{Do: "loop", What: "barrier", Sets: 1}))
	idle := worst(t, team, "VmHWM")
	ok(t, all(team, order{Do: "floats", N: vector / 4, Sets: times}))
	peak := worst(t, team, "VmHWM")
	what := fmt.Sprintf("%d ranks, shm, all-reduce of %d MiB of float32, %d times", footprintRanks, vector/mib, times)
	f.add(t, what+":")
	f.say(t, "  peak of a rank beyond the vector", float64(peak-vector)/mib, workingMax/mib, 2, "MiB")
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
			f.say(t, "  each further peer", (rss[1]-rss[0])/more/1024, way.limit/1024, 4, "KiB")
			f.say(t, "  each further peer, given back", (tidy[1]-tidy[0])/more/1024, way.limit/1024, 4, "KiB")
		})
	}
}

// resident returns the mean resident memory of the ranks of an idle world: as measured, and after
// Go has returned unused memory.
func (f *footprint) resident(t *testing.T, ranks int, way string) (rss, tidy float64) {
	c := newCrew(t)
	team := c.team(ranks, "NEXAR_TRANSPORTS="+way)
	ok(t, all(team, order{Do: "loop", What: "barrier", Sets: 1}))
	time.Sleep(time.Second)
	for _, w := range team {
		rss += float64(status(t, w, "VmRSS")) / float64(ranks)
	}
	ok(t, all(team, order{Do: "tidy"}))
	for _, w := range team {
		tidy += float64(status(t, w, "VmRSS")) / float64(ranks)
	}
	return rss, tidy
}

// idle measures the time that ranks use while nothing happens: when nothing has
// been called, and in a barrier that one of them does not enter.
func (f *footprint) idle(t *testing.T) {
	worlds := []*idling{{way: "shm"}, {way: "shm", barrier: true}, {way: "tcp"}, {way: "tcp", barrier: true}}
	t.Run("worlds", func(t *testing.T) {
		for _, w := range worlds {
			t.Run(w.String(), func(t *testing.T) {
				t.Parallel() // The memory of a process does not depend on others.
				w.run(t)
			})
		}
	})
	for _, w := range worlds {
		f.say(t, w.String(), 100*w.share, 100*idleMax, 10, "%")
	}
}

// An idling is an idle world.
type idling struct {
	way     string
	barrier bool
	share   float64 // of a processor, that a rank uses
}

func (w *idling) String() string {
	what := "idle without a call"
	if w.barrier {
		what = "idle in a barrier that one does not enter"
	}
	return fmt.Sprintf("%d ranks, %s, %s", footprintRanks, w.way, what)
}

func (w *idling) run(t *testing.T) {
	wait := 3 * time.Second
	if strictly() {
		wait = 20 * time.Second
	}
	c := newCrew(t)
	team := c.team(footprintRanks, "NEXAR_TRANSPORTS="+w.way, "NEXAR_BARRIER_TIMEOUT_SECS=-1")
	enter := order{Do: "loop", What: "barrier", Sets: 1}
	ok(t, all(team, enter))
	var running []<-chan report
	if w.barrier {
		for _, w := range team[1:] {
			running = append(running, w.start(enter))
		}
	}
	time.Sleep(time.Second) // Work in progress ends meanwhile.
	before := make([]time.Duration, len(team))
	for i, w := range team {
		before[i] = used(t, w)
	}
	began := time.Now()
	time.Sleep(wait)
	for i, worker := range team {
		w.share = max(w.share, (used(t, worker)-before[i]).Seconds()/time.Since(began).Seconds())
	}
	if w.barrier {
		ok(t, []report{team[0].do(enter)})
		ok(t, await(team[1:], running))
	}
}

// worst is the largest value of the workers.
func worst(t *testing.T, team []*worker, field string) (bytes int) {
	for _, w := range team {
		bytes = max(bytes, status(t, w, field))
	}
	return bytes
}

// status returns a memory field of a worker from the system.
func status(t *testing.T, w *worker, field string) (bytes int) {
	t.Helper()
	bytes = statusOf(w.cmd.Process.Pid, field)
	if bytes == 0 {
		t.Fatalf("the system does not say what %s of %s is", field, w.name)
	}
	return bytes
}

// used is how long a worker has been on a processor.
func used(t *testing.T, w *worker) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name of the program, in parentheses, may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const utime, stime, tick = 11, 12, 10 * time.Millisecond // proc(5); Linux counts in hundredths for programs
	total := 0
	for _, i := range []int{utime, stime} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return time.Duration(total) * tick
}

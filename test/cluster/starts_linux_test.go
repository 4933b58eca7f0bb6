package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
)

// Variables with the starts of TestStarts: numbers of ranks and of starts, such as "32:3,256:10", with the default transports
// and over QUIC alone.
const (
	startsVariable     = "STARTS"
	startsQUICVariable = "STARTS_QUIC"
)

// Limits of the report of "make starts".
const (
	join128Max     = 2500 * time.Millisecond
	joinQUIC128Max = 5 * time.Second
	join256Max     = 10 * time.Second
	processorMax   = 1.5 // processor time of a rank of 256, divided by that of one of 32
	startedMax     = 40 << 20
	sparseMax      = 2.5 // time of an all-reduce with k-regular:4, divided by that with the full topology
	sparseLinksMax = 4
	unlinkedMax    = 1 << 10
)

// A startReport has results beside their limits. A result beyond its limit is a miss and does not fail the test.
type startReport struct{ strings.Builder }

func (r *startReport) check(what string, value, limit float64, unit string) {
	verdict := "pass"
	if value > limit {
		verdict = "miss"
	}
	fmt.Fprintf(r, "%-66s %8.2f %-4s at most %7.2f  %s\n", what, value, unit, limit, verdict)
}

// TestStarts starts worlds by nexar run, with one process for each rank. Each rank joins, makes an all-reduce and leaves. With
// STARTS it measures, for the report of "make starts", and also compares a sparse topology with the full one, and
// the memory of nodes in worlds of different sizes.
func TestStarts(t *testing.T) {
	if os.Getenv(startsVariable) == "" {
		t.Parallel()
		s := newStarter(t)
		s.vars = patientVars()
		s.start(t, 6)
		return
	}
	r := new(startReport)
	fmt.Fprintf(r, `Starts of worlds by "nexar run -n N", one process for each rank; printed by "make starts". Each rank joins, makes
an all-reduce of 4 B, and leaves.
%s
commit %s

The time until all have joined is from the start of nexar run to the last return of Join. Processor time is user and system
time of a rank until the result of the all-reduce, the mean over the ranks, and that of nexar run with the seed
at the same time. Resident memory is VmRSS after the all-reduce, of the largest rank. All are medians over the starts, except
the maximum.

`, machine(), commit())
	s := newStarter(t)
	fmt.Fprintf(r, "%-10s %5s %6s %6s  %8s %8s  %9s %9s  %9s  %9s\n", "", "ranks", "starts", "failed", "joined", "maximum", "a rank", "nexar run", "first", "resident")
	normal := s.measure(t, r, "default", parseStarts(t, startsVariable))
	s.vars = []string{"NEXAR_TRANSPORTS=quic"}
	overQUIC := s.measure(t, r, "quic", parseStarts(t, startsQUICVariable))
	r.WriteString("\n")
	if m, ok := normal[128]; ok {
		r.check("128 ranks, default transports, until all have joined", m.joined.Seconds(), join128Max.Seconds(), "s")
	}
	if m, ok := overQUIC[128]; ok {
		r.check("128 ranks, QUIC alone, until all have joined", m.joined.Seconds(), joinQUIC128Max.Seconds(), "s")
	}
	if m, ok := normal[256]; ok {
		r.check(fmt.Sprintf("256 ranks, default transports, slowest of %d starts", m.starts), m.slowest.Seconds(), join256Max.Seconds(), "s")
		r.check("256 ranks, starts that failed", float64(m.failed), 0, "")
		r.check("256 ranks, resident memory of the largest rank", float64(m.resident)/mib, startedMax/mib, "MiB")
		if few, ok := normal[32]; ok && few.processor > 0 {
			r.check("processor time of a rank of 256, divided by that of one of 32", m.processor.Seconds()/few.processor.Seconds(), processorMax, "")
		}
	}
	t.Run("sparse", func(t *testing.T) { r.sparse(t, startsNumber(t, "STARTS_SPARSE", 32)) })
	t.Run("unlinked", func(t *testing.T) { n := startsNumber(t, "STARTS_NODES", 512); r.unlinked(t, n/2+16, n) })
	t.Log("\n" + r.String())
	writeReport(t, r.String())
}

// startsNumber returns the number in a variable, or n if it is not set.
func startsNumber(t *testing.T, name string, n int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 6 {
		t.Fatalf("%s=%q: must be a number, at least 6", name, text)
	}
	return n
}

// parseStarts reads pairs of a number of ranks and a number of starts.
func parseStarts(t *testing.T, name string) (list [][2]int) {
	t.Helper()
	text := os.Getenv(name)
	for pair := range strings.SplitSeq(text, ",") {
		if pair == "" {
			continue
		}
		ranks, starts, _ := strings.Cut(pair, ":")
		n, err := strconv.Atoi(ranks)
		times, err2 := strconv.Atoi(starts)
		if err != nil || err2 != nil || n < 2 || times < 1 {
			t.Fatalf("%s=%q: must be pairs RANKS:STARTS, separated by commas, with at least 2 ranks and 1 start", name, text)
		}
		list = append(list, [2]int{n, times})
	}
	return list
}

// A starter starts worlds by nexar run.
type starter struct {
	nexar, program string
	vars           []string // further variables of nexar run
}

// newStarter builds nexar and testdata/start.
func newStarter(t *testing.T) *starter {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "github.com/nexar-go/nexar/cmd/nexar", "./testdata/start")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nexar and testdata/start: %v\n%s", err, out)
	}
	return &starter{nexar: filepath.Join(dir, "nexar"), program: filepath.Join(dir, "start")}
}

// A startedRank is the line that a rank prints; see testdata/start.
type startedRank struct {
	Rank, Size  int
	Joined      time.Time
	FirstReduce time.Duration
	Processor   time.Duration
	Resident    int
	Parent      int
}

// A startedWorld has the measurements of a start.
type startedWorld struct {
	joined    time.Duration // until the last rank has joined
	first     time.Duration // longest first all-reduce
	processor time.Duration // mean of the ranks
	launcher  time.Duration // processor time of nexar run with the seed
	resident  int           // of the largest rank
}

// start starts a world of n ranks, checks their results, and returns the measurements.
func (s *starter) start(t *testing.T, n int) startedWorld {
	t.Helper()
	w, err := s.try(t, n)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// startTimeout limits the time of a start.
const startTimeout = 3 * time.Minute

func (s *starter) try(t *testing.T, n int) (w startedWorld, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.nexar, "run", "-n", strconv.Itoa(n), s.program)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NEXAR_") })
	cmd.Env = append(slices.Concat(env, s.vars), "NEXAR_CLUSTER_TOKEN="+nexar.NewToken())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var log testlog.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		return w, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return w, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return w, err
	}
	seen := make([]bool, n)
	left, parent := n, 0
	for lines := bufio.NewScanner(out); left > 0 && lines.Scan(); {
		_, line, _ := strings.Cut(lines.Text(), "] ") // nexar run prefixes the rank.
		var r startedRank
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Size != n || r.Rank < 0 || r.Rank >= n || seen[r.Rank] {
			log.Write([]byte("unexpected output: " + lines.Text() + "\n"))
			continue
		}
		seen[r.Rank] = true
		left--
		w.joined, w.first = max(w.joined, r.Joined.Sub(began)), max(w.first, r.FirstReduce)
		w.processor += r.Processor / time.Duration(n)
		w.resident, parent = max(w.resident, r.Resident), r.Parent
	}
	if left == 0 {
		// nexar run starts a second process with the seed, the parent of the ranks.
		if w.launcher, err = processorTime(cmd.Process.Pid); err == nil && parent != cmd.Process.Pid {
			var seed time.Duration
			seed, err = processorTime(parent)
			w.launcher += seed
		}
	}
	in.Close() // Now the ranks leave.
	io.Copy(io.Discard, out)
	if waitErr := cmd.Wait(); waitErr != nil || left > 0 {
		return w, fmt.Errorf("nexar run -n %d: %w, %d ranks without a result\n%s", n, waitErr, left, log.String())
	}
	return w, err
}

// A startSummary has the medians of several starts.
type startSummary struct {
	startedWorld
	starts, failed int
	slowest        time.Duration
}

// measure starts worlds and adds a line for each number of ranks to the report.
func (s *starter) measure(t *testing.T, r *startReport, name string, list [][2]int) map[int]startSummary {
	t.Helper()
	all := make(map[int]startSummary)
	for _, pair := range list {
		sum := startSummary{starts: pair[1]}
		var worlds []startedWorld
		for i := range sum.starts {
			w, err := s.try(t, pair[0])
			if err != nil {
				sum.failed++
				t.Errorf("%s, start %d: %v", name, i, err)
				continue
			}
			worlds = append(worlds, w)
			sum.slowest = max(sum.slowest, w.joined)
		}
		if len(worlds) > 0 {
			sum.joined = medianOf(worlds, func(w startedWorld) time.Duration { return w.joined })
			sum.first = medianOf(worlds, func(w startedWorld) time.Duration { return w.first })
			sum.processor = medianOf(worlds, func(w startedWorld) time.Duration { return w.processor })
			sum.launcher = medianOf(worlds, func(w startedWorld) time.Duration { return w.launcher })
			sum.resident = medianOf(worlds, func(w startedWorld) int { return w.resident })
			all[pair[0]] = sum
		}
		fmt.Fprintf(r, "%-10s %5d %6d %6d  %6.2f s %6.2f s  %6.1f ms %7.2f s  %7.2f s  %5.1f MiB\n", name, pair[0], sum.starts, sum.failed,
			sum.joined.Seconds(), sum.slowest.Seconds(), sum.processor.Seconds()*1000, sum.launcher.Seconds(), sum.first.Seconds(), float64(sum.resident)/mib)
	}
	return all
}

func medianOf[T interface{ ~int | ~int64 }](worlds []startedWorld, value func(w startedWorld) T) T {
	var values []T
	for _, w := range worlds {
		values = append(values, value(w))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// sparse compares the all-reduce of 1 MiB with k-regular:4 and with the full topology over TCP, in turn, and counts the
// connections of the ranks of the former.
func (r *startReport) sparse(t *testing.T, ranks int) {
	const elements, rounds, turns = 1 << 17, 10, 5
	full := newWorkerSet(t).startWorld(ranks, "NEXAR_TRANSPORTS=tcp")
	sparse := newWorkerSet(t).startWorld(ranks, "NEXAR_TRANSPORTS=tcp", "NEXAR_TOPOLOGY=k-regular:4")
	var times [2][]time.Duration
	for turn := range turns + 1 {
		for i, workers := range [][]*worker{full, sparse} {
			results := runAll(workers, command{Do: "time-reduces", N: elements, Rounds: rounds})
			mustSucceed(t, results)
			if turn == 0 {
				continue // Its first all-reduce makes connections.
			}
			for round := range rounds {
				times[i] = append(times[i], slowestRound(results, round))
			}
		}
	}
	fullTime, sparseTime := middle(times[0]), middle(times[1])
	fmt.Fprintf(r, "\nall-reduce of 1 MiB with %d ranks over TCP, medians of %d: full topology %.1f ms, k-regular:4 %.1f ms\n",
		ranks, turns*rounds, fullTime.Seconds()*1000, sparseTime.Seconds()*1000)
	r.check("  k-regular:4, divided by the full topology", sparseTime.Seconds()/fullTime.Seconds(), sparseMax, "")
	peers, outside := 0, 0
	mine, owner := connections(t, sparse)
	for rank := range sparse {
		linked, others := make(map[int]bool), make(map[string]bool)
		for _, p := range mine[rank] {
			if other, ok := owner[socketAddrs{p.remote, p.local}]; ok {
				linked[other] = true
			} else {
				others[p.remote.String()] = true
			}
		}
		peers, outside = max(peers, len(linked)), max(outside, len(others))
	}
	r.check("  k-regular:4, connections of a rank to other ranks", float64(peers), sparseLinksMax, "")
	r.check("  k-regular:4, connections of a rank to the seed", float64(outside), 1, "")
}

// probes is the number of nodes whose memory is measured. They are in one process, since the heap of a process
// varies by more than a node needs for a peer.
const probes = 8

// unlinked compares the heap of nodes in worlds of two sizes. Idle links end, so that the nodes are connected to the same
// number of peers in both.
func (r *startReport) unlinked(t *testing.T, few, many int) {
	heapFew, linksFew := heapOfNodes(t, few)
	heapMany, linksMany := heapOfNodes(t, many)
	fmt.Fprintf(r, "\nheap of a node over TCP, with %d nodes %.1f KiB and %.1f connections, with %d nodes %.1f KiB and %.1f connections\n",
		few, heapFew/1024, linksFew, many, heapMany/1024, linksMany)
	if linksFew != linksMany {
		t.Errorf("nodes have %.1f connections in a world of %d and %.1f in one of %d, want as many", linksFew, few, linksMany, many)
	}
	r.check("  each further peer without a connection", (heapMany-heapFew)/float64(many-few), unlinkedMax, "B")
}

// heapOfNodes forms a world of n nodes over TCP, and returns the means of the heap, in bytes, and of the connections of some
// of its nodes.
func heapOfNodes(t *testing.T, n int) (heap, links float64) {
	c := newWorkerSet(t)
	checkFiles(t, min(n, nodesPerProcess))
	seed := c.start(nil, "seed", "NEXAR_TRANSPORTS=tcp")
	s := seed.do(command{Do: "seed", N: n, Addr: "127.0.0.1:0"})
	mustSucceed(t, []result{s})
	vars := []string{"NEXAR_SEEDS=" + s.Text, "NEXAR_LISTEN=127.0.0.1:0", "NEXAR_TRANSPORTS=tcp", "NEXAR_LOG=warn", "NEXAR_LINK_IDLE_TIMEOUT=1s"}
	probe := c.start(nil, "probe", vars...)
	empty := probe.do(command{Do: "heap-of-nodes"})
	mustSucceed(t, []result{empty})
	workers, pending := []*worker{probe}, []<-chan result{probe.start(command{Do: "join-many", N: probes})}
	for left := n - probes; left > 0; left -= nodesPerProcess {
		w := c.start(nil, fmt.Sprint("process ", len(workers)), vars...)
		workers, pending = append(workers, w), append(pending, w.start(command{Do: "join-many", N: min(left, nodesPerProcess)}))
	}
	mustSucceed(t, awaitAll(workers, pending))
	var now result
	for end := time.Now().Add(slowMax); ; time.Sleep(time.Second) {
		if now = probe.do(command{Do: "heap-of-nodes"}); now.Failure != nil {
			t.Fatal(now.Failure)
		}
		if now.Rounds == now.Size {
			break // All connections left are those of watches.
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections, %d of them of watches: the others do not end", now.Rounds, now.Size)
		}
	}
	for _, w := range append(workers, seed) { // A goodbye of each node would be as many changes of the world.
		w.kill(os.Kill)
	}
	return float64(now.Memory.Heap-empty.Memory.Heap) / probes, float64(now.Rounds) / probes
}

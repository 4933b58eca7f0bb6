package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// thousandVariable lists the sizes of the worlds of TestThousand, separated by commas.
const thousandVariable = "THOUSAND"

// nodesPerProcess is the number of nodes in each process of a large world.
const nodesPerProcess = 64

// filesPerNode is the number of open files that a node of a large world may need.
const filesPerNode = 128

// TestThousand forms large worlds over TCP with TLS in processes of 64 nodes each and one of a single node,
// checks collectives, and kills the single node. THOUSAND=1024 has the size of the goal.
func TestThousand(t *testing.T) {
	text := os.Getenv(thousandVariable)
	if text == "" {
		t.Parallel()
		largeWorld(t, 24, 8)
		return
	}
	var report strings.Builder
	fmt.Fprintf(&report, `Worlds over TCP with TLS on loopback, in processes of %d nodes each and one of a single node, which is
killed with kill -9; printed by "make thousand".
%s

The times after the kill are those of the last survivor. Memory is resident memory with the program, files
are open files with sockets. The idle time is a part of one processor, for all nodes and the seed.

`, nodesPerProcess, machine())
	for size := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 8 {
			t.Fatalf("%s=%q: must be sizes of worlds, at least 8", thousandVariable, text)
		}
		t.Run(size, func(t *testing.T) { report.WriteString(largeWorld(t, n, nodesPerProcess)) })
	}
	t.Log("\n" + report.String())
	if !t.Failed() {
		writeReport(t, report.String())
	}
}

// largeWorld checks a world of n nodes, and returns the lines of the report.
func largeWorld(t *testing.T, n, each int) string {
	t.Helper()
	checkFiles(t, min(n, each))
	c := newWorkerSet(t)
	began := time.Now()
	seed := c.start(nil, "seed", "NEXAR_TRANSPORTS=tcp")
	r := seed.do(command{Do: "seed", N: n, Addr: "127.0.0.1:0"})
	mustSucceed(t, []result{r})
	vars := []string{"NEXAR_SEEDS=" + r.Text, "NEXAR_LISTEN=127.0.0.1:0", "NEXAR_TRANSPORTS=tcp", "NEXAR_LOG=warn"}
	victim := c.start(nil, "victim", vars...)
	workers, pending := []*worker{victim}, []<-chan result{victim.start(command{Do: "join-many", N: 1})}
	for left := n - 1; left > 0; left -= each {
		w := c.start(nil, fmt.Sprint("process ", len(workers)), vars...)
		workers, pending = append(workers, w), append(pending, w.start(command{Do: "join-many", N: min(left, each)}))
	}
	mustSucceed(t, awaitAll(workers, pending))
	formed := time.Since(began)
	all := append([]*worker{seed}, workers...)
	spent := cpuOf(t, all)
	const rounds = 5
	reduces := runAll(workers, command{Do: "loop-many", Op: "all_reduce", N: 1, Rounds: rounds})
	mustSucceed(t, reduces)
	barriers := runAll(workers, command{Do: "loop-many", Op: "barrier", Rounds: rounds})
	mustSucceed(t, barriers)

	resident, files := 0, 0
	for _, w := range workers {
		resident += procStatus(t, w, "VmRSS")
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		files += len(open)
	}
	const idle = 5 * time.Second
	before := cpuOf(t, all)
	time.Sleep(idle)
	share := (cpuOf(t, all) - before).Seconds() / idle.Seconds()

	survivors := workers[1:]
	recovering := make([]<-chan result, len(survivors))
	for i, w := range survivors {
		recovering[i] = w.start(command{Do: "recover-many", Peer: n - 1})
	}
	time.Sleep(time.Second)
	others := append([]*worker{seed}, survivors...)
	before = cpuOf(t, others)
	killed := victim.kill(os.Kill)
	results := awaitAll(survivors, recovering)
	mustSucceed(t, results)
	recovery := cpuOf(t, others) - before
	var last epoch
	for _, r := range results {
		e := r.Epochs[0]
		if e.Size != n-1 || e.Number != results[0].Epochs[0].Number {
			t.Errorf("epoch %d of %d ranks, want epoch %d of %d", e.Number, e.Size, results[0].Epochs[0].Number, n-1)
		}
		last.Adopted = later(last.Adopted, e.Adopted)
		last.At, last.First = later(last.At, e.At), later(last.First, e.First)
	}
	for _, w := range all { // Without goodbyes, which would be a change of the world for each node.
		if w != victim {
			w.kill(os.Kill)
		}
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return fmt.Sprintf(`%d nodes in %d processes
  formed after                 %s, %.1f ms of processor time for a node
  all-reduce of 8 B            first %s, then %s
  barrier                      %s
  kill to the view of %-4d     %s
  kill to the communicator     %s
  kill to an all-reduce        %s, %.1f ms of processor time for a node
  for a node                   %.1f MiB, %.1f files; idle %.3f %% of a processor
`, n, len(workers), ms(formed), spent.Seconds()*1000/float64(n), ms(slowestRound(reduces, 0)), ms(slowestRound(reduces, rounds-1)),
		ms(slowestRound(barriers, rounds-1)), n-1, ms(last.Adopted.Sub(killed)), ms(last.At.Sub(killed)), ms(last.First.Sub(killed)),
		recovery.Seconds()*1000/float64(n), float64(resident)/mib/float64(n), float64(files)/float64(n), 100*share/float64(n))
}

// checkFiles fails if a process of n nodes may open too few files. Go raises its limit to the hard one at the
// start.
func checkFiles(t *testing.T, n int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if need := uint64(n * filesPerNode); limit.Cur < need {
		t.Fatalf("limit of %d open files: must be at least %d for %d nodes in a process (ulimit -Hn)", limit.Cur, need, n)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// slowestRound returns the longest time of a round.
func slowestRound(results []result, round int) (d time.Duration) {
	for _, r := range results {
		d = max(d, r.Times[round])
	}
	return d
}

// cpuOf returns the processor time that workers have used.
func cpuOf(t *testing.T, workers []*worker) (d time.Duration) {
	t.Helper()
	for _, w := range workers {
		d += cpuTime(t, w)
	}
	return d
}

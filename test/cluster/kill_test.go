package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// noticeMax limits the time until every survivor has noticed a killed process on an idle
	// machine. A call on a failed world may take a quarter of it, Close three times as long.
	noticeMax = time.Second
	// killRanks is the number of ranks of a world of TestKill.
	killRanks = 6
	// killsVariable is the number of worlds of TestKill, over shared memory and TCP in turn. By
	// default there are killsAlways, over QUIC as well.
	killsVariable = "KILLS"
	killsAlways   = 10
)

// A killTrial kills one process of a world that repeats a workload.
type killTrial struct {
	ranks      int
	topology   string // "" for full
	transports string
	workload
	noticed time.Duration // until the last survivor had noticed
	limit   time.Duration // for noticed
	passed  bool
}

// A workload is an operation that all ranks repeat.
type workload struct {
	name string // for the report
	op   string // key of operations
	n    int
}

func workloads() []workload {
	return []workload{
		{"barriers", "barrier", 0},
		{"all-reduces of 8 B", "all_reduce", 1},
		{"all-reduces of 16 MiB", "all_reduce", 2 << 20},
		{"rings of 2 MiB", "ring", 256 << 10},
		{"rings of 8 kB", "ring", 1000},
	}
}

// The kernel closes the sockets of a killed process, over every transport, so its peers notice and
// tell all others. Every operation of a survivor ends with an error that names the dead rank, and
// no resource outlives the processes of the world.
func TestKill(t *testing.T) {
	count, ways := killsAlways, []string{"shm", "tcp", "quic"}
	long := os.Getenv(killsVariable)
	if long != "" {
		var err error
		if count, err = strconv.Atoi(long); err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", killsVariable, long)
		}
		ways = ways[:2]
	}
	most := noticeMax
	if long == "" { // Other tests use the processors.
		most = slowMax
	}
	var all []killTrial
	for i := range count {
		// All combinations occur, as 5 is prime to 2 and to 3.
		k := killTrial{ranks: killRanks, limit: most, transports: ways[i%len(ways)], workload: workloads()[i%len(workloads())]}
		k.passed = t.Run(fmt.Sprintf("%d/%s/%s", i+1, k.transports, k.name), k.run)
		all = append(all, k)
		if long != "" && len(all)%10 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d killed: %s\n", len(all), count, outcome(all))
		}
	}
	if long != "" {
		report := killsReport(all)
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// run kills a rank of a new world at a random moment.
func (k *killTrial) run(t *testing.T) {
	left := watchLeftovers(t)
	c := newWorkerSet(t)
	vars := append(left.vars(), "NEXAR_TRANSPORTS="+k.transports)
	if k.topology != "" {
		vars = append(vars, "NEXAR_TOPOLOGY="+k.topology)
	}
	workers := c.startRanks(k.ranks, vars...)
	before := left.openResources(workers)
	mustSucceed(t, runAll(workers, command{Do: "join"}))
	ids := runAll(workers, command{Do: "id"})
	running := make([]<-chan result, k.ranks)
	for rank, w := range workers {
		running[rank] = w.start(command{Do: "loop", Op: k.op, N: k.n})
	}
	time.Sleep(rand.N(400 * time.Millisecond))
	left.note(workers, k.transports == "shm")
	time.Sleep(rand.N(20 * time.Millisecond)) // note has taken time
	victim := rand.IntN(k.ranks)
	killed := workers[victim].kill(os.Kill)
	for rank, r := range awaitAll(workers, running) {
		if rank == victim {
			continue
		}
		checkLost(t, rank, r.Failure, victim, ids[victim].Text)
		k.noticed = max(k.noticed, r.At.Sub(killed))
	}
	t.Logf("rank %d was killed; the last survivor noticed after %v", victim, k.noticed)
	if k.noticed > k.limit {
		t.Errorf("the last survivor noticed after %v, want at most %v", k.noticed, k.limit)
	}
	left.wantGone(workers[victim])
	survivors := slices.Delete(slices.Clone(workers), victim, victim+1)
	checkAftermath(t, survivors, victim, k.limit)
	left.wantReleased(survivors, before)
}

// outcome formats the number, the failures and the quantiles of trials.
func outcome(all []killTrial) string {
	told := make([]time.Duration, len(all))
	failed := 0
	for i, k := range all {
		told[i] = k.noticed
		if !k.passed {
			failed++
		}
	}
	slices.Sort(told)
	at := func(p float64) float64 {
		i := max(0, int(p*float64(len(told))+0.999999)-1)
		return float64(told[i].Microseconds()) / 1000
	}
	return fmt.Sprintf("%4d kills %3d failed   p50 %7.1f ms   p99 %7.1f ms   most %7.1f ms", len(told), failed, at(0.5), at(0.99), at(1))
}

// killsReport returns the report of "make kills".
func killsReport(all []killTrial) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kill -9 of one of %d ranks at a random moment, printed by \"make kills\".\n%s\n\n", killRanks, machine())
	b.WriteString(`The time is from the kill until the last survivor's call has returned the error that names the dead
rank. A survivor that fills or checks a vector at that moment notices at its next call, which adds to the
times of long vectors; all ranks share the cores. A kill has failed if a survivor gets no error within
a second, gets one that names another rank, hangs, exits with an error, keeps a file or a mapping, or if
a file is left in /tmp or /dev/shm or an abstract socket is left.

`)
	b.WriteString(killTable(all))
	return b.String()
}

// killTable returns the outcomes by transports, and by transports and operation.
func killTable(all []killTrial) string {
	var b strings.Builder
	groups := make(map[string][]killTrial)
	for _, k := range all {
		groups[k.transports] = append(groups[k.transports], k)
		groups[k.transports+", "+k.name] = append(groups[k.transports+", "+k.name], k)
	}
	for _, name := range slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		// Sort by transports, then by operation.
		return cmp.Or(cmp.Compare(strings.Count(a, ","), strings.Count(b, ",")), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "%-28s %s\n", name, outcome(groups[name]))
	}
	return b.String()
}

// checkLost checks that a failure names the rank and the node that failed.
func checkLost(t *testing.T, rank int, f *failure, lost int, node string) {
	t.Helper()
	if f == nil || !f.PeerFailed || f.Rank != lost || f.Left || f.Node != node {
		t.Errorf("rank %d: %v, want the failure of rank %d (%s)", rank, f, lost, node)
	}
}

// checkAftermath checks that further calls of survivors fail at once, and that they close promptly.
func checkAftermath(t *testing.T, survivors []*worker, lost int, most time.Duration) {
	t.Helper()
	for _, r := range runAll(survivors, command{Do: "call-after-failure"}) {
		if r.Failure != nil {
			t.Error(r.Failure)
		}
		if len(r.CallsAfter) != len(callsAfterFailure()) {
			t.Errorf("%d later calls are reported, want %d", len(r.CallsAfter), len(callsAfterFailure()))
		}
		for _, f := range r.CallsAfter {
			if !f.Revoked || !f.PeerFailed || f.Rank != lost {
				t.Errorf("a later call: %v, want a revoked communicator because of rank %d", f, lost)
			}
			if f.Took > most/4 {
				t.Errorf("a later call took %v, want at most %v", f.Took, most/4)
			}
		}
	}
	for _, r := range runAll(survivors, command{Do: "close"}) {
		if r.Failure != nil || r.Took > 3*most {
			t.Errorf("close took %v: %v", r.Took, r.Failure)
		}
	}
}

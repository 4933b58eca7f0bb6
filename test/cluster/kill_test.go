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
	// noticeMax is the time in which every survivor notices a killed process on an idle machine.
	// A call on a failed world may take a quarter of it, closing a node three times as long.
	noticeMax = time.Second
	// killRanks is the size of worlds in which one rank is killed.
	killRanks = 6
	// killsVariable is how many worlds TestKill takes, over shared memory and
	// over TCP in turn. Without it there are a few, over QUIC as well.
	killsVariable = "KILLS"
	killsAlways   = 10
)

// A killing is the end of one process, in the middle of something.
type killing struct {
	way string // the transport
	doing
	told time.Duration // until the last survivor knew
	most time.Duration // it may take
	fine bool
}

// A doing is an operation that all ranks repeat.
type doing struct {
	words string // for people
	what  string // for workers
	n     int
}

func doings() []doing {
	return []doing{
		{"barriers", "barrier", 0},
		{"all-reduces of 8 B", "all_reduce", 1},
		{"all-reduces of 16 MiB", "all_reduce", 2 << 20},
		{"rings of 2 MiB", "ring", 256 << 10},
		{"rings of 8 kB", "ring", 1000},
	}
}

// The kernel closes the sockets of a killed process, over every transport, and its watchers tell all
// others. Every operation of a survivor ends with an error that names the dead rank, and nothing of
// the world is left when its processes have ended.
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
	if long == "" { // Other tests are at work.
		most = slowMax
	}
	var all []killing
	for i := range count {
		// Every combination has its turn, as 5 is prime to 2 and to 3.
		k := killing{most: most, way: ways[i%len(ways)], doing: doings()[i%len(doings())]}
		k.fine = t.Run(fmt.Sprintf("%d/%s/%s", i+1, k.way, k.words), k.run)
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
func (k *killing) run(t *testing.T) {
	left := watchLeftovers(t)
	c := newCrew(t)
	team := c.recruit(killRanks, append(left.vars(), "NEXAR_TRANSPORTS="+k.way)...)
	before := left.held(team)
	ok(t, all(team, order{Do: "join"}))
	ids := all(team, order{Do: "id"})
	running := make([]<-chan report, killRanks)
	for rank, w := range team {
		running[rank] = w.start(order{Do: "loop", What: k.what, N: k.n})
	}
	time.Sleep(rand.N(400 * time.Millisecond))
	left.note(team, k.way == "shm")
	time.Sleep(rand.N(20 * time.Millisecond)) // The look at the processes has taken time of its own.
	victim := rand.IntN(killRanks)
	killed := team[victim].kill(os.Kill)
	for rank, r := range await(team, running) {
		if rank == victim {
			continue
		}
		checkLost(t, rank, r.Failure, victim, ids[victim].Text)
		k.told = max(k.told, r.At.Sub(killed))
	}
	t.Logf("rank %d was killed; the last survivor knew after %v", victim, k.told)
	if k.told > k.most {
		t.Errorf("the last survivor knew after %v, want at most %v", k.told, k.most)
	}
	left.wantGone(team[victim])
	survivors := slices.Delete(slices.Clone(team), victim, victim+1)
	checkAftermath(t, survivors, victim, k.most)
	left.wantHeld(survivors, before)
}

// outcome sums kills up.
func outcome(all []killing) string {
	told := make([]time.Duration, len(all))
	failed := 0
	for i, k := range all {
		told[i] = k.told
		if !k.fine {
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

// killsReport says how long the survivors did not know.
func killsReport(all []killing) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kill -9 of one of %d ranks at a random moment, printed by \"make kills\".\n%s\n\n", killRanks, machine())
	b.WriteString(`The time is from the kill until the last survivor's call has returned the error that names the dead
rank. A survivor that is making or checking a vector at that moment finds out by its next call, which
is a part of what long vectors show; all ranks share the cores. A kill counts as failed if a survivor is
not told within a second, is told of another rank, hangs, does not end in order, keeps a file or a
mapping, or if anything is left in /tmp, in /dev/shm or among the abstract sockets.

`)
	groups := make(map[string][]killing)
	for _, k := range all {
		groups[k.way] = append(groups[k.way], k)
		groups[k.way+", "+k.words] = append(groups[k.way+", "+k.words], k)
	}
	for _, name := range slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		// Sort by transports, then by operation.
		return cmp.Or(cmp.Compare(strings.Count(a, ","), strings.Count(b, ",")), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "%-28s %s\n", name, outcome(groups[name]))
	}
	return b.String()
}

// checkLost wants a failure that says that a rank has failed, and which node
// that was.
func checkLost(t *testing.T, rank int, f *failure, lost int, node string) {
	t.Helper()
	if f == nil || !f.PeerFailed || f.Rank != lost || f.Left || f.Node != node {
		t.Errorf("rank %d: %v, want the failure of rank %d (%s)", rank, f, lost, node)
	}
}

// checkAftermath checks that further calls of survivors fail at once, and that they close promptly.
func checkAftermath(t *testing.T, survivors []*worker, lost int, most time.Duration) {
	t.Helper()
	for _, r := range all(survivors, order{Do: "later"}) {
		if r.Failure != nil {
			t.Error(r.Failure)
		}
		for _, f := range r.Later {
			if !f.Revoked || !f.PeerFailed || f.Rank != lost {
				t.Errorf("a later call: %v, want a revoked communicator because of rank %d", f, lost)
			}
			if f.Took > most/4 {
				t.Errorf("a later call took %v, want at most %v", f.Took, most/4)
			}
		}
	}
	for _, r := range all(survivors, order{Do: "close"}) {
		if r.Failure != nil || r.Took > 3*most {
			t.Errorf("close took %v: %v", r.Took, r.Failure)
		}
	}
}

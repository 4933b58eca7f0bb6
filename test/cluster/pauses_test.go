//go:build unix

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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testlog"
)

const (
	// pausesVariable is the number of worlds of TestPauses. By default there are those of shortPauses. PAUSES_SEED repeats a run.
	pausesVariable = "PAUSES"
	// pausedRanks is the number of ranks with which a world of TestPauses forms.
	pausedRanks = 4
	// pauseMax is the longest time for which a seed is stopped.
	pauseMax = 40 * time.Second
	// laterRemoval is the time after which a seed removes nodes that have not returned, and more. No living process is removed then, either.
	laterRemoval = 17 * time.Second
)

// A pauseTrial stops seeds of a world, lets processes fail and join meanwhile, and continues the seeds.
type pauseTrial struct {
	kind       string // of the seeds, a key of pausedSeeds
	stopped    int    // seeds
	long       time.Duration
	kill, join bool
	transports string
	passed     bool
	removed    int           // living processes
	settled    time.Duration // from the end of the pause until all processes make steps in one epoch
}

// pausedSeeds are the numbers of the seeds of a world.
func pausedSeeds() map[string]int {
	return map[string]int{"one seed without state": 1, "one seed with state": 1, "three seeds": groupSeeds}
}

func (p *pauseTrial) String() string {
	text := fmt.Sprintf("%s, %d stopped for %.1f s, %s", p.kind, p.stopped, p.long.Seconds(), strings.ReplaceAll(p.transports, ",", "+"))
	if p.kill {
		text += ", a kill"
	}
	if p.join {
		text += ", a join"
	}
	return text
}

// shortPauses are longer than nodes wait for a silent seed.
func shortPauses() []*pauseTrial {
	return []*pauseTrial{
		{kind: "one seed with state", stopped: 1, long: 8 * time.Second, kill: true, transports: "tcp"},
		{kind: "three seeds", stopped: 2, long: 8 * time.Second, kill: true, join: true, transports: "tcp"},
		{kind: "three seeds", stopped: 3, long: 8 * time.Second, kill: true, transports: "quic"},
		{kind: "one seed without state", stopped: 1, long: 3 * time.Second, kill: true, join: true, transports: "tcp,quic"},
	}
}

// randomPauses returns n trials.
func randomPauses(n int, rng *rand.Rand) (all []*pauseTrial) {
	kinds := slices.Sorted(maps.Keys(pausedSeeds()))
	for range n {
		kind := kinds[rng.IntN(len(kinds))]
		long := time.Second + time.Duration(rng.Int64N(int64(pauseMax-time.Second)))
		// After a failure, nodes end when they give up a seed without state.
		mayKill := kind != "one seed without state" || long < 25*time.Second
		all = append(all, &pauseTrial{
			kind: kind, stopped: 1 + rng.IntN(pausedSeeds()[kind]), long: long,
			kill: mayKill && rng.IntN(4) > 0, join: rng.IntN(2) == 0, transports: []string{"tcp", "quic", "tcp,quic"}[rng.IntN(3)],
		})
	}
	return all
}

// TestPauses: seeds are stopped, one, some or all, for less or longer than nodes wait for them. No living process is removed
// when they continue, processes that have failed are, and those that have joined meanwhile enter.
func TestPauses(t *testing.T) {
	all, seed := shortPauses(), rand.Uint64()
	long := os.Getenv(pausesVariable)
	if n, err := strconv.ParseUint(os.Getenv(pausesVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	if long != "" {
		count, err := strconv.Atoi(long)
		if err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", pausesVariable, long)
		}
		t.Logf("seed %d", seed)
		all = randomPauses(count, rand.New(rand.NewPCG(seed, 0)))
	} else {
		t.Parallel()
	}
	var mu sync.Mutex
	done := 0
	t.Run("worlds", func(t *testing.T) {
		for i, p := range all {
			t.Run(fmt.Sprintf("%d/%v", i+1, p), func(t *testing.T) {
				t.Parallel()
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					p.passed = !t.Failed()
					if done++; long != "" {
						fmt.Fprintf(os.Stderr, "%d of %d: %v: passed %v, settled after %v\n", done, len(all), p, p.passed, p.settled.Round(time.Millisecond))
					}
				}()
				p.run(t, rand.New(rand.NewPCG(seed, uint64(i+1))), long != "")
			})
		}
	})
	if long != "" {
		report := pausesReport(all)
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// run stops seeds of a new world. With later it checks again after the time in which a seed removes nodes.
func (p *pauseTrial) run(t *testing.T, rng *rand.Rand, later bool) {
	stats := &changeStats{kinds: make(map[string]int)}
	w := &changingWorld{T: t, transports: p.transports, rng: rng, stats: stats, ranks: pausedRanks, every: 20 * time.Millisecond}
	defer func() { p.removed = stats.removed }()
	w.workers = newWorkerSet(t)
	w.vars = []string{"NEXAR_DUMP_ON_QUIT=1", "NEXAR_STACKS=1"}
	w.logs = make(map[string]*testlog.Buffer)
	w.seedGroup = newSeedGroup(w, pausedSeeds()[p.kind], p.kind != "one seed without state")
	w.seeds, w.listen, w.launcher = strings.Join(w.seedGroup.addrs, ","), "127.0.0.1:0", func(int) launcher { return nil }
	for range pausedRanks {
		w.start(false)
	}
	w.settle()
	out := w.seedGroup.random(p.stopped)
	w.note("stop seeds %v for %v", out, p.long)
	w.seedGroup.signal(syscall.SIGSTOP, out...)
	end := time.Now().Add(p.long)
	var events []func()
	if p.kill {
		events = append(events, func() { w.killOne(w.victim()) })
	}
	if p.join {
		events = append(events, func() { w.start(false) })
	}
	rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for _, event := range events {
		w.sleepUpTo(p.long / 2)
		event()
	}
	time.Sleep(time.Until(end))
	w.seedGroup.signal(syscall.SIGCONT, out...)
	began := time.Now()
	w.note("seeds continue")
	w.settle()
	p.settled = time.Since(began)
	if later {
		time.Sleep(laterRemoval)
		w.settle()
	}
	w.finish()
}

// signal sends a signal to seeds.
func (g *seedGroup) signal(sig syscall.Signal, which ...int) {
	g.w.Helper()
	for _, i := range which {
		if err := g.seeds[i].cmd.Process.Signal(sig); err != nil {
			g.w.fail("%v to seed %d: %v", sig, i, err)
		}
	}
}

// pausesReport returns the report of "make pauses".
func pausesReport(all []*pauseTrial) string {
	var b strings.Builder
	fmt.Fprintf(&b, `Seeds are stopped (SIGSTOP) for 1 to %.0f s and continue, printed by "make pauses".
%s

Each world has %d processes, which make verified all-reduces, each with a reconfiguration after it. In most worlds one process is killed, and
in half of them one joins, during the first part of the pause. A world has failed if the living processes and the new one do not make steps in
one epoch, without the killed one, within %v after the pause, and again %v later, or if one of them ends, which counts as removed.
The times are from the end of the pause until all make steps in one epoch.

`, pauseMax.Seconds(), machine(), pausedRanks, settleMax, laterRemoval)
	fmt.Fprintf(&b, "%-36s %s\n", "all", pauseOutcome(all))
	groups := make(map[string][]*pauseTrial)
	for _, p := range all {
		for _, group := range []string{
			fmt.Sprintf("%s, %d stopped", p.kind, p.stopped), " over " + p.transports,
			map[bool]string{true: "  a process is killed", false: "  no process is killed"}[p.kill],
			map[bool]string{true: "   a process joins", false: "   no process joins"}[p.join],
			map[bool]string{true: "    for more than 5 s", false: "    for at most 5 s"}[p.long > 5*time.Second],
		} {
			groups[group] = append(groups[group], p)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		indent := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
		return cmp.Or(cmp.Compare(indent(a), indent(b)), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "%-36s %s\n", strings.TrimLeft(name, " "), pauseOutcome(groups[name]))
	}
	return b.String()
}

// pauseOutcome formats the number, the failures and the times of trials.
func pauseOutcome(all []*pauseTrial) string {
	failed, removed := 0, 0
	var took []time.Duration
	for _, p := range all {
		removed += p.removed
		if p.passed {
			took = append(took, p.settled)
		} else {
			failed++
		}
	}
	return fmt.Sprintf("%4d worlds %3d failed %3d removed   %s", len(all), failed, removed, spread(took))
}

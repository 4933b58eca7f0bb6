//go:build unix

package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
)

// groupSeeds is the number of replicated seeds, and changeSeedsAlways the number of changes
// that TestChangesOfSeeds makes by default.
const (
	groupSeeds        = 3
	changeSeedsAlways = 8
)

// A seedGroup holds the replicated seeds of a world. Each is a process and is restarted after
// it was killed.
type seedGroup struct {
	w     *changingWorld
	addrs []string
	dir   string    // of their states; empty: a single seed without state
	seeds []*worker // nil while it does not run
}

// newSeedGroup starts n seeds for a world.
func newSeedGroup(w *changingWorld, n int, durable bool) *seedGroup {
	g := &seedGroup{w: w, seeds: make([]*worker, n)}
	if durable {
		g.dir = w.TempDir()
	}
	for range n {
		g.addrs = append(g.addrs, testhost.FreePort(w.T))
	}
	for i := range g.seeds {
		g.start(i)
	}
	return g
}

// start starts or restarts a seed.
func (g *seedGroup) start(i int) {
	g.w.Helper()
	name := fmt.Sprint("seed ", i)
	s := g.w.workers.start(nil, name)
	o := command{Do: "seed", N: g.w.formed(), Max: changingMax, Addr: g.addrs[i]}
	if g.dir != "" {
		o.Dir = filepath.Join(g.dir, strconv.Itoa(i))
	}
	if len(g.seeds) > 1 {
		o.Peers = g.addrs
	}
	r := s.do(o)
	if r.Failure != nil {
		g.w.fail("%s: %v", name, r.Failure)
	}
	g.w.logs[fmt.Sprint(name, " ", time.Now().UnixMilli()%100000)] = s.log
	g.seeds[i] = s
}

// kill kills seeds at the same time.
func (g *seedGroup) kill(which ...int) {
	g.w.note("  kill seeds %v", which)
	for _, i := range which {
		g.seeds[i].kill(os.Kill)
	}
	for _, i := range which {
		g.w.workers.stop(g.seeds[i])
		g.seeds[i] = nil
	}
}

// random returns the indices of n random seeds.
func (g *seedGroup) random(n int) []int { return g.w.rng.Perm(len(g.seeds))[:n] }

func seedChangeKinds() []changeKind {
	fewer := func(n int) bool { return n > changingMin }
	more := func(n int) bool { return n < changingMax }
	always := func(int) bool { return true }
	return []changeKind{
		{"kill a seed", 4, always, func(w *changingWorld) { w.loseSeeds(1, w.settle) }},
		{"kill a seed and a node", 5, fewer, (*changingWorld).loseSeedAndNode},
		{"kill a seed while one joins", 4, more, (*changingWorld).joinAndLoseSeed},
		{"kill two seeds and a node", 4, fewer, (*changingWorld).loseMostSeeds},
		{"kill all seeds", 3, always, func(w *changingWorld) { w.loseSeeds(groupSeeds, w.settle) }},
		{"kill all seeds while one joins", 2, more, func(w *changingWorld) { w.start(false); w.loseSeeds(groupSeeds, func() {}); w.settle() }},
		{"stop a seed for a while", 3, fewer, (*changingWorld).pauseSeed},
	}
}

// loseSeeds kills n seeds, calls then, and restarts the seeds.
func (w *changingWorld) loseSeeds(n int, then func()) {
	out := w.seedGroup.random(n)
	w.seedGroup.kill(out...)
	then()
	for _, i := range out {
		w.seedGroup.start(i)
	}
}

// loseSeedAndNode kills a seed and a process at the same time.
func (w *changingWorld) loseSeedAndNode() {
	before := len(w.stats.kills)
	w.loseSeeds(1, func() { w.kill(1) })
	w.stats.seedKills = append(w.stats.seedKills, w.stats.kills[before:]...)
}

// joinAndLoseSeed kills a seed at a random moment while a process joins.
func (w *changingWorld) joinAndLoseSeed() {
	w.start(false)
	w.sleepUpTo(250 * time.Millisecond)
	w.loseSeeds(1, w.settle)
}

// loseMostSeeds kills a majority of the seeds and then a process. No view without the process
// can be decided before a seed has been restarted.
func (w *changingWorld) loseMostSeeds() {
	out := w.seedGroup.random(2)
	w.seedGroup.kill(out...)
	before := w.newestEpoch()
	w.killOne(w.victim())
	time.Sleep(300 * time.Millisecond)
	for _, p := range w.processes {
		if w.query(p); p.last().Number > before {
			w.fail("%s is in epoch %d, which was decided without a majority of the seeds", p.name, p.last().Number)
		}
	}
	w.seedGroup.start(out[0])
	w.settle()
	w.seedGroup.start(out[1])
}

// pauseSeed stops a seed for longer than an election timeout, while a process is killed.
func (w *changingWorld) pauseSeed() {
	i := w.seedGroup.random(1)[0]
	long := time.Second + time.Duration(w.rng.Int64N(int64(2*time.Second)))
	if w.rng.IntN(4) == 0 {
		long += 5 * time.Second // the nodes change to another seed
	}
	w.note("  stop seed %d for %v", i, long)
	stop := w.seedGroup.seeds[i].cmd.Process
	if err := stop.Signal(syscall.SIGSTOP); err != nil {
		w.fail("SIGSTOP to seed %d: %v", i, err)
	}
	w.killOne(w.victim())
	time.Sleep(long)
	if err := stop.Signal(syscall.SIGCONT); err != nil {
		w.fail("SIGCONT to seed %d: %v", i, err)
	}
	w.settle()
}

// TestChangesOfSeeds is TestChanges with three replicated seeds. Seeds are killed as well, one or
// all at a time.
func TestChangesOfSeeds(t *testing.T) {
	count, seed := changeSeedsAlways, rand.Uint64()
	if require.Race {
		count /= 2
	}
	if n, err := strconv.Atoi(os.Getenv(changesVariable)); err == nil {
		count = n / 4
	} else {
		t.Parallel()
	}
	if n, err := strconv.ParseUint(os.Getenv(changesVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	all := changeStats{kinds: make(map[string]int)}
	for i := 0; count > 0; i++ {
		n := min(count, changesPerWorld/2)
		count -= n
		w := changingWorld{T: t, transports: changingTransports()[3], rng: rand.New(rand.NewPCG(seed, uint64(i))), stats: &all, every: betweenSteps()}
		all.worlds++
		if !t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			w.T = t
			t.Logf("seed %d, world %d", seed, i)
			w.runWithSeeds(n)
		}) {
			all.failed++
		}
	}
	report := all.seedSummary()
	t.Log("\n" + report)
	if os.Getenv(changesVariable) != "" {
		writeReport(t, report)
	}
}

// seedSummary is summary for a run with changes of seeds.
func (s *changeStats) seedSummary() string {
	var b strings.Builder
	fmt.Fprintf(&b, `Worlds of processes on one host, and their %d seeds, change at random while the processes make verified
all-reduces; printed by "make changes".
%s

Seeds are killed, one, two or all at once, alone or together with a process of the world, and started again;
otherwise it is as in changes.txt.

%d worlds, %d failed, %d changes

`, groupSeeds, machine(), s.worlds, s.failed, s.total())
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		fmt.Fprintf(&b, "%-32s %4d\n", kind, s.kinds[kind])
	}
	fmt.Fprintf(&b, `
from SIGKILL of processes until the last survivor has the next communicator
  all                             %s
  with a seed at the same moment  %s
`, spread(s.kills), spread(s.seedKills))
	return b.String()
}

// runWithSeeds makes n changes in a new world with its own replicated seeds.
func (w *changingWorld) runWithSeeds(n int) {
	left := watchLeftovers(w.T)
	w.workers = newWorkerSet(w.T)
	w.vars = append(left.vars(), "NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_STACKS=1")
	w.logs = make(map[string]*testlog.Buffer)
	w.seedGroup = newSeedGroup(w, groupSeeds, true)
	w.seeds, w.listen, w.launcher = strings.Join(w.seedGroup.addrs, ","), "127.0.0.1:0", func(int) launcher { return nil }
	for range changingRanks {
		w.start(false)
	}
	w.settle()
	for range n {
		w.change()
	}
	w.finish()
}

// TestSeedsInNodes runs the three seeds in the processes of three of six nodes and kills one
// of these. The others go on.
func TestSeedsInNodes(t *testing.T) {
	w := changingWorld{T: t, transports: changingTransports()[1], rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), stats: &changeStats{kinds: make(map[string]int)}, every: betweenSteps()}
	left := watchLeftovers(t)
	w.workers = newWorkerSet(t)
	w.vars = append(left.vars(), "NEXAR_DUMP_ON_QUIT=1", "NEXAR_STACKS=1")
	w.logs = make(map[string]*testlog.Buffer)
	var addrs []string
	for range groupSeeds {
		addrs = append(addrs, testhost.FreePort(t))
	}
	w.seeds, w.listen, w.launcher = strings.Join(addrs, ","), "127.0.0.1:0", func(int) launcher { return nil }
	dir := t.TempDir()
	for i := range changingRanks {
		p := w.start(false)
		if i < groupSeeds {
			mustSucceed(t, []result{p.do(command{
				Do: "seed", N: changingRanks, Max: changingMax, Addr: addrs[i], Peers: addrs, Dir: filepath.Join(dir, strconv.Itoa(i)),
			})})
		}
	}
	w.settle()
	victim := w.rng.IntN(groupSeeds)
	p := w.processes[victim]
	w.processes = slices.Delete(w.processes, victim, victim+1)
	w.killOne(p)
	w.settle()
	w.join()
	w.finish()
}

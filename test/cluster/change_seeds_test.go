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

	"github.com/nexar-go/nexar/internal/testlog"
)

// councilSeeds is how many seeds there are that agree, and changeSeedsAlways how many
// changes a world makes with them if nobody wants more.
const (
	councilSeeds      = 3
	changeSeedsAlways = 8
)

// A council is a group of seeds, each a process that is restarted when it was killed.
type council struct {
	w     *changing
	addrs []string
	dir   string
	seeds []*worker // nil: it is not running
}

// newCouncil starts seeds for a world.
func newCouncil(w *changing) *council {
	c := &council{w: w, dir: w.TempDir(), seeds: make([]*worker, councilSeeds)}
	for range councilSeeds {
		c.addrs = append(c.addrs, freePort(w.T))
	}
	for i := range c.seeds {
		c.start(i)
	}
	return c
}

// start starts a seed, for the first time or again.
func (c *council) start(i int) {
	c.w.Helper()
	name := fmt.Sprint("seed ", i)
	s := c.w.crew.hire(nil, name)
	r := s.do(order{
		Do: "seed", N: changingRanks, Max: changingMax, Addr: c.addrs[i],
		Peers: c.addrs, Dir: filepath.Join(c.dir, strconv.Itoa(i)),
	})
	if r.Failure != nil {
		c.w.fail("%s: %v", name, r.Failure)
	}
	c.w.logs[fmt.Sprint(name, " ", time.Now().UnixMilli()%100000)] = s.log
	c.seeds[i] = s
}

// kill kills some seeds, at the same time.
func (c *council) kill(which ...int) {
	c.w.note("  kill seeds %v", which)
	for _, i := range which {
		c.seeds[i].kill(os.Kill)
	}
	for _, i := range which {
		c.w.crew.retire(c.seeds[i])
		c.seeds[i] = nil
	}
}

// some are so many of the seeds.
func (c *council) some(n int) []int { return c.w.rng.Perm(len(c.seeds))[:n] }

func kindsOfSeedChanges() []kindOfChange {
	fewer := func(n int) bool { return n > changingMin }
	more := func(n int) bool { return n < changingMax }
	always := func(int) bool { return true }
	return []kindOfChange{
		{"kill a seed", 4, always, func(w *changing) { w.loseSeeds(1, w.settle) }},
		{"kill a seed and a node", 5, fewer, (*changing).loseSeedAndNode},
		{"kill a seed while one joins", 4, more, (*changing).joinAndLoseSeed},
		{"kill two seeds and a node", 4, fewer, (*changing).loseMostSeeds},
		{"kill all seeds", 3, always, func(w *changing) { w.loseSeeds(councilSeeds, w.settle) }},
		{"kill all seeds while one joins", 2, more, func(w *changing) { w.hire(false); w.loseSeeds(councilSeeds, func() {}); w.settle() }},
		{"stop a seed for a while", 3, fewer, (*changing).pauseSeed},
	}
}

// loseSeeds kills seeds, and starts them again after something that goes without them.
func (w *changing) loseSeeds(n int, then func()) {
	out := w.council.some(n)
	w.council.kill(out...)
	then()
	for _, i := range out {
		w.council.start(i)
	}
}

// loseSeedAndNode kills a seed and a process at the same moment.
func (w *changing) loseSeedAndNode() {
	before := len(w.counts.kills)
	w.loseSeeds(1, func() { w.kill(1) })
	w.counts.seedKills = append(w.counts.seedKills, w.counts.kills[before:]...)
}

// joinAndLoseSeed kills a seed at some moment while a process joins.
func (w *changing) joinAndLoseSeed() {
	w.hire(false)
	w.wait(250 * time.Millisecond)
	w.loseSeeds(1, w.settle)
}

// loseMostSeeds kills so many seeds that no other view can be made without a process
// that is killed then, until one of them is started again.
func (w *changing) loseMostSeeds() {
	out := w.council.some(2)
	w.council.kill(out...)
	before := w.newest()
	w.strike(w.victim())
	time.Sleep(300 * time.Millisecond)
	for _, h := range w.hands {
		if w.ask(h); h.last().Number > before {
			w.fail("%s is in epoch %d, on which most seeds cannot have agreed", h.name, h.last().Number)
		}
	}
	w.council.start(out[0])
	w.settle()
	w.council.start(out[1])
}

// pauseSeed stops a seed for longer than others wait for it, while a process is killed.
func (w *changing) pauseSeed() {
	i := w.council.some(1)[0]
	long := time.Second + time.Duration(w.rng.Int64N(int64(2*time.Second)))
	if w.rng.IntN(4) == 0 {
		long += 5 * time.Second // Nodes give it up, too.
	}
	w.note("  stop seed %d for %v", i, long)
	stop := w.council.seeds[i].cmd.Process
	if err := stop.Signal(syscall.SIGSTOP); err != nil {
		w.fail("SIGSTOP to seed %d: %v", i, err)
	}
	w.strike(w.victim())
	time.Sleep(long)
	if err := stop.Signal(syscall.SIGCONT); err != nil {
		w.fail("SIGCONT to seed %d: %v", i, err)
	}
	w.settle()
}

// TestChangesOfSeeds is TestChanges with three seeds, which are killed as well, one at a
// time or all.
func TestChangesOfSeeds(t *testing.T) {
	count, seed := changeSeedsAlways, rand.Uint64()
	if race {
		count /= 2
	}
	if n, err := strconv.Atoi(os.Getenv(changesVariable)); err == nil {
		count = n / 4
	}
	if n, err := strconv.ParseUint(os.Getenv(changesVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	all := tally{kinds: make(map[string]int)}
	for i := 0; count > 0; i++ {
		n := min(count, changesPerWorld/2)
		count -= n
		w := changing{T: t, way: changingWays()[3], rng: rand.New(rand.NewPCG(seed, uint64(i))), counts: &all}
		all.worlds++
		if !t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			w.T = t
			t.Logf("seed %d, world %d", seed, i)
			w.runWithSeeds(n)
		}) {
			all.failed++
		}
	}
	report := all.reportOfSeeds()
	t.Log("\n" + report)
	if os.Getenv(changesVariable) != "" {
		writeReport(t, report)
	}
}

// reportOfSeeds says how changes have gone that were also of seeds.
func (c *tally) reportOfSeeds() string {
	var b strings.Builder
	fmt.Fprintf(&b, `Worlds of processes on one host, and their %d seeds, change at random while the processes make verified
all-reduces; printed by "make changes".
%s

Seeds are killed, one, two or all at once, alone or together with a process of the world, and started again;
otherwise it is as in changes.txt.

%d worlds, %d failed, %d changes

`, councilSeeds, machine(), c.worlds, c.failed, c.changes())
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		fmt.Fprintf(&b, "%-32s %4d\n", kind, c.kinds[kind])
	}
	fmt.Fprintf(&b, `
from SIGKILL of processes until the last survivor has the next communicator
  all                             %s
  with a seed at the same moment  %s
`, spread(c.kills), spread(c.seedKills))
	return b.String()
}

// runWithSeeds makes n changes in a new world with seeds of its own.
func (w *changing) runWithSeeds(n int) {
	left := watchLeftovers(w.T)
	w.crew = newCrew(w.T)
	w.vars = append(left.vars(), "NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1")
	w.logs = make(map[string]*testlog.Buffer)
	w.council = newCouncil(w)
	w.seeds, w.listen, w.place = strings.Join(w.council.addrs, ","), "127.0.0.1:0", func(int) place { return nil }
	for range changingRanks {
		w.hire(false)
	}
	w.settle()
	for range n {
		w.change()
	}
	w.finish()
}

// TestNodesThatVote: three of six nodes have the seeds in their own processes. One of
// them is killed, and the others go on.
func TestNodesThatVote(t *testing.T) {
	w := changing{T: t, way: changingWays()[1], rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), counts: &tally{kinds: make(map[string]int)}}
	left := watchLeftovers(t)
	w.crew = newCrew(t)
	w.vars = append(left.vars(), "NEXAR_DUMP_ON_QUIT=1")
	w.logs = make(map[string]*testlog.Buffer)
	var addrs []string
	for range councilSeeds {
		addrs = append(addrs, freePort(t))
	}
	w.seeds, w.listen, w.place = strings.Join(addrs, ","), "127.0.0.1:0", func(int) place { return nil }
	dir := t.TempDir()
	for i := range changingRanks {
		h := w.hire(false)
		if i < councilSeeds {
			ok(t, []report{h.do(order{
				Do: "seed", N: changingRanks, Max: changingMax, Addr: addrs[i], Peers: addrs, Dir: filepath.Join(dir, strconv.Itoa(i)),
			})})
		}
	}
	w.settle()
	victim := w.rng.IntN(councilSeeds)
	h := w.hands[victim]
	w.hands = slices.Delete(w.hands, victim, victim+1)
	w.strike(h)
	w.settle()
	w.join()
	w.finish()
}

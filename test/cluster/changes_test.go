//go:build unix

package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
)

const (
	// changesVariable is how many changes TestChanges makes; without it there are a
	// few in a world of each kind. CHANGES_SEED is the seed of one that failed.
	changesVariable = "CHANGES"
	changesAlways   = 10
	// changesPerWorld is how many there are at most in a world.
	changesPerWorld = 40
	// changingRanks is the number of ranks that changing worlds form with; they keep between
	// changingMin and changingMax processes.
	changingRanks, changingMin, changingMax = 6, 3, 9
	// settleMax is how long a world may take until all work together after a change.
	// The timeouts for giving up a late node are longer (patientVars).
	settleMax = 90 * time.Second
	// flatMax is the time in which a process must release memory of removed nodes.
	flatMax = time.Minute
)

// A hand is a worker of a world that changes.
type hand struct {
	*worker
	spare   bool
	hired   time.Time
	running <-chan report
	epochs  []epoch // when it was asked last
}

// last is the last epoch that it has told of.
func (h *hand) last() epoch {
	if len(h.epochs) == 0 {
		return epoch{}
	}
	return h.epochs[len(h.epochs)-1]
}

// A changing is a world that changes at random.
type changing struct {
	*testing.T
	way           string // the transports of workers: one list, or several to alternate; "" for all
	rng           *rand.Rand
	crew          *crew
	seeds, listen string            // addresses
	place         func(n int) place // of the nth process
	vars          []string
	persistent    bool                       // workers join again when they have lost the others
	logs          map[string]*testlog.Buffer // of the seed and all processes

	council *council // seeds that are processes, and change as well; nil: there is one in this process
	hands   []*hand  // that are alive, the oldest first
	eldest  *hand    // is not killed, nor does it leave; nil: nobody is spared
	hired   int
	done    []string // history of changes, for messages
	counts  *tally
}

// TestChanges: nodes are killed, stopped for a while, join and leave a world that
// works, in any order, and all others go on with the right results.
func TestChanges(t *testing.T) {
	count, long := changesAlways*len(changingWays()), os.Getenv(changesVariable)
	if long != "" {
		var err error
		if count, err = strconv.Atoi(long); err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", changesVariable, long)
		}
	} else if race {
		count /= 4
	}
	ways := changingWays()
	worlds := max(len(ways), (count+changesPerWorld-1)/changesPerWorld)
	all := tally{kinds: make(map[string]int)}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv(changesVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	for i := range worlds {
		w := changing{way: ways[i%len(ways)], rng: rand.New(rand.NewPCG(seed, uint64(i))), counts: &all}
		n := (i+1)*count/worlds - i*count/worlds
		all.worlds++
		if !t.Run(fmt.Sprintf("%d/%s", i+1, strings.ReplaceAll(w.way, " ", "+")), func(t *testing.T) {
			w.T = t
			t.Logf("seed %d, world %d", seed, i)
			w.run(n, i/len(ways)%2 == 1)
		}) {
			all.failed++
		}
	}
	if long != "" {
		report := all.report()
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// changingWays are the transports of the worlds.
func changingWays() []string { return []string{"shm", "tcp", "quic", "shm,tcp,quic tcp,quic quic"} }

// run makes n changes in a new world. With elder, one rank is never removed.
func (w *changing) run(n int, elder bool) {
	left := watchLeftovers(w.T)
	w.crew = newCrew(w.T)
	w.vars = append(left.vars(), "NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1")
	log, lines := logTo(w.T, "seed")
	w.logs = map[string]*testlog.Buffer{"seed": lines}
	seed := seedHere(w.T, changingRanks, nexar.SeedConfig{Token: w.crew.token, Elastic: true, ElasticMax: changingMax, Log: log})
	w.seeds, w.listen, w.place = seed.Addr(), "127.0.0.1:0", func(int) place { return nil }
	for range changingRanks {
		w.hire(false)
	}
	w.settle()
	var before memory
	if elder {
		w.eldest = w.hands[w.rng.IntN(len(w.hands))]
		before = w.measure(w.eldest)
	}
	for range n {
		w.change()
	}
	if elder {
		w.restore()
		w.checkFlat(before)
	}
	w.finish()
}

// hire starts a process that joins the world.
func (w *changing) hire(spare bool) *hand {
	w.hired++
	ways := strings.Fields(w.way)
	vars := append([]string{
		"NEXAR_SEEDS=" + w.seeds, "NEXAR_LISTEN=" + w.listen, "NEXAR_TRANSPORTS=" + ways[w.rng.IntN(len(ways))],
	}, w.vars...)
	if spare {
		vars = append(vars, "NEXAR_SPARE=1")
	}
	h := &hand{worker: w.crew.hire(w.place(w.hired), fmt.Sprint("process ", w.hired), vars...), spare: spare, hired: time.Now()}
	do := "change"
	if w.persistent {
		do = "persist"
	}
	h.running = h.start(order{Do: do})
	w.hands = append(w.hands, h)
	w.logs[h.name] = h.log
	return h
}

// note adds to the history.
func (w *changing) note(format string, args ...any) {
	w.done = append(w.done, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail ends the test, with the history and the states of all processes.
func (w *changing) fail(format string, args ...any) {
	w.Helper()
	notes := w.notes(300)
	for _, h := range w.hands {
		h.kill(quit)
	}
	w.Fatalf("%s\n%s\n\nnotes of all:\n%s", fmt.Sprintf(format, args...), strings.Join(w.done, "\n"), strings.Join(notes, "\n"))
}

// notes are the last that the seed and all processes have made, in their order.
func (w *changing) notes(n int) (all []string) {
	for name, log := range w.logs {
		for line := range strings.Lines(log.String()) {
			if rest, ok := strings.CutPrefix(line, "time="); ok {
				at, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
				all = append(all, fmt.Sprintf("%s %-11s %s", at, name, text))
			}
		}
	}
	slices.Sort(all)
	return all[max(0, len(all)-n):]
}

// settle waits until all that are alive work together.
func (w *changing) settle() {
	w.Helper()
	worked := make(map[*hand]int)
	why := ""
	for end := time.Now().Add(settleMax); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		for _, h := range w.hands {
			w.ask(h)
		}
		if why = w.unsettled(worked); why == "" {
			return
		}
	}
	w.fail("after %v: %s", settleMax, why)
}

// ask asks a process how far it is, which must not have ended.
func (w *changing) ask(h *hand) {
	w.Helper()
	select {
	case r := <-h.running:
		w.counts.removed++
		w.fail("%s has ended, which nobody wanted: %v", h.name, r.Failure)
	case r := <-h.start(order{Do: "progress"}):
		h.epochs = r.Epochs
	case <-time.After(settleMax):
		w.fail("%s does not answer", h.name)
	}
}

// unsettled says why the world is not as it is to be. It is when all, without spares
// that have no place, are in the same epoch and make steps there.
func (w *changing) unsettled(worked map[*hand]int) string {
	newest := uint64(0)
	for _, h := range w.hands {
		newest = max(newest, h.last().Number)
	}
	in, waiting := 0, 0
	ranks := make(map[int]bool)
	for _, h := range w.hands {
		e := h.last()
		if h.spare && e.Number == 0 {
			waiting++
			continue
		}
		if e.Number != newest || e.Number == 0 {
			return fmt.Sprintf("%s is in epoch %d, and others in %d", h.name, e.Number, newest)
		}
		if _, known := worked[h]; !known {
			worked[h] = e.Rounds
		}
		if e.Rounds < 3 || e.Rounds == worked[h] {
			return fmt.Sprintf("%s, rank %d of %d in epoch %d, makes no progress after %d steps", h.name, e.Rank, e.Size, e.Number, e.Rounds)
		}
		in++
		ranks[e.Rank] = true
	}
	for _, h := range w.hands {
		if e := h.last(); e.Number > 0 && (e.Size != in || len(ranks) != in) {
			return fmt.Sprintf("epoch %d has %d ranks, and %d processes are in it, with %d ranks", newest, e.Size, in, len(ranks))
		}
	}
	if in < changingRanks && waiting > 0 {
		return fmt.Sprintf("%d spares wait, and the world has %d ranks", waiting, in)
	}
	return ""
}

// restore makes the world as large as it was when it formed.
func (w *changing) restore() {
	for len(w.hands) > changingRanks {
		w.kill(1)
	}
	for len(w.hands) < changingRanks {
		w.join()
	}
}

// measure returns the memory of a worker.
func (w *changing) measure(h *hand) memory {
	ok(w.T, []report{h.do(order{Do: "tidy"})})
	r := h.do(order{Do: "memory"})
	ok(w.T, []report{r})
	return r.Memory
}

// checkFlat checks that a worker uses no more memory than earlier in a world of the same size,
// memory shared with removed nodes included, which the garbage collector releases later. Links over
// different transports use different amounts.
func (w *changing) checkFlat(before memory) {
	more := 4
	if strings.Contains(w.way, " ") {
		more = 20
	}
	isFlat := func(now memory) bool {
		return now.Goroutines <= before.Goroutines+2*more && now.Files <= before.Files+more &&
			now.Mappings <= before.Mappings+more && (now.Resident <= before.Resident+16*mib || race)
	}
	after := w.measure(w.eldest)
	for end := time.Now().Add(flatMax); !isFlat(after) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		after = w.measure(w.eldest)
	}
	if !isFlat(after) {
		w.Errorf("the oldest process has more than it had: %+v, and before %+v", after, before)
	}
	line := fmt.Sprintf("goroutines %d and %d, files %d and %d, sockets %d and %d, shared mappings %d and %d, resident %.1f and %.1f MiB",
		before.Goroutines, after.Goroutines, before.Files, after.Files, before.Sockets, after.Sockets,
		before.Mappings, after.Mappings, float64(before.Resident)/mib, float64(after.Resident)/mib)
	w.Log(line)
	w.counts.elders = append(w.counts.elders, fmt.Sprintf("%-28s %s", w.way, line))
}

// finish stops all workers at the same step, and checks the results.
func (w *changing) finish() {
	var in []*hand
	for _, h := range w.hands {
		if h.last().Number == 0 {
			h.kill(os.Kill)
			w.crew.retire(h.worker)
			continue
		}
		in = append(in, h)
	}
	w.hands = in
	ok(w.T, []report{in[0].do(order{Do: "stop"})})
	var first ledger
	for i, h := range in {
		select {
		case r := <-h.running:
			if i == 0 {
				first = r.Ledger
			}
			if r.Failure != nil || r.Ledger != first {
				w.fail("%s: %v, %+v, want %+v", h.name, r.Failure, r.Ledger, first)
			}
		case <-time.After(settleMax):
			w.fail("%s does not stop", h.name)
		}
	}
	if want := ledgerAfter(first.Step); first != want {
		w.fail("the result is %+v, want %+v", first, want)
	}
	w.note("%d steps", first.Step)
	w.Log("\n" + strings.Join(w.done, "\n"))
}

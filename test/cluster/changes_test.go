//go:build unix

package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
)

const (
	// changesVariable is the number of changes that TestChanges makes. By default it makes
	// changesAlways in a world of each kind. CHANGES_SEED repeats a run.
	changesVariable = "CHANGES"
	changesAlways   = 7
	// changesPerWorld is the largest number of changes in a world.
	changesPerWorld = 40
	// changingRanks is the number of ranks with which a changing world forms. It has between
	// changingMin and changingMax processes.
	changingRanks, changingMin, changingMax = 6, 3, 9
	// settleMax limits the time from a change until all processes make steps in one epoch.
	// The timeouts that remove a late node are longer (patientVars).
	settleMax = 90 * time.Second
	// flatMax limits the time until a process has released the memory of removed nodes.
	flatMax = time.Minute
)

// A process is a worker of a changing world.
type process struct {
	*worker
	spare   bool
	started time.Time
	running <-chan result
	epochs  []epoch // as of the last query
}

// last returns the newest epoch as of the last query, or the zero epoch.
func (p *process) last() epoch {
	if len(p.epochs) == 0 {
		return epoch{}
	}
	return p.epochs[len(p.epochs)-1]
}

// A changingWorld is a world that changes at random.
type changingWorld struct {
	*testing.T
	transports    string // lists of transports, separated by spaces; each process draws one
	topology      string // "" for full
	rng           *rand.Rand
	workers       *workerSet
	seeds, listen string               // addresses
	launcher      func(n int) launcher // of the nth process
	vars          []string
	persistent    bool                       // workers that were removed join again
	logs          map[string]*testlog.Buffer // of the seed and all processes

	seedGroup *seedGroup    // seeds in processes; nil: a single seed that does not change
	ranks     int           // with which the world forms; 0: changingRanks
	every     time.Duration // between two steps
	processes []*process    // the live processes, the oldest first
	protected *process      // is neither killed nor leaves; nil: none
	started   int
	history   []string
	stats     *changeStats
}

// betweenSteps is the time between two steps of a world that changes. Without it most processor time is spent on steps while
// nothing changes. "make changes" spends it.
func betweenSteps() time.Duration {
	if os.Getenv(changesVariable) != "" {
		return 0
	}
	return time.Millisecond
}

// TestChanges kills and stops nodes of a working world and has nodes join and leave, in any
// order. The other nodes go on with the right results.
func TestChanges(t *testing.T) {
	count, long := changesAlways*len(changingTransports()), os.Getenv(changesVariable)
	if long != "" {
		var err error
		if count, err = strconv.Atoi(long); err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", changesVariable, long)
		}
	} else {
		t.Parallel()
		if require.Race {
			count /= 4
		}
	}
	ways := changingTransports()
	worlds := max(len(ways), (count+changesPerWorld-1)/changesPerWorld)
	all := changeStats{kinds: make(map[string]int)}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv(changesVariable+"_SEED"), 10, 64); err == nil {
		seed = n
	}
	for i := range worlds {
		w := changingWorld{transports: ways[i%len(ways)], rng: rand.New(rand.NewPCG(seed, uint64(i))), stats: &all, every: betweenSteps()}
		n := (i+1)*count/worlds - i*count/worlds
		all.worlds++
		if !t.Run(fmt.Sprintf("%d/%s", i+1, strings.ReplaceAll(w.transports, " ", "+")), func(t *testing.T) {
			w.T = t
			t.Logf("seed %d, world %d", seed, i)
			w.run(n, i/len(ways)%2 == 1)
		}) {
			all.failed++
		}
	}
	if long != "" {
		report := all.summary()
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// changingTransports returns the transports of the worlds: one list for all processes, or several,
// of which each process draws one at random.
func changingTransports() []string {
	return []string{"shm", "tcp", "quic", "shm,tcp,quic tcp,quic quic"}
}

// run makes n changes in a new world. With protect, one process is never removed, and its
// memory use is checked at the end.
func (w *changingWorld) run(n int, protect bool) {
	left := watchLeftovers(w.T)
	w.workers = newWorkerSet(w.T)
	w.vars = append(left.vars(), "NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_STACKS=1")
	if w.topology != "" {
		w.vars = append(w.vars, "NEXAR_TOPOLOGY="+w.topology)
	}
	log, lines := logTo(w.T, "seed")
	w.logs = map[string]*testlog.Buffer{"seed": lines}
	seed := startLocalSeed(w.T, changingRanks, nexar.SeedConfig{Token: w.workers.token, Elastic: true, ElasticMax: changingMax, Log: log})
	w.seeds, w.listen, w.launcher = seed.Addr(), "127.0.0.1:0", func(int) launcher { return nil }
	for range changingRanks {
		w.start(false)
	}
	w.settle()
	var before memory
	if protect {
		w.protected = w.processes[w.rng.IntN(len(w.processes))]
		before = w.memoryOf(w.protected)
	}
	for range n {
		w.change()
	}
	if protect {
		w.restore()
		w.checkMemory(before)
	}
	w.finish()
}

// start starts a process that joins the world.
func (w *changingWorld) start(spare bool) *process {
	w.started++
	ways := strings.Fields(w.transports)
	vars := append([]string{
		"NEXAR_SEEDS=" + w.seeds, "NEXAR_LISTEN=" + w.listen, "NEXAR_TRANSPORTS=" + ways[w.rng.IntN(len(ways))],
	}, w.vars...)
	if spare {
		vars = append(vars, "NEXAR_SPARE=1")
	}
	p := &process{worker: w.workers.start(w.launcher(w.started), fmt.Sprint("process ", w.started), vars...), spare: spare, started: time.Now()}
	do := "change"
	if w.persistent {
		do = "change-and-rejoin"
	}
	p.running = p.start(command{Do: do, Every: w.every})
	w.processes = append(w.processes, p)
	w.logs[p.name] = p.log
	return p
}

// formed returns the number of ranks with which the world forms.
func (w *changingWorld) formed() int { return cmp.Or(w.ranks, changingRanks) }

// note adds a line to the history.
func (w *changingWorld) note(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail ends the test with the history and the stacks of all processes.
func (w *changingWorld) fail(format string, args ...any) {
	w.Helper()
	notes := w.lastLogLines(300)
	for _, p := range w.processes {
		p.kill(quit)
	}
	w.Fatalf("%s\n%s\n\nlogs:\n%s", fmt.Sprintf(format, args...), strings.Join(w.history, "\n"), strings.Join(notes, "\n"))
}

// lastLogLines returns the last n log lines of the seed and all processes, by time.
func (w *changingWorld) lastLogLines(n int) (all []string) {
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

// settle waits until all live processes make steps in the same epoch and, in a sparse topology, have connections to their neighbors
// alone.
func (w *changingWorld) settle() {
	w.Helper()
	worked := make(map[*process]int)
	why := ""
	for end := time.Now().Add(settleMax); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		for _, p := range w.processes {
			w.query(p)
		}
		if why = w.whyUnsettled(worked); why == "" {
			why = w.whyConnected()
		}
		if why == "" {
			return
		}
	}
	w.fail("after %v: %s", settleMax, why)
}

// query updates the epochs of a process and fails the test if the process has ended.
func (w *changingWorld) query(p *process) {
	w.Helper()
	select {
	case r := <-p.running:
		w.stats.removed++
		w.fail("%s has ended unexpectedly: %v", p.name, r.Failure)
	case r := <-p.start(command{Do: "progress"}):
		p.epochs = r.Epochs
	case <-time.After(settleMax):
		w.fail("%s does not answer", p.name)
	}
}

// whyUnsettled returns the reason why the world has not settled, or "" if all processes except
// waiting spares are in the same epoch and make steps there.
func (w *changingWorld) whyUnsettled(worked map[*process]int) string {
	newest := uint64(0)
	for _, p := range w.processes {
		newest = max(newest, p.last().Number)
	}
	in, waiting := 0, 0
	ranks := make(map[int]bool)
	for _, p := range w.processes {
		e := p.last()
		if p.spare && e.Number == 0 {
			waiting++
			continue
		}
		if e.Number != newest || e.Number == 0 {
			return fmt.Sprintf("%s is in epoch %d, others are in %d", p.name, e.Number, newest)
		}
		if _, known := worked[p]; !known {
			worked[p] = e.Rounds
		}
		if e.Rounds < 3 || e.Rounds == worked[p] {
			return fmt.Sprintf("%s, rank %d of %d in epoch %d, makes no progress after %d steps", p.name, e.Rank, e.Size, e.Number, e.Rounds)
		}
		in++
		ranks[e.Rank] = true
	}
	for _, p := range w.processes {
		if e := p.last(); e.Number > 0 && (e.Size != in || len(ranks) != in) {
			return fmt.Sprintf("epoch %d has %d ranks, and %d processes are in it, with %d ranks", newest, e.Size, in, len(ranks))
		}
	}
	if in < w.formed() && waiting > 0 {
		return fmt.Sprintf("%d spares wait, and the world has %d ranks", waiting, in)
	}
	return ""
}

// whyConnected returns a connection to a node that is no neighbor, or "" if there is none.
func (w *changingWorld) whyConnected() string {
	if w.topology == "" {
		return ""
	}
	for _, p := range w.processes {
		if p.last().Number == 0 {
			continue
		}
		for _, other := range p.do(command{Do: "changing-peers"}).Peers {
			if other.Hops > 1 && other.Transport != "relay" {
				return fmt.Sprintf("%s, rank %d, has a connection to rank %d, which is %d hops away: %+v", p.name, p.last().Rank, other.Rank, other.Hops, other)
			}
		}
	}
	return ""
}

// restore changes the size of the world back to changingRanks.
func (w *changingWorld) restore() {
	for len(w.processes) > changingRanks {
		w.kill(1)
	}
	for len(w.processes) < changingRanks {
		w.join()
	}
}

// memoryOf returns the memory use of a process after a garbage collection.
func (w *changingWorld) memoryOf(p *process) memory {
	mustSucceed(w.T, []result{p.do(command{Do: "free-memory"})})
	r := p.do(command{Do: "memory"})
	mustSucceed(w.T, []result{r})
	return r.Memory
}

// checkMemory checks that the protected process uses no more memory than before in a world of the
// same size. Memory shared with removed nodes counts; the garbage collector releases it with a
// delay. Links over different transports use different amounts.
func (w *changingWorld) checkMemory(before memory) {
	more, resident := 4, 16*mib
	if strings.Contains(w.transports, " ") { // At the end more of the others may share memory, which is resident as well.
		more, resident = 20, 32*mib
	}
	isFlat := func(now memory) bool {
		return now.Goroutines <= before.Goroutines+2*more && now.Files <= before.Files+more &&
			now.Mappings <= before.Mappings+more && (now.Resident <= before.Resident+resident || require.Race)
	}
	after := w.memoryOf(w.protected)
	for end := time.Now().Add(flatMax); !isFlat(after) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		after = w.memoryOf(w.protected)
	}
	if !isFlat(after) {
		w.Errorf("memory use of the protected process: %+v, before %+v", after, before)
	}
	line := fmt.Sprintf("goroutines %d and %d, files %d and %d, sockets %d and %d, shared mappings %d and %d, resident %.1f and %.1f MiB",
		before.Goroutines, after.Goroutines, before.Files, after.Files, before.Sockets, after.Sockets,
		before.Mappings, after.Mappings, float64(before.Resident)/mib, float64(after.Resident)/mib)
	w.Log(line)
	w.stats.protectedMemory = append(w.stats.protectedMemory, fmt.Sprintf("%-28s %s", w.transports, line))
}

// finish stops all workers at the same step, and checks the results.
func (w *changingWorld) finish() {
	var in []*process
	for _, p := range w.processes {
		if p.last().Number == 0 {
			p.kill(os.Kill)
			w.workers.stop(p.worker)
			continue
		}
		in = append(in, p)
	}
	w.processes = in
	mustSucceed(w.T, []result{in[0].do(command{Do: "stop"})})
	var first replicaState
	for i, p := range in {
		select {
		case r := <-p.running:
			if i == 0 {
				first = r.State
			}
			if r.Failure != nil || r.State != first {
				w.fail("%s: %v, %+v, want %+v", p.name, r.Failure, r.State, first)
			}
		case <-time.After(settleMax):
			w.fail("%s does not stop", p.name)
		}
	}
	if want := stateAfter(first.Step); first != want {
		w.fail("the result is %+v, want %+v", first, want)
	}
	w.note("%d steps", first.Step)
	w.Log("\n" + strings.Join(w.history, "\n"))
}

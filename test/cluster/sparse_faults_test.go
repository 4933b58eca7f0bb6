package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// TestSparseWorkers: the calls that are not in [TestSparse] work between processes, through relays.
func TestSparseWorkers(t *testing.T) {
	t.Parallel()
	for _, w := range []struct {
		topology, transports string
		ranks                int
	}{{"k-regular:2", "tcp", 6}, {"k-regular:4", "shm,tcp,quic", 8}, {"hypercube", "quic", 7}} {
		t.Run(w.topology, func(t *testing.T) {
			workers := newWorkerSet(t).startWorld(w.ranks, "NEXAR_TOPOLOGY="+w.topology, "NEXAR_TRANSPORTS="+w.transports)
			rounds := 1
			if require.AllTrials() {
				rounds = 2
			}
			for round := range rounds {
				mustSucceed(t, runAll(workers, command{Do: "check", Tag: round}))
				mustSucceed(t, runAll(workers, command{Do: "check-more", Tag: round}))
			}
			relayed := 0
			for _, r := range runAll(workers, command{Do: "peers"}) {
				for _, p := range r.Peers {
					if p.Transport == "relay" && p.Hops > 1 && p.LinkPurpose != "" {
						relayed++
					}
				}
			}
			if relayed == 0 {
				t.Error("no rank has used a relay")
			}
		})
	}
}

// TestSurviveSparse is TestSurvive for sparse topologies. All-to-all sends through relays to all other ranks.
func TestSurviveSparse(t *testing.T) {
	for i, s := range []survivalTrial{
		{"k-regular:4", "tcp", "all_reduce", 100_000, []int{2, 1}},
		{"k-regular:4", "shm", "all_to_all", 1000, []int{1, 1, 1}},
		{"k-regular:4", "quic", "all_to_all", 20_000, []int{1, 2}},
		{"hypercube", "tcp", "all_to_all", 20_000, []int{1, 1, 1}},
		{"hypercube", "", "all_reduce", 100_000, []int{3}},
		{"hypercube", "quic", "barrier", 0, []int{1, 1}},
		{"k-regular:2", "tcp", "all_to_all", 1000, []int{2, 1}},
	} {
		t.Run(fmt.Sprintf("%d/%s/%s/%s", i+1, s.topology, s.transports, s.op), func(t *testing.T) { s.run(t) })
	}
}

const (
	// sparseKillRanks is the number of ranks of a world of TestKillSparse.
	sparseKillRanks = 12
	// killsLog is the variable with a file of TestKillSparse. Each trial is appended to the file, and the report is about all
	// trials there, so that several runs can make one report.
	killsLog = "KILLS_LOG"
)

// TestKillSparse is TestKill for worlds of the topology k-regular:4.
func TestKillSparse(t *testing.T) {
	count, limit := 3, slowMax
	text := os.Getenv(killsVariable)
	if text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", killsVariable, text)
		}
		limit = sparseNoticeMax
	}
	all := loggedTrials(t)
	work, ways := append(workloads(), workload{"all-to-alls of 8 kB", "all_to_all", 1000}), []string{"tcp", "quic", "shm"}
	for i := len(all); count > 0; i++ {
		count--
		k := killTrial{ranks: sparseKillRanks, topology: "k-regular:4", limit: limit, transports: ways[i%3], workload: work[(5+i/3)%6]}
		k.passed = t.Run(fmt.Sprintf("%d/%s/%s", i+1, k.transports, k.name), k.run)
		all = append(all, k)
		logTrial(t, k)
		if text != "" && len(all)%10 == 0 {
			fmt.Fprintf(os.Stderr, "%d killed: %s\n", len(all), outcome(all))
		}
	}
	if text != "" {
		report := sparseKillsReport(all)
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// sparseNoticeMax is noticeMax for worlds of twelve processes on two processors.
const sparseNoticeMax = 10 * time.Second

// A loggedTrial is a line of the file of [killsLog].
type loggedTrial struct {
	Transports, Name string
	Noticed          time.Duration
	Passed           bool
}

// loggedTrials returns the trials in the file of [killsLog], or none without the variable.
func loggedTrials(t *testing.T) (all []killTrial) {
	path := os.Getenv(killsLog)
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := json.NewDecoder(f); ; {
		var l loggedTrial
		if err := lines.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, killTrial{transports: l.Transports, workload: workload{name: l.Name}, noticed: l.Noticed, passed: l.Passed})
	}
}

func logTrial(t *testing.T, k killTrial) {
	path := os.Getenv(killsLog)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.NewEncoder(f).Encode(loggedTrial{k.transports, k.name, k.noticed, k.passed}), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// sparseKillsReport returns the report of "make kills-sparse".
func sparseKillsReport(all []killTrial) string {
	return fmt.Sprintf(`kill -9 of one of %d ranks of the topology k-regular:4 at a random moment, printed by "make kills-sparse".
%s

`, sparseKillRanks, machine()) + fmt.Sprintf(`Each rank has connections to four others. The time is from the kill until the last survivor's call has returned
the error that names the dead rank; all ranks share the cores. All-to-alls send through relays. A kill
has failed if a survivor gets a wrong element, no error within %v, or one that names another rank, hangs, exits
with an error, keeps a file or a mapping, or if a file is left in /tmp or /dev/shm or an abstract socket is left.

`, sparseNoticeMax) + killTable(all)
}

// TestPartGoesOn: a communicator without a relay works on when the relay is killed. Its frames take another path.
func TestPartGoesOn(t *testing.T) {
	t.Parallel()
	const victim = 1
	for _, w := range []struct{ topology, transports string }{{"k-regular:2", "tcp"}, {"k-regular:4", "quic"}, {"hypercube", "shm,tcp,quic"}} {
		t.Run(w.topology, func(t *testing.T) {
			// A relay without a refusal of connections is noticed by its silence.
			workers := newWorkerSet(t).startWorld(8, "NEXAR_TOPOLOGY="+w.topology, "NEXAR_TRANSPORTS="+w.transports)
			running := make([]<-chan result, len(workers))
			for rank, worker := range workers {
				running[rank] = worker.start(command{Do: "work-in-part", Op: "all_to_all", N: 2000, Peer: victim})
			}
			defer printGoroutines(t, workers)
			awaitRounds(t, workers[0], running[0], 5)
			workers[victim].kill(os.Kill)
			awaitRounds(t, workers[0], running[0], 20)
			mustSucceed(t, []result{workers[0].do(command{Do: "stop"})})
			for rank, r := range awaitAll(workers, running) {
				if rank != victim && r.Failure != nil {
					t.Errorf("rank %d, after %d rounds: %v", rank, r.Rounds, r.Failure)
				}
			}
		})
	}
}

// awaitRounds waits until a worker has completed n more rounds in an epoch.
func awaitRounds(t *testing.T, w *worker, running <-chan result, n int) {
	t.Helper()
	goal, epoch, why := -1, uint64(0), "it has not begun"
	for end := time.Now().Add(commandTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case r := <-running:
			t.Fatalf("%s has ended after %d rounds: %v", w.name, r.Rounds, r.Failure)
		default:
		}
		e := w.do(command{Do: "progress"}).Epochs
		if len(e) == 0 {
			continue
		}
		rounds := e[len(e)-1].Rounds
		if number := e[len(e)-1].Number; goal < 0 || number != epoch { // The rounds of an epoch are counted from 0.
			goal, epoch = rounds+n, number
		}
		if rounds >= goal {
			return
		}
		why = fmt.Sprintf("it has completed %d rounds, want %d", rounds, goal)
	}
	t.Fatalf("%s makes no progress: %s", w.name, why)
}

// printGoroutines ends workers and prints their goroutines, if the test has failed.
func printGoroutines(t *testing.T, workers []*worker) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, w := range workers {
		if !w.killed {
			w.kill(quit)
		}
	}
	time.Sleep(time.Second) // until they have printed their goroutines
	for _, w := range workers {
		t.Logf("%s:\n%s", w.name, w.log.Tail(60_000))
	}
}

// TestTopologiesDiffer: nodes with another topology than the first node of a world are refused at once, with the names of
// both topologies, while the others wait. The world forms with nodes that have its topology.
func TestTopologiesDiffer(t *testing.T) {
	t.Parallel()
	c := newWorkerSet(t)
	log, lines := logTo(t, "seed")
	seed := startLocalSeed(t, 3, nexar.SeedConfig{Token: c.token, Log: log})
	start := func(name, topology string) *worker {
		return c.start(nil, name, "NEXAR_SEEDS="+seed.Addr(), "NEXAR_LISTEN=127.0.0.1:0", "NEXAR_TOPOLOGY="+topology)
	}
	first := start("first", "k_regular:2")
	waiting := first.start(command{Do: "join"})
	waitFor(t, func() bool { return missingTexts(lines, "node joined") == nil })
	var others []*worker
	for i, topology := range []string{"full_mesh", "hypercube", "k-regular:4"} {
		others = append(others, start(fmt.Sprint("other ", i), topology))
	}
	for i, r := range runAll(others, command{Do: "join"}) {
		own := []string{"full", "hypercube", "k-regular:4"}[i]
		for _, text := range []string{fmt.Sprintf("this node has %q", own), `the world "k-regular:2"`, "set NEXAR_TOPOLOGY to the same value on all nodes"} {
			if r.Failure == nil || !strings.Contains(r.Failure.Text, text) {
				t.Errorf("the node with %s: %v, want %q", own, r.Failure, text)
			}
		}
	}
	select {
	case r := <-waiting:
		t.Fatalf("the first node has not waited: %v", r.Failure)
	default:
	}
	same := []*worker{start("second", "k-regular:2"), start("third", "k-regular:2")}
	mustSucceed(t, runAll(same, command{Do: "join"}))
	mustSucceed(t, []result{first.await(waiting)})
	mustSucceed(t, runAll(append(same, first), command{Do: "check"}))
}

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
)

const (
	// commandTimeout limits the execution of a command.
	commandTimeout = 2 * time.Minute
	// exitTimeout limits the time from the end of a worker's input to its exit.
	exitTimeout = time.Minute
	// slowMax is the ceiling for an event that takes milliseconds on an idle machine. Timeouts
	// that must not cause the event are longer (patientVars).
	slowMax = time.Minute
)

// patientVars returns variables that raise the timeouts of workers above slowMax: a busy
// machine does not make a worker look dead, and no timeout causes a failure that is reported
// within slowMax. Tests of a timeout set their own.
func patientVars() []string {
	return []string{
		"NEXAR_FORM_TIMEOUT_SECS=120", "NEXAR_HEARTBEAT_TIMEOUT_SECS=600", "NEXAR_RECOVERY_TIMEOUT_SECS=600",
		"NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS=600", "NEXAR_COLLECTIVE_TIMEOUT_SECS=600", "NEXAR_BARRIER_TIMEOUT_SECS=600",
	}
}

// A workerSet holds the workers of a test, which end with the test.
type workerSet struct {
	t       *testing.T
	token   string
	workers []*worker
}

// A launcher starts processes on another host or as another user.
type launcher interface {
	start(cmd *exec.Cmd) error
}

// A worker is a process that executes commands.
type worker struct {
	t           *testing.T
	name        string
	rank        int // set by startRanksOf
	cmd         *exec.Cmd
	in          io.WriteCloser
	log         *testlog.Buffer
	outputEnded chan struct{}

	mu      sync.Mutex
	lastID  int
	pending map[int]chan result
	killed  bool
}

func newWorkerSet(t *testing.T) *workerSet {
	c := &workerSet{t: t, token: nexar.NewToken()}
	t.Cleanup(c.stopAll)
	return c
}

// start starts a worker, on this host if on is nil. The worker does not inherit the NEXAR_*
// variables of this process.
func (c *workerSet) start(on launcher, name string, vars ...string) *worker {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	w := &worker{
		t: c.t, name: name, cmd: exec.Command(exe), log: new(testlog.Buffer),
		outputEnded: make(chan struct{}), pending: make(map[int]chan result),
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NEXAR_") })
	env = append(env, workerEnv+"=1", "NEXAR_CLUSTER_TOKEN="+c.token, "NEXAR_LOG=info")
	w.cmd.Env = slices.Concat(env, patientVars(), vars)
	w.cmd.Stderr = w.log
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	start := w.cmd.Start
	if on != nil {
		start = func() error { return on.start(w.cmd) }
	}
	if err := start(); err != nil {
		c.t.Fatalf("start %s: %v", name, err)
	}
	go w.readResults(out)
	c.workers = append(c.workers, w)
	return w
}

// startWorld starts a seed in this process and n ranks, and waits until all have joined.
func (c *workerSet) startWorld(n int, vars ...string) []*worker {
	c.t.Helper()
	workers := c.startRanks(n, vars...)
	mustSucceed(c.t, runAll(workers, command{Do: "join"}))
	return workers
}

// startRanks starts a seed in this process and a worker for each of n ranks. The workers do
// not join yet.
func (c *workerSet) startRanks(n int, vars ...string) []*worker {
	c.t.Helper()
	return c.startRanksOf(n, startLocalSeed(c.t, n, nexar.SeedConfig{Token: c.token}).Addr(), vars...)
}

// startWorldWithSeed is startWorld with a seed that is a worker as well.
func (c *workerSet) startWorldWithSeed(n int, vars ...string) (seed *worker, workers []*worker) {
	c.t.Helper()
	seed = c.start(nil, "seed")
	r := seed.do(command{Do: "seed", N: n, Addr: "127.0.0.1:0"})
	mustSucceed(c.t, []result{r})
	workers = c.startRanksOf(n, r.Text, vars...)
	mustSucceed(c.t, runAll(workers, command{Do: "join"}))
	return seed, workers
}

// startRanksOf starts a worker for each of n ranks of the world of the seed at an address.
func (c *workerSet) startRanksOf(n int, seed string, vars ...string) (workers []*worker) {
	c.t.Helper()
	for rank := range n {
		w := c.start(nil, fmt.Sprint("rank ", rank), append([]string{
			"NEXAR_SEEDS=" + seed, "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank),
		}, vars...)...)
		w.rank = rank
		workers = append(workers, w)
	}
	return workers
}

// runAll has several workers execute a command at the same time and returns their results.
func runAll(workers []*worker, o command) []result { return awaitAll(workers, startAll(workers, o)) }

// startAll starts a command on several workers. Each result arrives in a channel.
func startAll(workers []*worker, o command) []<-chan result {
	pending := make([]<-chan result, len(workers))
	for i, w := range workers {
		pending[i] = w.start(o)
	}
	return pending
}

func awaitAll(workers []*worker, pending []<-chan result) []result {
	reports := make([]result, len(pending))
	for i := range pending {
		reports[i] = workers[i].await(pending[i])
	}
	return reports
}

// mustSucceed fails the test if one of the commands has failed.
func mustSucceed(t *testing.T, reports []result) {
	t.Helper()
	for i, r := range reports {
		if r.Failure != nil {
			t.Errorf("worker %d: %v", i, r.Failure)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// do executes a command and waits for its result.
func (w *worker) do(o command) result { return w.await(w.start(o)) }

// start sends a command. If the worker ends before the command, the result is a failure.
func (w *worker) start(o command) <-chan result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastID++
	o.ID = w.lastID
	c := make(chan result, 1)
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	if w.pending == nil {
		c <- w.ended()
		return c
	}
	w.pending[o.ID] = c
	w.in.Write(append(b, '\n')) // an error means that the worker has ended, which readResults reports
	return c
}

func (w *worker) ended() result {
	return result{Failure: &failure{Text: w.name + " has ended", Rank: -1}, At: time.Now()}
}

func (w *worker) await(c <-chan result) result {
	w.t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(commandTimeout):
		w.kill(quit) // prints its goroutines
		w.t.Fatalf("%s: no result within %v", w.name, commandTimeout)
		return result{}
	}
}

// readResults delivers the results of the worker until its output ends.
func (w *worker) readResults(out io.Reader) {
	defer close(w.outputEnded)
	for dec := json.NewDecoder(out); ; {
		var r result
		if err := dec.Decode(&r); err != nil {
			break
		}
		w.mu.Lock()
		if c := w.pending[r.ID]; c != nil {
			c <- r
			delete(w.pending, r.ID)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.pending {
		c <- w.ended()
	}
	w.pending = nil
}

// kill sends a signal to the worker and returns the time at which it did. From then on the
// worker may exit with any status.
func (w *worker) kill(sig os.Signal) time.Time {
	w.mu.Lock()
	w.killed = true
	w.mu.Unlock()
	at := time.Now()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.t.Errorf("%v to %s: %v", sig, w.name, err)
	}
	return at
}

// stopAll ends all workers at the same time and checks how they exit.
func (c *workerSet) stopAll() {
	for _, w := range c.workers {
		w.in.Close()
	}
	for _, w := range c.workers {
		c.wait(w)
	}
}

func (c *workerSet) wait(w *worker) {
	w.wait()
	if c.t.Failed() {
		c.t.Logf("log of %s:\n%s", w.name, w.log.Tail(6000))
	}
}

// stop ends a worker before the end of the test.
func (c *workerSet) stop(w *worker) {
	w.in.Close()
	c.wait(w)
	c.workers = slices.DeleteFunc(c.workers, func(other *worker) bool { return other == w })
}

func (w *worker) wait() {
	late := time.AfterFunc(exitTimeout, func() { w.cmd.Process.Signal(quit) })
	dead := time.AfterFunc(exitTimeout+5*time.Second, func() { w.cmd.Process.Kill() })
	<-w.outputEnded
	err := w.cmd.Wait()
	dead.Stop()
	if !late.Stop() {
		w.t.Errorf("%s has not ended within %v", w.name, exitTimeout)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !(exited && w.killed) {
		w.t.Errorf("%s: %v", w.name, err)
	}
	if strings.Contains(w.log.String(), "DATA RACE") {
		w.t.Errorf("%s: data race", w.name)
	}
}

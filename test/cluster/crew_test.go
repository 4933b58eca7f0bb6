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
	// jobTimeout is how long a worker may take for an order.
	jobTimeout = 2 * time.Minute
	// exitTimeout is how long it may take to end when its input has.
	exitTimeout = time.Minute
	// slowMax is the ceiling for an event that takes milliseconds on an idle machine. The
	// timeouts that tests exclude as its cause are longer (patientVars).
	slowMax = time.Minute
)

// patientVars raise the timeouts of workers above slowMax. So a busy machine cannot make
// a worker look dead, and no timeout can have caused a failure reported within slowMax.
// Tests of a timeout set their own.
func patientVars() []string {
	return []string{
		"NEXAR_FORM_TIMEOUT_SECS=120", "NEXAR_HEARTBEAT_TIMEOUT_SECS=600", "NEXAR_RECOVERY_TIMEOUT_SECS=600",
		"NEXAR_CHECKPOINT_TIMEOUT_SECS=600", "NEXAR_COLLECTIVE_TIMEOUT_SECS=600", "NEXAR_BARRIER_TIMEOUT_SECS=600",
	}
}

// A crew is the workers of a test. They end with it.
type crew struct {
	t       *testing.T
	token   string
	workers []*worker
}

// A place is where a process is started: on this host if it is nil.
type place interface {
	start(cmd *exec.Cmd) error
}

// A worker is a process that carries out orders.
type worker struct {
	t    *testing.T
	name string
	rank int // if it was recruited
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  *testlog.Buffer
	read chan struct{} // closed when its output has ended

	mu      sync.Mutex
	last    int
	waiting map[int]chan report
	killed  bool
}

func newCrew(t *testing.T) *crew {
	c := &crew{t: t, token: nexar.NewToken()}
	t.Cleanup(c.dismiss)
	return c
}

// hire starts a worker. Of this process's NEXAR_* variables it gets none.
func (c *crew) hire(at place, name string, vars ...string) *worker {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	w := &worker{
		t: c.t, name: name, cmd: exec.Command(exe), log: new(testlog.Buffer),
		read: make(chan struct{}), waiting: make(map[int]chan report),
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
	if at != nil {
		start = func() error { return at.start(w.cmd) }
	}
	if err := start(); err != nil {
		c.t.Fatalf("start %s: %v", name, err)
	}
	go w.listen(out)
	c.workers = append(c.workers, w)
	return w
}

// team recruits n workers and has them join.
func (c *crew) team(n int, vars ...string) []*worker {
	c.t.Helper()
	team := c.recruit(n, vars...)
	ok(c.t, all(team, order{Do: "join"}))
	return team
}

// recruit starts a seed in this process and hires a worker for each of n ranks,
// all on this host.
func (c *crew) recruit(n int, vars ...string) []*worker {
	c.t.Helper()
	return c.ranks(n, seedHere(c.t, n, nexar.SeedConfig{Token: c.token}).Addr(), vars...)
}

// enlist is team with a seed that is a worker as well.
func (c *crew) enlist(n int, vars ...string) (seed *worker, team []*worker) {
	c.t.Helper()
	seed = c.hire(nil, "seed")
	r := seed.do(order{Do: "seed", N: n, Addr: "127.0.0.1:0"})
	ok(c.t, []report{r})
	team = c.ranks(n, r.Text, vars...)
	ok(c.t, all(team, order{Do: "join"}))
	return seed, team
}

// ranks hires a worker for each of n ranks, with a seed at an address.
func (c *crew) ranks(n int, seed string, vars ...string) (team []*worker) {
	c.t.Helper()
	for rank := range n {
		w := c.hire(nil, fmt.Sprint("rank ", rank), append([]string{
			"NEXAR_SEEDS=" + seed, "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank),
		}, vars...)...)
		w.rank = rank
		team = append(team, w)
	}
	return team
}

// all gives the same order to several workers at the same time, and returns
// their reports.
func all(workers []*worker, o order) []report {
	pending := make([]<-chan report, len(workers))
	for i, w := range workers {
		pending[i] = w.start(o)
	}
	return await(workers, pending)
}

func await(workers []*worker, pending []<-chan report) []report {
	reports := make([]report, len(pending))
	for i := range pending {
		reports[i] = workers[i].await(pending[i])
	}
	return reports
}

// ok fails the test if one of the orders has failed.
func ok(t *testing.T, reports []report) {
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

// do gives an order and waits for the report.
func (w *worker) do(o order) report { return w.await(w.start(o)) }

// start gives an order. A worker that ends reports a failure.
func (w *worker) start(o order) <-chan report {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	o.ID = w.last
	c := make(chan report, 1)
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	if w.waiting == nil {
		c <- w.gone()
		return c
	}
	w.waiting[o.ID] = c
	w.in.Write(append(b, '\n')) // fails if it has ended, which listen reports
	return c
}

func (w *worker) gone() report {
	return report{Failure: &failure{Text: w.name + " has ended", Rank: -1}, At: time.Now()}
}

func (w *worker) await(c <-chan report) report {
	w.t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(jobTimeout):
		w.kill(quit) // prints its goroutines
		w.t.Fatalf("%s has not reported within %v", w.name, jobTimeout)
		return report{}
	}
}

// listen passes on the reports of the worker until it ends.
func (w *worker) listen(out io.Reader) {
	defer close(w.read)
	for dec := json.NewDecoder(out); ; {
		var r report
		if err := dec.Decode(&r); err != nil {
			break
		}
		w.mu.Lock()
		if c := w.waiting[r.ID]; c != nil {
			c <- r
			delete(w.waiting, r.ID)
		}
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.waiting {
		c <- w.gone()
	}
	w.waiting = nil
}

// kill ends the worker from outside, which from now on is no failure of it,
// and returns when that was.
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

// dismiss ends all workers, at the same time, and looks how they end.
func (c *crew) dismiss() {
	for _, w := range c.workers {
		w.in.Close()
	}
	for _, w := range c.workers {
		c.wait(w)
	}
}

func (c *crew) wait(w *worker) {
	w.wait()
	if c.t.Failed() {
		c.t.Logf("log of %s:\n%s", w.name, w.log.Tail(6000))
	}
}

// retire ends a worker before the test ends.
func (c *crew) retire(w *worker) {
	w.in.Close()
	c.wait(w)
	c.workers = slices.DeleteFunc(c.workers, func(other *worker) bool { return other == w })
}

func (w *worker) wait() {
	late := time.AfterFunc(exitTimeout, func() { w.cmd.Process.Signal(quit) })
	dead := time.AfterFunc(exitTimeout+5*time.Second, func() { w.cmd.Process.Kill() })
	<-w.read
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

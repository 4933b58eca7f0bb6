package attack

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
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testlog"
)

const (
	// bound is the longest that any single operation of an attacked world may
	// take. It is generous: it only has to prove that nothing hangs.
	bound = time.Minute
	// exitBound is the longest that a process may take to close its node.
	exitBound = 30 * time.Second
)

// arguments configure a process. Each role reads the fields that concern it.
type arguments struct {
	// Of a seed:
	World     int
	Listen    string
	Elastic   bool
	StateDir  string
	Peers     []string
	PeerToken string
	Advertise string
	// Of a rank:
	Vector int // further elements in each all-reduce
}

// An event is a report of a process: a line of JSON on standard output.
type event struct {
	Kind    string // see the constants below
	At      time.Time
	Node    string // identity of the process, or the peer of a failure
	Addr    string // of a seed
	Rank    int
	Size    int
	Epoch   uint64
	Step    int64  // steps that the process has completed
	Sum     uint64 // digest of their results
	Left    bool   // the peer of a failure has left in order
	Removed bool   // the world has continued without this node
	Text    string
}

// Kinds of events.
const (
	evReady  = "ready"  // a seed listens
	evJoined = "joined" // a rank is in the world
	evEpoch  = "epoch"  // it has a communicator
	evStep   = "step"   // it has completed steps
	evPeer   = "peer"   // an operation failed with a PeerError
	evOut    = "out"    // it is in no world any more
	evDone   = "done"   // its loop has ended as it was told to
	evClosed = "closed" // it has closed its node and has leaked nothing
	evWrong  = "wrong"  // a result was wrong
	evError  = "error"  // anything else went wrong
)

// A starter starts a process, for example on a testhost.Host.
type starter interface{ Start(cmd *exec.Cmd) error }

// A process is the test binary in a role.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  *testlog.Buffer
	read chan struct{} // closed when its output has ended

	mu      sync.Mutex
	changed chan struct{} // closed when there is another event
	events  []event
	over    bool // its output has ended
	harmed  bool // it may end as it likes
	suspect bool // errors may name it: one of its links was attacked
	reaped  bool
}

// start starts a process with further variables of its environment. It has no
// NEXAR_* variables of this process.
func start(t testing.TB, at starter, role, name string, args arguments, vars ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		t: t, name: name, cmd: exec.Command(exe), log: new(testlog.Buffer),
		read: make(chan struct{}), changed: make(chan struct{}),
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NEXAR_") || strings.HasPrefix(v, "ATTACK")
	})
	p.cmd.Env = append(append(env, roleVariable+"="+role, argsVariable+"="+string(text), "NEXAR_LOG=info"), vars...)
	p.cmd.Stderr = p.log
	// A test that dies must not leave its processes behind. The thread that
	// starts them may end before, so they watch their standard input as well.
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run := p.cmd.Start
	if at != nil {
		run = func() error { return at.Start(p.cmd) }
	}
	if err := run(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go p.listen(out)
	t.Cleanup(p.reap)
	return p
}

func (p *process) listen(out io.Reader) {
	defer close(p.read)
	for dec := json.NewDecoder(out); ; {
		var e event
		err := dec.Decode(&e)
		p.mu.Lock()
		if err == nil {
			p.events = append(p.events, e)
		} else {
			p.over = true
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// tell writes a line to the standard input of the process.
func (p *process) tell(line string) { io.WriteString(p.in, line+"\n") }

// signal sends a signal. A process that was signalled may end with any status.
func (p *process) signal(sig os.Signal) {
	p.harm()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Errorf("%v to %s: %v", sig, p.name, err)
	}
}

// harm marks the process as a victim: how it ends does not count.
func (p *process) harm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harmed = true
}

func (p *process) isHarmed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.harmed
}

// accuse marks the process as the end of a link that is attacked: errors may name
// it whether or not it stays in the world.
func (p *process) accuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspect = true
}

func (p *process) isSuspect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.harmed || p.suspect
}

// history is all events so far, and a channel that is closed when there is another.
func (p *process) history() (events []event, over bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events), p.over, p.changed
}

// await waits until accept takes an event, among those of the past as well. It
// fails the test when the process ends before, reports a wrong result, or limit
// has passed.
func (p *process) await(limit time.Duration, what string, accept func(e event) bool) event {
	p.t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		events, over, changed := p.history()
		if i := slices.IndexFunc(events, accept); i >= 0 {
			return events[i]
		}
		if over {
			p.t.Fatalf("%s has ended, want %s; its last event was %+v\n%s", p.name, what, last(events), p.log.Tail(4000))
		}
		select {
		case <-changed:
		case <-timeout.C:
			p.harm()
			p.cmd.Process.Signal(syscall.SIGQUIT) // which shows its goroutines
			p.t.Fatalf("%s: no %s within %v; its last event was %+v\n%s", p.name, what, limit, last(events), p.log.Tail(4000))
		}
	}
}

func last(events []event) event {
	if len(events) == 0 {
		return event{}
	}
	return events[len(events)-1]
}

// find is the last event of a kind.
func (p *process) find(kind string) (e event, ok bool) {
	events, _, _ := p.history()
	for _, e := range slices.Backward(events) {
		if e.Kind == kind {
			return e, true
		}
	}
	return event{}, false
}

// reap ends the process and checks how it ends.
func (p *process) reap() {
	p.mu.Lock()
	reaped := p.reaped
	p.reaped = true
	p.mu.Unlock()
	if reaped {
		return
	}
	p.in.Close()
	p.cmd.Process.Signal(syscall.SIGCONT)
	late := time.AfterFunc(exitBound, func() { p.cmd.Process.Signal(syscall.SIGQUIT) })
	dead := time.AfterFunc(exitBound+5*time.Second, func() { p.cmd.Process.Kill() })
	<-p.read
	err := p.cmd.Wait()
	dead.Stop()
	inTime := late.Stop()
	text := p.log.String()
	for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "unexpected fault address"} {
		// A victim may end with any status; other processes must not crash.
		if strings.Contains(text, sign) && (!p.isHarmed() || sign == "DATA RACE") {
			p.t.Errorf("%s: its log has %q", p.name, sign)
		}
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !(exited && p.isHarmed()) {
		p.t.Errorf("%s: %v", p.name, err)
	}
	if !inTime && !p.isHarmed() {
		p.t.Errorf("%s has not ended within %v", p.name, exitBound)
	}
	if p.t.Failed() {
		p.t.Logf("log of %s:\n%s", p.name, p.log.Tail(6000))
	}
}

// files counts the open files of this process.
func files() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("count open files: %w", err)
	}
	return len(entries), nil
}

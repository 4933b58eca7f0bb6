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
	// bound limits each operation of an attacked world. It is generous, as it only has to
	// prove that nothing hangs.
	bound = time.Minute
	// exitLimit limits the time until a process has closed its node and exited.
	exitLimit = 30 * time.Second
)

// arguments configure a process. Each role reads its own fields.
type arguments struct {
	// Fields of a seed:
	World     int
	Listen    string
	Elastic   bool
	StateDir  string
	Peers     []string
	PeerToken string
	Advertise string
	// Fields of a rank:
	Vector int // additional elements in each all-reduce
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

// A launcher starts a process, for example on a testhost.Host.
type launcher interface{ Start(cmd *exec.Cmd) error }

// A process runs the test binary in a role.
type process struct {
	t           testing.TB
	name        string
	cmd         *exec.Cmd
	in          io.WriteCloser
	log         *testlog.Buffer
	outputEnded chan struct{}
	diagnose    func() string // called before the test fails because this process makes no progress; nil if it is not a rank

	mu      sync.Mutex
	changed chan struct{} // closed at the next event
	events  []event
	ended   bool // its output has ended
	victim  bool // it may fail and be removed
	suspect bool // errors may name it, as one of its links was attacked
	reaped  bool
}

// start starts a process, on this host if on is nil, with additional environment variables. The
// process does not inherit the NEXAR_* variables of this process.
func start(t testing.TB, on launcher, role, name string, args arguments, vars ...string) *process {
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
		outputEnded: make(chan struct{}), changed: make(chan struct{}),
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "NEXAR_") || strings.HasPrefix(v, "ATTACK")
	})
	p.cmd.Env = append(append(env, roleVariable+"="+role, argsVariable+"="+string(text), "NEXAR_LOG=info"), vars...)
	p.cmd.Stderr = p.log
	// The end of its standard input ends the process, also when the test has died. A parent death
	// signal would not do, as the thread that starts the process may end earlier.
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run := p.cmd.Start
	if on != nil {
		run = func() error { return on.Start(p.cmd) }
	}
	if err := run(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go p.readEvents(out)
	t.Cleanup(p.reap)
	return p
}

func (p *process) readEvents(out io.Reader) {
	defer close(p.outputEnded)
	for dec := json.NewDecoder(out); ; {
		var e event
		err := dec.Decode(&e)
		p.mu.Lock()
		if err == nil {
			p.events = append(p.events, e)
		} else {
			p.ended = true
		}
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send writes a command to the standard input of the process.
func (p *process) send(line string) { io.WriteString(p.in, line+"\n") }

// signal sends a signal and marks the process as a victim.
func (p *process) signal(sig os.Signal) {
	p.markVictim()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Errorf("%v to %s: %v", sig, p.name, err)
	}
}

// markVictim marks the process as a victim, which may fail and exit with any status.
func (p *process) markVictim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.victim = true
}

func (p *process) isVictim() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.victim
}

// markSuspect marks the process as an end of an attacked link: errors may name it, whether or not it
// stays in the world.
func (p *process) markSuspect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspect = true
}

func (p *process) mayBeNamed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.victim || p.suspect
}

// eventsSoFar returns all events, whether the output has ended, and a channel that is closed at the
// next event.
func (p *process) eventsSoFar() (events []event, over bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events), p.ended, p.changed
}

// await waits until accept returns true for an event, past events included. It fails the test if the
// process ends first, or after limit.
func (p *process) await(limit time.Duration, what string, accept func(e event) bool) event {
	p.t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		events, over, changed := p.eventsSoFar()
		if i := slices.IndexFunc(events, accept); i >= 0 {
			return events[i]
		}
		if over {
			p.t.Fatalf("%s has ended, want %s; its last event was %+v\n%s", p.name, what, lastOf(events), p.log.Tail(4000))
		}
		select {
		case <-changed:
		case <-timeout.C:
			state := ""
			if p.diagnose != nil {
				state = p.diagnose()
			}
			p.markVictim()
			p.cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines
			p.t.Fatalf("%s: no %s within %v; its last event was %+v\n%s\n%s", p.name, what, limit, lastOf(events), p.log.Tail(4000), state)
		}
	}
}

func lastOf(events []event) event {
	if len(events) == 0 {
		return event{}
	}
	return events[len(events)-1]
}

// lastEvent returns the last event of one of the kinds.
func (p *process) lastEvent(kinds ...string) (e event, ok bool) {
	events, _, _ := p.eventsSoFar()
	for _, e := range slices.Backward(events) {
		if slices.Contains(kinds, e.Kind) {
			return e, true
		}
	}
	return event{}, false
}

// reap ends the process and checks its exit status and its log.
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
	late := time.AfterFunc(exitLimit, func() { p.cmd.Process.Signal(syscall.SIGQUIT) })
	dead := time.AfterFunc(exitLimit+5*time.Second, func() { p.cmd.Process.Kill() })
	<-p.outputEnded
	err := p.cmd.Wait()
	dead.Stop()
	inTime := late.Stop()
	text := p.log.String()
	for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "unexpected fault address"} {
		// Victims may crash, other processes must not.
		if strings.Contains(text, sign) && (!p.isVictim() || sign == "DATA RACE") {
			p.t.Errorf("%s: its log has %q", p.name, sign)
		}
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !(exited && p.isVictim()) {
		p.t.Errorf("%s: %v", p.name, err)
	}
	if !inTime && !p.isVictim() {
		p.t.Errorf("%s has not ended within %v", p.name, exitLimit)
	}
	if p.t.Failed() {
		p.t.Logf("log of %s:\n%s", p.name, p.log.Tail(200_000))
	}
}

// openFiles counts the open files of this process.
func openFiles() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("count open files: %w", err)
	}
	return len(entries), nil
}

// Package launch runs several processes of this host as one: their output is
// one stream of lines, they get the same signals, and when one fails the
// others do not go on without it.
//
// [Run] starts the children and returns when all of them have ended: nil if every
// child exited with status 0, and otherwise the *Failure of the first child that failed.
//
// No process that a child has started outlives Run. On Linux this process
// becomes a child subreaper and ends all its descendants, on Windows every child
// is a job; on other systems a process that has left the child's process group
// escapes. On Linux, FreeBSD and Windows the children also end if this process
// is killed; [Guard] extends this to their descendants.
package launch

import (
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

// DefaultGrace is the Grace of a Config that has none.
const DefaultGrace = 5 * time.Second

// Config describes the processes to run.
type Config struct {
	Children []Child

	// Stdin is read by the first child, and by no other. Nil is an empty one.
	Stdin *os.File

	// Stdout and Stderr take the output of the children, in whole lines unless a child
	// pauses within a line.
	Stdout, Stderr io.Writer

	// Signals are forwarded to all children. The third request to end kills
	// them.
	Signals <-chan os.Signal

	// Grace is how long after the first failure the other children may run
	// before they are asked to end (SIGTERM), and then once more before they
	// are killed. The default is DefaultGrace.
	Grace time.Duration

	// Title begins the lines that Run itself writes to Stderr: the first failure,
	// and each step to end the other children.
	Title string

	// ExitError, if not nil, returns an error if a child must not have exited
	// yet, although its status was 0. Run's goroutine calls it when the child
	// exits, and every second after that while other children run.
	ExitError func(child int) error

	// Cause, if not nil, returns the child whose end the last words of another
	// child give as the reason of its failure.
	Cause func(lastWords string) (child int, ok bool)

	// OnFailure, if not nil, is called by Run's goroutine after the first
	// failure.
	OnFailure func()

	// Abandoned makes Run kill everything when it is closed: see [Lifeline].
	Abandoned <-chan struct{}

	// Survives, if not nil, reports whether the other children continue when one
	// has failed. Run then returns nil if at least one child exits with status 0,
	// and otherwise the first failure.
	Survives func() bool

	settle time.Duration // settleTime by default; tests set it
}

// A Child is one process.
type Child struct {
	Name func() string // its current name in messages: "rank 2"
	Path string        // the program
	Args []string      // the arguments, beginning with the name of the program
	Env  []string      // the complete environment

	// OutPrefix and ErrPrefix return the beginning of lines of its output. They are called
	// after the lines were read, by a goroutine each. Nil means none.
	OutPrefix, ErrPrefix func(pid int) string

	// Stdout and Stderr, if not nil, are passed to the child unchanged. A child
	// can then detect a terminal.
	Stdout, Stderr *os.File
}

// Run starts the children and waits until all have ended. If a child cannot be
// started, Run ends the others and returns a *StartError.
func Run(cfg Config) error {
	// Linux sends the parent-death signal when the thread that started the
	// child ends, so the thread must outlive the children.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.settle <= 0 {
		cfg.settle = settleTime
	}
	out := newPrinter(cfg.Stdout, cfg.Stderr)
	defer out.close()

	order := newRegister()
	defer order.close()
	orphans := adoptOrphans()
	defer orphans.close()
	s := &supervisor{
		cfg: cfg, out: out, order: order, orphans: orphans, exits: make(chan exit, len(cfg.Children)),
		timer: time.NewTimer(0), logTimer: time.NewTimer(0), killing: make(chan struct{}),
	}
	<-s.timer.C
	<-s.logTimer.C
	defer s.timer.Stop()
	defer s.logTimer.Stop()
	for i := range cfg.Children {
		if err := s.start(i); err != nil {
			s.killEverything()
			for range s.running {
				s.reaped(<-s.exits)
			}
			s.sweep()
			s.await()
			return err
		}
	}
	s.supervise()
	s.sweep()
	s.await()
	if s.first == nil {
		return nil
	}
	return s.first
}

// A supervisor is the state of Run. One goroutine uses it.
type supervisor struct {
	cfg     Config
	out     *printer
	order   *register
	orphans *orphans
	running []*child
	waiters sync.WaitGroup
	exits   chan exit
	killing chan struct{} // closed by killEverything

	stage     stage
	timer     *time.Timer   // ends the stage
	settled   int           // how often settleTime has passed
	failures  []*Failure    // one of these is first, and the others follow from it
	survived  []*Failure    // failures after which the others continued
	unlogged  []*Failure    // failures in survived that are not logged yet
	logTimer  *time.Timer   // logs unlogged
	succeeded []exit        // children that exited with status 0
	reminded  time.Time     // last reminder of the children that still run, or last exit
	pause     time.Duration // until the next one
	first     *Failure
	requested int // signals that requested the end of the children
}

// A stage is a step in ending the children.
type stage int

const (
	healthy    stage = iota
	settling         // a child has failed; earlier failures may still be reported
	grace            // the other children may end by themselves
	terminated       // they were sent SIGTERM
	killed           // they were sent SIGKILL
)

// settleTime is the time from the first reported failure until Run chooses the earliest of
// all failures so far, or logs them if the others continue.
//
// A rank that dies makes others fail within milliseconds, and the parent may learn of
// the others first.
const settleTime = 100 * time.Millisecond

// settlesMax is how often Run waits for settleTime if the last words of all failures so far name another child: one that
// closes its node before it exits may end last.
const settlesMax = 10

// requestsMax is the number of requests to end after which the children are
// killed.
const requestsMax = 3

// exitCheckInterval is the interval at which ExitError is called for children that
// have exited.
const exitCheckInterval = time.Second

func (s *supervisor) start(i int) error {
	var stdin *os.File
	if i == 0 {
		stdin = s.cfg.Stdin
	}
	c, err := startChild(i, s.cfg.Children[i], stdin, s.out)
	if err != nil {
		return err
	}
	c.died = s.order.add(c.tree.pidfd)
	s.running = append(s.running, c)
	s.waiters.Go(func() {
		s.exits <- c.wait()
		c.finish(s.cfg.Grace, s.killing)
	})
	return nil
}

// await returns when the goroutines of all children have ended.
func (s *supervisor) await() { s.waiters.Wait() }

// sweep ends the processes that the children have left behind.
func (s *supervisor) sweep() {
	groups := make(map[int]bool)
	for _, c := range s.running {
		groups[c.cmd.Process.Pid] = true
	}
	rest := sweep{
		orphans: s.orphans, grace: s.cfg.Grace, signals: s.cfg.Signals, abandoned: s.cfg.Abandoned,
		requested: s.requested, terminated: groups, say: s.say,
	}
	rest.run(s.killed())
}

// killed reports whether killEverything was called.
func (s *supervisor) killed() bool {
	select {
	case <-s.killing:
		return true
	default:
		return false
	}
}

// reap waits for orphans that have ended. Without it a program that leaves many
// orphans would exhaust the pids.
func (s *supervisor) reap() {
	running := make(map[int]bool)
	for _, c := range s.running {
		if !c.ended {
			running[c.cmd.Process.Pid] = true
		}
	}
	s.orphans.reap(running)
}

// supervise returns when all children have ended.
func (s *supervisor) supervise() {
	abandoned := s.cfg.Abandoned
	again := time.NewTicker(exitCheckInterval)
	defer again.Stop()
	for left := len(s.running); left > 0; {
		select {
		case e := <-s.exits:
			left--
			s.exited(e)
		case sig := <-s.cfg.Signals:
			s.forward(sig)
		case err := <-s.out.broken:
			s.outputBroke(err)
		case <-s.timer.C:
			s.escalate()
		case <-s.logTimer.C:
			s.logSurvived()
		case <-abandoned:
			abandoned = nil
			s.killEverything()
		case <-again.C:
			s.reap()
			s.remind(time.Now())
			for _, e := range s.succeeded {
				s.checkExit(e)
			}
		}
	}
	if len(s.succeeded) == 0 {
		s.failures = append(s.failures, s.survived...)
		s.unlogged = nil // choose logs the first of them.
	}
	s.logSurvived()
	if s.first == nil && len(s.failures) > 0 {
		s.choose()
	}
	s.logRest()
}

// reaped notes that a child has been waited for.
func (s *supervisor) reaped(e exit) { s.running[e.child].ended = true }

func (s *supervisor) exited(e exit) {
	s.reaped(e)
	s.reminded, s.pause = time.Now(), remindAfter
	f := e.failure()
	if f == nil {
		s.succeeded = append(s.succeeded, e)
		s.checkExit(e)
		return
	}
	if s.stage == healthy && s.requested == 0 && s.cfg.Survives != nil && s.cfg.Survives() {
		f.Name = s.cfg.Children[f.Child].Name()
		s.survived = append(s.survived, f)
		if s.unlogged = append(s.unlogged, f); len(s.unlogged) == 1 {
			s.logTimer.Reset(s.cfg.settle)
		}
		return
	}
	s.fail(f)
}

// logSurvived logs the failures after which other children continue, and the names of
// these. It runs after settleTime, since children that end together are reported one after
// the other.
func (s *supervisor) logSurvived() {
	continuing := ""
	if names := s.names(); names != "" {
		continuing = "; going on: " + names
	}
	for _, f := range s.unlogged {
		s.say(f.Error() + continuing)
	}
	s.unlogged = nil
}

// logRest logs the failures after the first one, unless somebody or Run itself has asked for the end of the children.
func (s *supervisor) logRest() {
	rest := slices.DeleteFunc(s.failures, func(f *Failure) bool { return f == s.first || f.Child < 0 || f.byRun })
	if len(rest) > 0 && s.requested == 0 && s.first.Child >= 0 {
		s.say("after that " + describeEnds(rest))
	}
}

// checkExit fails a child that exited with status 0 too early.
func (s *supervisor) checkExit(e exit) {
	if s.stage != healthy || s.cfg.ExitError == nil {
		return
	}
	if err := s.cfg.ExitError(e.child); err != nil {
		s.fail(&Failure{Child: e.child, Pid: e.state.Pid(), Err: err, when: e.when})
	}
}

func (s *supervisor) fail(f *Failure) {
	s.logSurvived()
	if f.Child >= 0 {
		f.Name = s.cfg.Children[f.Child].Name()
	}
	f.byRun = s.stage >= terminated
	s.failures = append(s.failures, f)
	if s.stage == healthy {
		s.stage = settling
		s.timer.Reset(s.cfg.settle)
	}
}

// escalate ends a stage and begins the next.
func (s *supervisor) escalate() {
	switch s.stage {
	case settling:
		if s.settled++; s.settled < settlesMax && len(s.causes()) == 0 {
			s.timer.Reset(s.cfg.settle)
			return
		}
		s.choose()
		s.stage = grace
		s.timer.Reset(s.cfg.Grace)
	case grace:
		s.say(s.names() + " still running " + s.cfg.Grace.String() + " after that: sending a signal to end")
		s.terminateAll()
	case terminated:
		s.say(s.names() + " still running: killing")
		s.killAll()
	}
}

// outputBroke ends all children: their output has no reader any more.
func (s *supervisor) outputBroke(err error) {
	if s.stage >= terminated {
		return
	}
	s.fail(&Failure{Child: -1, Err: err, when: time.Now()})
	if s.first == nil {
		s.choose()
	}
	s.terminateAll()
}

// causes returns the failures whose last words do not name another child as their cause.
func (s *supervisor) causes() []*Failure {
	if s.cfg.Cause == nil {
		return s.failures
	}
	return slices.DeleteFunc(slices.Clone(s.failures), func(f *Failure) bool {
		child, ok := s.cfg.Cause(f.LastWords)
		return ok && child != f.Child
	})
}

// choose sets the first failure and logs it.
func (s *supervisor) choose() {
	candidates := s.causes()
	if len(candidates) == 0 {
		candidates = s.failures
	}
	s.first = earliest(candidates)
	s.say(s.first.Error())
	if s.cfg.OnFailure != nil {
		s.cfg.OnFailure()
	}
}

func (s *supervisor) forward(sig os.Signal) {
	if requestsEnd(sig) {
		s.requested++
		s.reminded, s.pause = time.Now(), s.cfg.Grace
	}
	if s.requested >= requestsMax {
		s.say("third request to end: killing " + s.names())
		s.killEverything()
		return
	}
	for _, c := range s.running {
		if !c.ended {
			c.signal(sig)
		}
	}
}

func (s *supervisor) terminateAll() {
	s.stage = terminated
	s.timer.Reset(s.cfg.Grace)
	for _, c := range s.running {
		if !c.ended {
			c.terminate()
		}
	}
}

// killEverything kills the children. Their orphans are killed without a grace time, too.
func (s *supervisor) killEverything() {
	if !s.killed() {
		close(s.killing)
	}
	s.killAll()
}

func (s *supervisor) killAll() {
	s.stage = killed
	for _, c := range s.running {
		if !c.ended {
			c.kill()
		}
	}
}

// names lists the children that have not ended: "ranks 0, 3".
func (s *supervisor) names() string {
	var names []string
	for i, c := range s.running {
		if !c.ended {
			names = append(names, s.cfg.Children[i].Name())
		}
	}
	return list(names)
}

func (s *supervisor) say(text string) {
	s.out.print(&source{to: stderr, prefix: noPrefix}, []byte(s.cfg.Title+": "+text+"\n"))
}

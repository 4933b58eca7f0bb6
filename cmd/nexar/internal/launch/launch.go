// Package launch runs several processes of this host as one: their output is
// one stream of whole lines, they get the same signals, and when one fails the
// others do not go on without it.
//
// Call Run. It returns when all children have ended, nil if every one of them
// exited with status 0, and otherwise the *Failure of the one that failed
// first.
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
	"sync"
	"time"
)

// DefaultGrace is the Grace of a Config that has none.
const DefaultGrace = 5 * time.Second

// Config says what to run.
type Config struct {
	Children []Child

	// Stdin is read by the first child, and by no other. Nil is an empty one.
	Stdin *os.File

	// Stdout and Stderr take the output of the children, in whole lines.
	Stdout, Stderr io.Writer

	// Signals are passed on to all children. The third one that asks them to
	// end kills them.
	Signals <-chan os.Signal

	// Grace is how long after the first failure the other children may run
	// before they are asked to end (SIGTERM), and then once more before they
	// are killed. The default is DefaultGrace.
	Grace time.Duration

	// Title begins the lines that Run itself writes to Stderr: which child has
	// failed first, and what is done to the others.
	Title string

	// Harmful, if not nil, says why it is a failure that a child has exited,
	// though with status 0. Run's goroutine asks at once and then again and
	// again while other children run.
	Harmful func(child int) error

	// Failed, if not nil, is called by Run's goroutine after the first
	// failure.
	Failed func()

	// Abandoned, once closed, has Run kill everything: see [Lifeline].
	Abandoned <-chan struct{}

	// Survives, if not nil, says whether the other children go on when one has
	// failed. Run then returns nil if one of them exits with status 0 in the
	// end, and otherwise the first failure.
	Survives func() bool
}

// A Child is one process.
type Child struct {
	Name func() string // how messages call it now: "rank 2"
	Path string        // the program
	Args []string      // its arguments, the name of the program among them
	Env  []string      // its whole environment

	// OutPrefix and ErrPrefix go before every line of its output.
	OutPrefix, ErrPrefix string

	// Stdout and Stderr, if not nil, are the child's own output: it does not
	// go through Run, so that the child knows it for a terminal, if it is one.
	Stdout, Stderr *os.File
}

// Run starts the children and waits until all have ended. If one cannot be
// started it ends those that were and returns a *StartError.
func Run(cfg Config) error {
	// Linux sends a child its parent-death signal when the thread that
	// started it ends, so that thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	out := newPrinter(cfg.Stdout, cfg.Stderr)
	defer out.close()

	order := newRegister()
	defer order.close()
	orphans := adoptOrphans()
	defer orphans.close()
	s := &supervisor{
		cfg: cfg, out: out, order: order, orphans: orphans, exits: make(chan exit, len(cfg.Children)),
		timer: time.NewTimer(0), tell: time.NewTimer(0), killing: make(chan struct{}),
	}
	<-s.timer.C
	<-s.tell.C
	defer s.timer.Stop()
	defer s.tell.Stop()
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
	timer     *time.Timer // ends the stage
	failures  []*Failure  // until first is chosen
	survived  []*Failure  // that the others went on after,
	untold    []*Failure  // of which these are still to be told
	tell      *time.Timer // when
	well      []exit      // of children that exited with status 0
	first     *Failure
	requested int // signals that asked the children to end
}

// A stage is how far the ending of the children has come.
type stage int

const (
	allWell  stage = iota
	settling       // some child has failed; which was the first?
	grace          // the others may end by themselves
	asked          // they were sent SIGTERM
	killed         // they were sent SIGKILL
)

// settle is how long after the first failure others are compared with it, and how
// long it takes to tell of one after which others go on.
//
// A rank that dies takes others with it within milliseconds, and a parent may
// learn of these first.
const settle = 100 * time.Millisecond

// requestsMax is the number of signals that ask the children to end after
// which they are killed.
const requestsMax = 3

// askAgain is how often Harmful is asked about children that have ended.
const askAgain = time.Second

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

// sweep ends the processes that the children have left.
func (s *supervisor) sweep() {
	groups := make(map[int]bool)
	for _, c := range s.running {
		groups[c.cmd.Process.Pid] = true
	}
	rest := sweep{
		orphans: s.orphans, grace: s.cfg.Grace, signals: s.cfg.Signals, abandoned: s.cfg.Abandoned,
		requested: s.requested, told: groups, say: s.say,
	}
	rest.run(s.killed())
}

// killed reports whether nothing is given time any more.
func (s *supervisor) killed() bool {
	select {
	case <-s.killing:
		return true
	default:
		return false
	}
}

// reap waits for orphans that have ended, so that a program that leaves many
// in a long run does not use up the process numbers.
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
	broken, abandoned := s.out.broken, s.cfg.Abandoned
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for left := len(s.running); left > 0; {
		select {
		case e := <-s.exits:
			left--
			s.exited(e)
		case sig := <-s.cfg.Signals:
			s.forward(sig)
		case <-broken:
			broken = nil
			s.lost()
		case <-s.timer.C:
			s.escalate()
		case <-s.tell.C:
			s.tellSurvived()
		case <-abandoned:
			abandoned = nil
			s.killEverything()
		case <-again.C:
			s.reap()
			for _, e := range s.well {
				s.ask(e)
			}
		}
	}
	if len(s.well) == 0 {
		s.failures = append(s.failures, s.survived...)
		s.untold = nil // The first of them is told as such.
	}
	s.tellSurvived()
	if s.first == nil && len(s.failures) > 0 {
		s.choose()
	}
}

// reaped notes that a child has been waited for.
func (s *supervisor) reaped(e exit) { s.running[e.child].ended = true }

func (s *supervisor) exited(e exit) {
	s.reaped(e)
	f := e.failure()
	if f == nil {
		s.well = append(s.well, e)
		s.ask(e)
		return
	}
	if s.stage == allWell && s.requested == 0 && s.cfg.Survives != nil && s.cfg.Survives() {
		f.Name = s.cfg.Children[f.Child].Name()
		s.survived = append(s.survived, f)
		if s.untold = append(s.untold, f); len(s.untold) == 1 {
			s.tell.Reset(settle)
		}
		return
	}
	s.fail(f)
}

// tellSurvived tells of failures after which others go on, and of which: a moment
// later, as children that end together are heard of one after the other.
func (s *supervisor) tellSurvived() {
	goingOn := ""
	if names := s.names(); names != "" {
		goingOn = "; going on: " + names
	}
	for _, f := range s.untold {
		s.say(f.Error() + goingOn)
	}
	s.untold = nil
}

// ask fails a child that has ended well, if that is harmful.
func (s *supervisor) ask(e exit) {
	if s.stage != allWell || s.cfg.Harmful == nil {
		return
	}
	if err := s.cfg.Harmful(e.child); err != nil {
		s.fail(&Failure{Child: e.child, Pid: e.state.Pid(), Err: err, when: e.when})
	}
}

func (s *supervisor) fail(f *Failure) {
	s.tellSurvived()
	if f.Child >= 0 {
		f.Name = s.cfg.Children[f.Child].Name()
	}
	if s.first == nil {
		s.failures = append(s.failures, f)
	}
	if s.stage == allWell {
		s.stage = settling
		s.timer.Reset(settle)
	}
}

// escalate does what is due at the end of a stage.
func (s *supervisor) escalate() {
	switch s.stage {
	case settling:
		s.choose()
		s.stage = grace
		s.timer.Reset(s.cfg.Grace)
	case grace:
		s.say(s.names() + " still running " + s.cfg.Grace.String() + " after that: sending a signal to end")
		s.terminateAll()
	case asked:
		s.say(s.names() + " still running: killing")
		s.killAll()
	}
}

// lost ends all because nobody reads their output any more.
func (s *supervisor) lost() {
	if s.stage >= asked {
		return
	}
	s.fail(&Failure{Child: -1, when: time.Now()})
	if s.first == nil {
		s.choose()
	}
	s.terminateAll()
}

// choose decides which failure was the first, and tells.
func (s *supervisor) choose() {
	s.first = earliest(s.failures)
	s.say(s.first.Error())
	if s.cfg.Failed != nil {
		s.cfg.Failed()
	}
}

func (s *supervisor) forward(sig os.Signal) {
	if asksToEnd(sig) {
		s.requested++
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
	s.stage = asked
	s.timer.Reset(s.cfg.Grace)
	for _, c := range s.running {
		if !c.ended {
			c.terminate()
		}
	}
}

// killEverything kills the children, and leaves their orphans no time either.
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

// names lists the children that have not ended: "rank 0, rank 3".
func (s *supervisor) names() string {
	text := ""
	for i, c := range s.running {
		if c.ended {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += s.cfg.Children[i].Name()
	}
	return text
}

func (s *supervisor) say(text string) {
	s.out.print(stderr, []byte(s.cfg.Title+": "+text+"\n"))
}

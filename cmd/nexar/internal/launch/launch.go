// Package launch runs several processes of this host as one: their output is
// one stream of whole lines, they get the same signals, and when one fails the
// others do not go on without it.
//
// Call Run. It returns when all children have ended, nil if every one of them
// exited with status 0, and otherwise the *Failure of the one that failed
// first. Nothing that a child has started in its process group outlives Run;
// on Linux, FreeBSD and Windows the children also end if this process is
// killed.
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
	s := &supervisor{
		cfg: cfg, out: out, order: order, exits: make(chan exit, len(cfg.Children)), timer: time.NewTimer(0), tell: time.NewTimer(0),
	}
	<-s.timer.C
	<-s.tell.C
	defer s.timer.Stop()
	defer s.tell.Stop()
	for i := range cfg.Children {
		if err := s.start(i); err != nil {
			s.killAll()
			s.await()
			return err
		}
	}
	s.supervise()
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
	running []*child
	waiters sync.WaitGroup
	exits   chan exit

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
	s.waiters.Go(func() { s.exits <- c.wait() })
	return nil
}

// await returns when the goroutines of all children have ended.
func (s *supervisor) await() { s.waiters.Wait() }

// supervise returns when all children have ended.
func (s *supervisor) supervise() {
	broken := s.out.broken
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
		case <-again.C:
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

func (s *supervisor) exited(e exit) {
	s.running[e.child].ended = true
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
	if s.requested >= 3 {
		s.say("third request to end: killing " + s.names())
		s.killAll()
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

package launch

import (
	"os"
	"os/exec"
	"sync"
	"time"
)

// A child is a process that runs.
type child struct {
	index   int
	cmd     *exec.Cmd
	tree    tree // it and the processes it starts
	outputs []*pipe
	readers sync.WaitGroup
	stdin   *feeder
	drained chan struct{}    // closed when all output has been read, after wait
	watcher sync.WaitGroup   // closes it
	died    <-chan time.Time // gives when it ended; nil if that cannot be told
	ended   bool             // belongs to the supervisor

	mu   sync.Mutex
	gone bool // it was reaped, so that its number may be another's
}

// An exit is the end of a child.
type exit struct {
	child int
	state *os.ProcessState
	err   error // if its end could not be learnt
	when  time.Time
}

func (e exit) failure() *Failure {
	f := &Failure{Child: e.child, when: e.when}
	if e.state == nil {
		f.Err = e.err
		return f
	}
	f.Pid = e.state.Pid()
	f.Signal, f.SignalName = signalOf(e.state)
	if f.Signal == 0 {
		f.Status = e.state.ExitCode()
	}
	if f.Signal == 0 && f.Status == 0 {
		return nil
	}
	return f
}

// startChild starts a process and the goroutines that carry its output.
func startChild(index int, spec Child, stdin *os.File, out *printer) (*child, error) {
	c := &child{index: index, tree: tree{pidfd: -1}}
	c.cmd = &exec.Cmd{Path: spec.Path, Args: spec.Args, Env: spec.Env}
	var theirs []*os.File // copies that the child gets
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()

	attach := func(own *os.File, to stream, prefix string) (*os.File, error) {
		if own != nil {
			return own, nil
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, w)
		o := &pipe{file: r}
		c.outputs = append(c.outputs, o)
		c.readers.Go(func() {
			copyLines(o, prefix, func(text []byte) { out.print(to, text) })
		})
		return w, nil
	}
	childOut, err := attach(spec.Stdout, stdout, spec.OutPrefix)
	if err == nil {
		c.cmd.Stdout = childOut
		childOut, err = attach(spec.Stderr, stderr, spec.ErrPrefix)
		c.cmd.Stderr = childOut
	}
	if err == nil && stdin != nil {
		c.stdin, err = feed(stdin)
	}
	if err == nil {
		if c.stdin != nil {
			c.cmd.Stdin = c.stdin.out
		}
		c.tree, err = startTree(c.cmd)
	}
	if err != nil {
		for _, f := range theirs {
			f.Close()
		}
		c.release()
		return nil, &StartError{Program: spec.Args[0], Err: err}
	}
	c.stdin.started()
	return c, nil
}

// wait returns when the process has ended and has been waited for, and its
// output is written, unless other processes hold that open. The rest of its process
// group has then been sent SIGTERM.
func (c *child) wait() exit {
	var when time.Time
	if c.died != nil {
		when = <-c.died
	}
	var err error
	if c.died == nil {
		err = c.cmd.Wait()
		when = time.Now()
	}
	for _, o := range c.outputs {
		o.end()
	}
	c.drained = make(chan struct{})
	c.watcher.Go(func() {
		c.readers.Wait()
		close(c.drained)
	})
	within(c.drained, drainMax)
	c.mu.Lock()
	c.tree.terminateRest()
	c.gone = true
	c.mu.Unlock()
	if c.died != nil {
		// Until now its number, which is that of its group, has been its own.
		err = c.cmd.Wait()
	}
	return exit{child: c.index, state: c.cmd.ProcessState, err: err, when: when}
}

// finish comes after wait. It returns when the process group is empty, after
// grace or once now is closed by force, and the output has been written.
func (c *child) finish(grace time.Duration, now <-chan struct{}) {
	c.tree.finish(grace, now)
	c.watcher.Wait()
	c.release()
}

// release gives up all that belongs to a process that has ended, or never
// began.
func (c *child) release() {
	for _, o := range c.outputs {
		o.file.Close()
	}
	c.stdin.stop()
	c.readers.Wait()
	c.tree.release()
}

func (c *child) signal(sig os.Signal) { c.unlessGone(func() { c.tree.signal(sig) }) }
func (c *child) terminate()           { c.unlessGone(c.tree.terminate) }
func (c *child) kill()                { c.unlessGone(c.tree.kill) }

func (c *child) unlessGone(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		f()
	}
}

// within waits for done, but not longer than d.
func within(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

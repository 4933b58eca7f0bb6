package launch

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// A child is a running process.
type child struct {
	index   int
	cmd     *exec.Cmd
	tree    tree // the process and its descendants
	outputs []*pipe
	readers sync.WaitGroup
	stdin   *feeder
	words   lastWords
	drained chan struct{}    // closed when all output has been read, after wait
	watcher sync.WaitGroup   // the goroutine that closes drained
	died    <-chan time.Time // receives the time of the end; nil if the system cannot report it
	ended   bool             // owned by the supervisor

	mu   sync.Mutex
	gone bool // reaped: the pid may belong to another process
}

// An exit is the end of a child.
type exit struct {
	child int
	state *os.ProcessState
	err   error // if state is nil
	words string
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
		f.Status, f.LastWords = e.state.ExitCode(), e.words
	}
	if f.Signal == 0 && f.Status == 0 {
		return nil
	}
	return f
}

// startChild starts a process and the goroutines that copy its output.
func startChild(index int, spec Child, stdin *os.File, out *printer) (*child, error) {
	c := &child{index: index, tree: tree{pidfd: -1}}
	c.cmd = &exec.Cmd{Path: spec.Path, Args: spec.Args, Env: spec.Env}
	var theirs []*os.File // inherited by the child
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()

	var read []func() // copy the output of the child, once it has a pid
	attach := func(own *os.File, to stream, prefix func(pid int) string) (*os.File, error) {
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
		read = append(read, func() {
			from := &source{to: to, prefix: noPrefix}
			if prefix != nil {
				from.prefix = func() string { return prefix(c.cmd.Process.Pid) }
			}
			var r io.Reader = o
			if to == stderr {
				r = io.TeeReader(o, &c.words)
			}
			out.copy(from, r)
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
		} else if in := noInput(); in != nil {
			c.cmd.Stdin = in
			theirs = append(theirs, in)
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
	for _, f := range read {
		c.readers.Go(f)
	}
	c.stdin.started()
	return c, nil
}

// noInput returns a standard input without data where os/exec would find no /dev/null, as in a bare
// chroot, and otherwise nil.
func noInput() *os.File {
	if _, err := os.Stat(os.DevNull); err == nil || runtime.GOOS == "windows" {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	w.Close()
	return r
}

// wait returns when the process has been reaped and its output has been written, or
// after drainMax if other processes hold the output open. It sends SIGTERM to the rest
// of the process group.
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
		// The pid, which is also the id of the group, was reserved until now.
		err = c.cmd.Wait()
	}
	return exit{child: c.index, state: c.cmd.ProcessState, err: err, words: c.words.get(), when: when}
}

// finish is called after wait. It returns when the process group is empty and the
// output has been written. It kills the group after grace, or when now is closed.
func (c *child) finish(grace time.Duration, now <-chan struct{}) {
	c.tree.finish(grace, now)
	c.watcher.Wait()
	c.release()
}

// release closes the files of a process that has ended or was not started.
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

// within waits for done, at most for d.
func within(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

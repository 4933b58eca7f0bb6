//go:build unix

package launch

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Guard runs this program a second time, with the same arguments, and returns
// the exit status of that process. It is for a program that calls [Run]:
// a process that is killed cannot end its descendants, but a second process can.
//
//	nexar run          the guard: forwards signals and terminal input
//	└─ nexar run       calls TakeLifeline and Run
//	   └─ rank 0 …
//
// If the guard is killed, the second process sees the end of its [Lifeline] and
// kills its descendants. If the second process is killed, its
// descendants become children of the guard on Linux, and the guard ends them. The
// second process has a session of its own: neither the signals of a terminal nor
// those to the guard's process group reach it, except through the guard.
//
// Guard ends every child that this process gets during the call.
func Guard(cfg GuardConfig) (status int, err error) {
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	orphans := adoptOrphans()
	defer orphans.close()
	path, err := Self()
	if err != nil {
		return 0, err
	}
	end, hold, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer hold.Close()
	input, err := feed(cfg.Stdin)
	if err != nil {
		end.Close()
		return 0, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: os.Args, Env: append(os.Environ(), lifelineVariable+"="+strconv.Itoa(firstExtra)),
		Stdin: input.out, Stdout: cfg.Stdout, Stderr: cfg.Stderr, ExtraFiles: []*os.File{end},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	end.Close()
	if err != nil {
		input.stop()
		return 0, fmt.Errorf("starting %q a second time: %w", path, err)
	}
	input.started()
	rest := sweep{
		orphans: orphans, grace: cfg.Grace, signals: cfg.Signals,
		say: func(text string) { fmt.Fprintf(cfg.Stderr, "%s: %s\n", cfg.Title, text) },
	}
	sent := rest.forward(cmd)
	input.stop()
	if signal, name := signalOf(cmd.ProcessState); signal != 0 {
		if !slices.Contains(sent, os.Signal(syscall.Signal(signal))) { // Until it calls Run, a forwarded signal ends it.
			rest.say(fmt.Sprintf("the process that runs the ranks (pid %d) was killed by signal %d (%s)", cmd.Process.Pid, signal, name))
		}
		rest.run(rest.requested >= requestsMax)
		return statusSignal + signal, nil
	}
	rest.run(true)
	return cmd.ProcessState.ExitCode(), nil
}

// firstExtra is the file descriptor of exec.Cmd.ExtraFiles[0].
const firstExtra = 3

// forward forwards signals to the process that runs the ranks, until it has been reaped. It kills a process that
// still runs some time after the third request to end, as one that is stopped does. It returns the signals that it has sent.
func (s *sweep) forward(cmd *exec.Cmd) (sent []os.Signal) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // The result is in ProcessState.
	}()
	var late <-chan time.Time
	for {
		sig := os.Signal(os.Kill)
		select {
		case <-ended:
			return sent
		case <-late:
			s.say(fmt.Sprintf("killing the process that runs the ranks (pid %d): it has not ended after the third request", cmd.Process.Pid))
		case sig = <-s.signals:
			if requestsEnd(sig) {
				s.requested++
			}
			if late == nil && s.requested == requestsMax {
				late = time.After(min(s.grace, DefaultGrace))
			}
		}
		sent = append(sent, sig)
		_ = cmd.Process.Signal(sig)
	}
}

// TakeLifeline returns the Lifeline of this process if [Guard] has started it, and
// otherwise nil: the caller then has to call Guard. Children do not inherit the
// Lifeline.
func TakeLifeline() *Lifeline {
	fd, err := strconv.Atoi(os.Getenv(lifelineVariable))
	if err != nil || fd < firstExtra {
		return nil
	}
	os.Unsetenv(lifelineVariable)
	syscall.CloseOnExec(fd)
	// Non-blocking, so that Close ends the Read.
	_ = syscall.SetNonblock(fd, true)
	l := &Lifeline{file: os.NewFile(uintptr(fd), "lifeline"), cut: make(chan struct{}), done: make(chan struct{})}
	go l.watch()
	return l
}

//go:build unix

package launch

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A tree is a process and those that it starts: a process group of their own,
// so that a terminal's Ctrl-C reaches them once, through Run.
type tree struct {
	group int
	pidfd int // of the process; -1 if there is none
}

func startTree(cmd *exec.Cmd) (tree, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	pidfd := pidfdOf(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return tree{pidfd: -1}, err
	}
	return tree{cmd.Process.Pid, *pidfd}, nil
}

func (t tree) signal(sig os.Signal) {
	if s, ok := sig.(syscall.Signal); ok && t.group > 0 {
		// The group may be gone, which is what was wanted.
		_ = syscall.Kill(-t.group, s)
	}
}

func (t tree) terminate() { t.signal(syscall.SIGTERM) }
func (t tree) kill()      { t.signal(syscall.SIGKILL) }
func (t tree) release()   { closePidfd(t.pidfd) }

// terminateRest asks the processes of the group to end that are left of it.
func (t tree) terminateRest() { t.terminate() }

// finish returns when no process of the group is left, its leader having been
// waited for. It kills them after grace, or once now is closed.
func (t tree) finish(grace time.Duration, now <-chan struct{}) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for pause := time.Millisecond; groupLeft(t.group); pause = min(2*pause, sweepPauseMax) {
		select {
		case <-timer.C:
			t.kill()
			return
		case <-now:
			t.kill()
			return
		case <-time.After(pause):
		}
	}
}

// asksToEnd reports whether sig asks a process to end.
func asksToEnd(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGQUIT
}

// Forwarded are the signals to pass on to children.
func Forwarded() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// signalOf is the number and name of the signal that ended a process; 0 if it
// exited.
func signalOf(state *os.ProcessState) (int, string) {
	w, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !w.Signaled() {
		return 0, ""
	}
	return int(w.Signal()), w.Signal().String()
}

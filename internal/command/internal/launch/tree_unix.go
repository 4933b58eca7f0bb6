//go:build unix

package launch

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A tree is a process and its descendants in a process group of their own: the signals of
// a terminal reach them only through Run.
type tree struct {
	group int
	pidfd int // of the process; -1 without one
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
		// An error means that the group has ended.
		_ = syscall.Kill(-t.group, s)
	}
}

func (t tree) terminate() { t.signal(syscall.SIGTERM) }
func (t tree) kill()      { t.signal(syscall.SIGKILL) }
func (t tree) release()   { closePidfd(t.pidfd) }

// terminateRest sends SIGTERM to the remaining processes of the group.
func (t tree) terminateRest() { t.terminate() }

// finish returns when no process of the group is left. The leader of the process group has been reaped. It
// kills the group after grace, or when now is closed.
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

// requestsEnd reports whether sig requests the end of a process.
func requestsEnd(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGQUIT
}

// Forwarded returns the signals to forward to children.
func Forwarded() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// signalOf returns the number and name of the signal that ended a process, and 0 if the
// process exited.
func signalOf(state *os.ProcessState) (int, string) {
	w, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !w.Signaled() {
		return 0, ""
	}
	return int(w.Signal()), w.Signal().String()
}

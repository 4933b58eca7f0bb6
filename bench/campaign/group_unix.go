//go:build unix

package campaign

import (
	"os/exec"
	"syscall"
	"time"
)

// endAsGroup makes the process the head of a group that is ended as a whole
// when its context ends, first by asking. Call stop when the process is gone.
func endAsGroup(cmd *exec.Cmd) (stop func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var last *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		last = time.AfterFunc(grace, func() {
			// The group may have ended in between.
			_ = syscall.Kill(group, syscall.SIGKILL)
		})
		return syscall.Kill(group, syscall.SIGTERM)
	}
	return func() {
		if last != nil {
			last.Stop()
		}
	}
}

//go:build unix

package campaign

import (
	"os/exec"
	"syscall"
	"time"
)

// endAsSession makes the process the leader of a session and of a process group. When the context of cmd ends, the
// group gets SIGTERM, and SIGKILL after grace. Call stop after cmd has been waited for.
func endAsSession(cmd *exec.Cmd) (stop func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var last *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		last = time.AfterFunc(grace, func() {
			// The group may have ended meanwhile.
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

package launch

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// The register reports the order of the deaths, even if it runs long after them.
func TestRegisterKeepsTheOrder(t *testing.T) {
	const n = 8
	// The kernel wakes the registers of a process from the last to the first, so an event
	// of the first is in the queue of the second.
	first, r := newRegister(), newRegister()
	defer first.close()
	defer r.close()
	var cmds []*exec.Cmd
	var seen, died []<-chan time.Time
	for i := range n {
		spec := cast(i, "sleep")
		cmd := &exec.Cmd{Path: spec.Path, Args: spec.Args, Env: spec.Env, SysProcAttr: &syscall.SysProcAttr{}}
		pidfd := pidfdOf(cmd.SysProcAttr)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
			closePidfd(*pidfd)
		}()
		require.Have(t, "pidfd", *pidfd >= 0, "the kernel knows no pidfd")
		cmds = append(cmds, cmd)
		seen = append(seen, first.add(*pidfd))
		died = append(died, r.add(*pidfd))
	}
	r.mu.Lock() // The register reports no death before all processes are dead.
	order := []int{5, 0, 7, 3, 1, 6, 2, 4}
	for _, i := range order {
		cmds[i].Process.Kill()
		<-seen[i]
	}
	r.mu.Unlock()
	var last time.Time
	for _, i := range order {
		at := <-died[i]
		if !at.After(last) {
			t.Errorf("process %d died at %v, want after %v", i, at, last)
		}
		last = at
	}
}

//go:build unix

package command

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestBenchInterrupted: a measurement that has begun ends with the status 130 after a SIGINT, to the command alone as from
// kill, or to all its processes as from Ctrl-C in a terminal. The first result comes soon, and all of them would take hours.
func TestBenchInterrupted(t *testing.T) {
	nexar := copiedProgram(t, "nexar")
	for name, args := range map[string][]string{
		"processes":  {"--iters", "5000"},
		"goroutines": {"--iters", "5000", "--transport", "mem"},
		"algorithms": {"--iters", "100", "--transport", "mem", "--op", "all_reduce", "--algorithms", "--factor", "2"},
	} {
		for _, group := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "/group"}[group], func(t *testing.T) {
				t.Parallel()
				var log bytes.Buffer
				cmd := exec.CommandContext(t.Context(), nexar, append([]string{"bench", "-n", "2", "--json", "-"}, args...)...)
				cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				cmd.Stderr = &log
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(out)
				if !lines.Scan() || !strings.HasPrefix(lines.Text(), "{") {
					t.Errorf("the first line is %q", lines.Text())
				}
				pid := cmd.Process.Pid
				if group {
					pid = -pid
				}
				if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
					t.Error(err)
				}
				for lines.Scan() {
				}
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
					t.Errorf("the status is %v (%v), want 130\n%s", cmd.ProcessState, err, log.String())
				}
			})
		}
	}
}

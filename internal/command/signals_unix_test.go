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

// TestIgnoredSignals: a command that was started with SIGHUP and SIGINT ignored, as by nohup and in the background of a script,
// goes on after both, and so do its processes. Then SIGTERM ends it.
func TestIgnoredSignals(t *testing.T) {
	nexar := copiedProgram(t, "nexar")
	const program = "kill -HUP $$; kill -INT $$; echo ready; exec sleep 100"
	for name, test := range map[string]struct {
		args  []string
		ready string // the beginning of a line of output
	}{
		"run":     {[]string{"run", "-n", "2", "--", "sh", "-c", program}, "[1] ready"},
		"elastic": {[]string{"run", "-n", "2", "--elastic", "--", "sh", "-c", program}, "[1] ready"},
		"bench":   {[]string{"bench", "-n", "2", "--json", "-", "--iters", "5000"}, "{"},
		"seed":    {[]string{"seed", "--world", "2", "--listen", "127.0.0.1:0"}, "seed for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `trap "" HUP INT; exec "$0" "$@"`, nexar}, test.args...)...)
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
			for lines.Scan() && !strings.HasPrefix(lines.Text(), test.ready) {
			}
			for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
				if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
					t.Errorf("%v: %v", sig, err)
				}
			}
			for lines.Scan() {
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
				t.Errorf("the status is %v (%v), want 143\n%s", cmd.ProcessState, err, log.String())
			}
		})
	}
}

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

// signalled starts a program in a process group of its own. After the first line of output that begins with ready, it sends signals, to
// the group or to the process alone, and checks the status.
func signalled(t *testing.T, ready string, group bool, signals []syscall.Signal, want int, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
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
	isReady := false
	lines := bufio.NewScanner(out)
	for !isReady && lines.Scan() {
		isReady = strings.HasPrefix(lines.Text(), ready)
	}
	if !isReady {
		t.Errorf("no line of output begins with %q", ready)
	}
	pid := cmd.Process.Pid
	if group {
		pid = -pid
	}
	for _, sig := range signals {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
	for lines.Scan() {
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != want {
		t.Errorf("the status is %v (%v), want %d\n%s", cmd.ProcessState, err, want, log.String())
	}
}

// TestIgnoredSignals: a command that was started with SIGHUP and SIGINT ignored, as by nohup and in the background of a script,
// goes on after both, and so do its processes. Then SIGTERM ends it.
func TestIgnoredSignals(t *testing.T) {
	nexar := copiedProgram(t, "nexar")
	const program = "kill -HUP $$; kill -INT $$; echo ready; exec sleep 100"
	for name, test := range map[string]struct {
		args  []string
		ready string
	}{
		"run":     {[]string{"run", "-n", "2", "--", "sh", "-c", program}, "[1] ready"},
		"elastic": {[]string{"run", "-n", "2", "--elastic", "--", "sh", "-c", program}, "[1] ready"},
		"bench":   {[]string{"bench", "-n", "2", "--json", "-", "--iters", "5000"}, "{"},
		"seed":    {[]string{"seed", "--world", "2", "--listen", "127.0.0.1:0"}, "seed for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"sh", "-c", `trap "" HUP INT; exec "$0" "$@"`, nexar}, test.args...)
			signalled(t, test.ready, true, []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM}, 143, args...)
		})
	}
}

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
				args := append([]string{nexar, "bench", "-n", "2", "--json", "-"}, args...)
				signalled(t, "{", group, []syscall.Signal{syscall.SIGINT}, 130, args...)
			})
		}
	}
}

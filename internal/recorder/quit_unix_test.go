//go:build unix

package recorder

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable makes this test program send SIGQUIT to itself.
const childVariable = "RECORD_TEST_QUIT"

// A process that receives SIGQUIT dumps and ends, even if the dump hangs. It shows the stacks of
// goroutines before the dump, and only if they are wanted.
func TestOnQuit(t *testing.T) {
	if how := os.Getenv(childVariable); how != "" {
		quitSelf(how)
	}
	for _, how := range []string{"dump", "stacks", "hang"} {
		c := exec.Command(os.Args[0], "-test.run=^TestOnQuit$")
		c.Env = append(os.Environ(), childVariable+"="+how)
		out, err := c.CombinedOutput()
		text := string(out)
		if status := c.ProcessState.ExitCode(); status != quitStatus {
			t.Errorf("%s: the process ended with %v, want status %d; it printed\n%s", how, err, quitStatus, text)
		}
		stack, dump := strings.Index(text, "goroutine "), strings.Index(text, "the first dump\n")
		if (dump >= 0) != (how != "hang") || !strings.Contains(text, "the second dump\n") {
			t.Errorf("%s: a dump is missing in\n%s", how, text)
		}
		if (stack >= 0) != (how == "stacks") || stack > dump {
			t.Errorf("%s: stacks at %d, dump at %d in\n%s", how, stack, dump, text)
		}
		if lines := strings.Count(text, "\n"); how != "stacks" && lines > 4 {
			t.Errorf("%s: %d lines, want those of the dumps and one for each:\n%s", how, lines, text)
		}
	}
}

func quitSelf(how string) {
	OnQuit(how == "stacks", func() {
		if how == "hang" {
			select {}
		}
		fmt.Fprintln(os.Stderr, "the first dump")
	})
	OnQuit(false, func() {
		if how == "hang" {
			defer time.Sleep(time.Hour)
		}
		fmt.Fprintln(os.Stderr, "the second dump")
	})
	_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
	time.Sleep(time.Minute)
}

// After stop, no handler is left.
func TestOnQuitStop(t *testing.T) {
	stop := OnQuit(false, func() { t.Error("dump without a signal") })
	stop()
	stop()
}

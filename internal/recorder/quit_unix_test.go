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

// A process that receives SIGQUIT dumps, then prints its goroutines and ends, even if the
// dump hangs.
func TestOnQuit(t *testing.T) {
	if how := os.Getenv(childVariable); how != "" {
		quitSelf(how)
	}
	for how, want := range map[string]string{"dump": "the first dump\n", "hang": ""} {
		c := exec.Command(os.Args[0], "-test.run=^TestOnQuit$")
		c.Env = append(os.Environ(), childVariable+"="+how, "GOTRACEBACK=all")
		out, err := c.CombinedOutput()
		text := string(out)
		if err == nil || !strings.Contains(text, "SIGQUIT: quit") || !strings.Contains(text, "goroutine ") {
			t.Errorf("%s: the process ended with %v, and showed\n%s", how, err, text)
		}
		if !strings.Contains(text, want) || how == "dump" && !strings.Contains(text, "the second dump\n") {
			t.Errorf("%s: no dump in\n%s", how, text)
		}
		if i := strings.Index(text, "SIGQUIT: quit"); i < strings.Index(text, want) {
			t.Errorf("%s: the dump comes late in\n%s", how, text)
		}
	}
}

func quitSelf(how string) {
	OnQuit(func() {
		if how == "hang" {
			select {}
		}
		fmt.Fprintln(os.Stderr, "the first dump")
	})
	OnQuit(func() { fmt.Fprintln(os.Stderr, "the second dump") })
	_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
	time.Sleep(time.Minute)
}

// After stop, no handler is left.
func TestOnQuitStop(t *testing.T) {
	stop := OnQuit(func() { t.Error("dump without a signal") })
	stop()
	stop()
}

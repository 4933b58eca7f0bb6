//go:build unix

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A scriptRecorder is a scriptTest that keeps the log and whether the script failed.
type scriptRecorder struct {
	scriptTest
	log    strings.Builder
	failed bool
}

func (r *scriptRecorder) Run(_ string, f func(t testscript.T)) { f(r) }
func (r *scriptRecorder) Log(args ...any)                      { fmt.Fprintln(&r.log, args...) }
func (r *scriptRecorder) Fatal(args ...any)                    { r.Log(args...); r.FailNow() }

func (r *scriptRecorder) FailNow() {
	r.failed = true
	runtime.Goexit()
}

// TestScriptTimeout: a script with commands that hang, in the foreground or background, fails in
// time and prints their goroutines.
func TestScriptTimeout(t *testing.T) {
	for name, script := range map[string]string{
		"foreground": "exec nexar seed --listen 127.0.0.1:0 --world 1\n",
		"background": "exec nexar seed --listen 127.0.0.1:0 --world 1 &seed&\nwait seed\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "hangs.txtar")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			var r *scriptRecorder
			// A command has a twentieth of the time to print its goroutines, which may not suffice on a loaded machine.
			for _, timeout := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute} {
				r = &scriptRecorder{scriptTest: scriptTest{t}}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					testscript.RunT(r, scriptParams(t, file, timeout))
				}()
				select {
				case <-ended:
				case <-time.After(timeout + time.Minute):
					t.Fatal("the script goes on after its time")
				}
				if log := r.log.String(); r.failed && strings.Contains(log, "SIGQUIT") && strings.Contains(log, "goroutine 1 ") {
					return
				}
			}
			t.Errorf("the script failed: %v, with this log, want the goroutines of the seed:\n%s", r.failed, &r.log)
		})
	}
}

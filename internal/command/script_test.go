//race:none its tests start child processes, which the detector does not see

package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/shm"
)

// TestMain makes the commands that the scripts run: nexar itself, worker, the program that it starts, and nexar-more, nexar
// with the transport more, which cannot be used if the variable MORE is "broken".
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"nexar": func() { Main(Hardware{}) }, "worker": worker,
		"nexar-more": func() {
			more := func() (transport.Factory, error) {
				return transport.Factory{Name: "more", Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
					if os.Getenv("MORE") == "broken" {
						return nil, errors.New("it is broken")
					}
					t, err := shm.New(shm.Config{Cluster: env.Cluster, Node: cmp.Or(env.Node, rand.Text())})
					return renamed{t}, err
				}}, nil
			}
			Main(Hardware{Command: "nexar-more", Transports: map[string]func() (transport.Factory, error){"more": more}})
		},
	})
}

// renamed is shared memory with the name more.
type renamed struct{ transport.Transport }

func (renamed) Name() string { return "more" }

func (r renamed) Capabilities() transport.Capabilities { return transport.CapabilitiesOf(r.Transport) }

func TestScripts(t *testing.T) { runScripts(t, "script") }

// scriptTimeout is the time that a script has. Then its commands get a SIGQUIT, which
// prints their goroutines, and the script fails. The longest script takes seconds.
const scriptTimeout = 2 * time.Minute

// runScripts runs the scripts of a directory. Scripts for certain systems have directories
// of their own.
func runScripts(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/%s: no scripts (%v)", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			testscript.RunT(scriptTest{t}, scriptParams(t, file, scriptTimeout))
		})
	}
}

// scriptParams are the parameters of a script that begins now.
func scriptParams(t *testing.T, file string, timeout time.Duration) testscript.Params {
	return testscript.Params{
		Files:    []string{file},
		Deadline: time.Now().Add(timeout),
		Setup: func(e *testscript.Env) error {
			// A test binary built with -race otherwise takes a second to end.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"waitfor": waitFor,
			"freeport": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: freeport VARIABLE")
				}
				_, port, err := net.SplitHostPort(testhost.FreePort(t))
				ts.Check(err)
				ts.Setenv(args[0], port)
			},
			"status": status,
			"gone":   gone,
			"shows":  shows,
			"resize": resize,
			"json":   isJSON,
		},
	}
}

// A scriptTest runs a script as the test itself, not as a test below it.
type scriptTest struct{ *testing.T }

func (scriptTest) Parallel()                              {}
func (scriptTest) Verbose() bool                          { return testing.Verbose() }
func (s scriptTest) Run(_ string, f func(t testscript.T)) { f(s) }

// patienceForScripts limits the waits of scripts for events that are normally immediate.
const patienceForScripts = time.Minute

// waitFor waits until files exist: "waitfor FILE...".
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: waitfor FILE...")
	}
	end := time.Now().Add(patienceForScripts)
	for _, name := range args {
		for {
			if _, err := os.Stat(ts.MkAbs(name)); err == nil {
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("%s does not exist after %v", name, patienceForScripts)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// isJSON checks that files are JSON: "json FILE...".
func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: json FILE...")
	}
	for _, name := range args {
		var value any
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(name)), &value))
	}
}

// resize truncates a file: "resize FILE BYTES".
func resize(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: resize FILE BYTES")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// status runs a command that must exit with a status: "status 3 nexar run …".
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status NUMBER COMMAND [ARGUMENT...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	want, bad := strconv.Atoi(args[0])
	ts.Check(bad)
	if got := statusOf(err); got != want {
		ts.Fatalf("got exit status %d (%v), want %d", got, err, want)
	}
}

// statusOf returns the exit status for an error of Exec.
func statusOf(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	return -1
}

// shows runs a command until it succeeds and its standard output matches: "shows
// REGEXP COMMAND [ARGUMENT...]".
func shows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: shows REGEXP COMMAND [ARGUMENT...]")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(patienceForScripts); ; time.Sleep(10 * time.Millisecond) {
		if err := ts.Exec(args[1], args[2:]...); err == nil && want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("it does not show %q after %v", args[0], patienceForScripts)
		}
	}
}

// gone waits until the process with its ID in a file has ended:
// "gone FILE...".
func gone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: gone FILE...")
	}
	end := time.Now().Add(patienceForScripts)
	for _, name := range args {
		pid, err := strconv.Atoi(ts.ReadFile(name))
		ts.Check(err)
		for running(pid) {
			if time.Now().After(end) {
				ts.Fatalf("process %d (%s) still runs after %v", pid, name, patienceForScripts)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// A run is a call of Run with its output and result.
type run struct {
	out, err bytes.Buffer
	said     []string
	failed   error
}

func (r *run) do(cfg Config, roles ...string) {
	for i, role := range roles {
		cfg.Children = append(cfg.Children, cast(i, role))
	}
	if cfg.Stdout == nil {
		cfg.Stdout = &r.out
	}
	if cfg.Stderr == nil {
		cfg.Stderr = &r.err
	}
	cfg.Title = "test"
	r.failed = Run(cfg)
	text := r.err.String()
	if w, ok := cfg.Stderr.(*watcher); ok {
		text = w.all
	}
	for line := range strings.Lines(text) {
		if text, ok := strings.CutPrefix(line, "test: "); ok {
			r.said = append(r.said, strings.TrimSuffix(text, "\n"))
		}
	}
}

// failure is the *Failure that the run ended with.
func (r *run) failure(t *testing.T) *Failure {
	t.Helper()
	f, ok := errors.AsType[*Failure](r.failed)
	if !ok {
		t.Fatalf("Run: got error %v, want a *Failure", r.failed)
	}
	return f
}

func TestOutputIsPrefixedByLine(t *testing.T) {
	var r run
	r.do(Config{}, "hello", "hello", "hello")
	if r.failed != nil {
		t.Fatal(r.failed)
	}
	for i := range 3 {
		if want := fmt.Sprintf("[%d] hello from %d\n", i, i); !strings.Contains(r.out.String(), want) {
			t.Errorf("standard output is %q, has no %q", r.out.String(), want)
		}
		if want := fmt.Sprintf("[%d] no newline from %d\n", i, i); !strings.Contains(r.err.String(), want) {
			t.Errorf("standard error is %q, has no %q", r.err.String(), want)
		}
	}
}

// TestLinesDoNotInterleave: every line of the output has the prefix of one process, and text of this process alone. A line of a process that
// pauses within it may have several parts, each in a line of its own.
func TestLinesDoNotInterleave(t *testing.T) {
	var r run
	r.do(Config{}, "flood", "flood", "flood", "flood")
	var got [4]strings.Builder
	for line := range strings.Lines(r.out.String()) {
		var rank int
		if _, err := fmt.Sscanf(line, "[%d] ", &rank); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		got[rank].WriteString(strings.TrimSuffix(line[len("[0] "):], "\n"))
	}
	for rank := range got {
		var want strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&want, "%d %d %s", rank, i, strings.Repeat("x", i%300))
		}
		if got[rank].String() != want.String() {
			t.Errorf("rank %d has printed %d bytes without line breaks, want %d, and equal ones", rank, got[rank].Len(), want.Len())
		}
	}
}

func TestFirstFailureIsReported(t *testing.T) {
	tests := []struct {
		roles  []string
		text   string
		code   int
		forAll bool
	}{
		{[]string{"hello", "status3"}, "rank 1 (pid %d) exited with status 3", 3, true},
		{[]string{"sleep", "status3", "sleep"}, "rank 1 (pid %d) exited with status 3", 3, true},
		{[]string{"sleep", "sleep", "suicide"}, "rank 2 (pid %d) was killed by signal 9 (killed)", 137, false},
		{[]string{"status3", "suicide", "status3"}, "rank 1 (pid %d) was killed by signal 9 (killed)", 137, false},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.roles, ","), func(t *testing.T) {
			require.Have(t, "signals", test.forAll || signals, "processes are not ended by signals here")
			var r run
			r.do(Config{Grace: 50 * time.Millisecond}, test.roles...)
			f := r.failure(t)
			if want := fmt.Sprintf(test.text, f.Pid); f.Error() != want {
				t.Errorf("got error %q, want %q", f, want)
			}
			if f.Code() != test.code {
				t.Errorf("got code %d, want %d", f.Code(), test.code)
			}
			if len(r.said) == 0 || r.said[0] != f.Error() {
				t.Errorf("said %q, want the failure first", r.said)
			}
		})
	}
}

// With Survives the other children go on after a failure. Run returns it only if no child
// exits with status 0.
func TestOthersSurvive(t *testing.T) {
	for _, test := range []struct {
		roles    []string
		survives bool
		failed   int // -1: none
		said     string
	}{
		{[]string{"status3", "await"}, true, -1, "exited with status 3; going on: rank 1"},
		{[]string{"status3", "await", "status3"}, true, -1, "exited with status 3; going on: rank 1"},
		{[]string{"status3", "status3"}, true, 0, "exited with status 3"},
		{[]string{"status3", "sleep"}, false, 0, "rank 0"},
	} {
		t.Run(strings.Join(test.roles, ","), func(t *testing.T) {
			// Rank 1 ends after the log line that names it, however long that takes. The
			// other ranks have a second to end before that line.
			file := filepath.Join(t.TempDir(), "end")
			t.Setenv("LAUNCH_TEST_FILE", file)
			logged := &watcher{want: "going on: ", n: 1, seen: func() { os.WriteFile(file, nil, 0o600) }}
			var r run
			r.do(Config{
				Grace: 50 * time.Millisecond, Stderr: logged, settle: time.Second, Survives: func() bool { return test.survives },
			}, test.roles...)
			if test.failed < 0 && r.failed != nil {
				t.Errorf("got %v, although one has ended well", r.failed)
			}
			if test.failed >= 0 {
				r.failure(t)
			}
			if said := strings.Join(r.said, "\n"); !strings.Contains(said, test.said) {
				t.Errorf("said %q, want %q", said, test.said)
			}
			// A child that ends at the same time does not go on.
			for _, line := range r.said {
				if _, on, ok := strings.Cut(line, "going on: "); ok && on != "rank 1" {
					t.Errorf("said %q, though rank 1 alone goes on", line)
				}
			}
		})
	}
}

func TestGraceEndsInAKill(t *testing.T) {
	var r run
	r.do(Config{Grace: 300 * time.Millisecond}, "stubborn", "status3")
	if f := r.failure(t); f.Child != 1 {
		t.Errorf("got failure %v, want that of rank 1", f)
	}
	if len(r.said) != 3 || !strings.HasPrefix(r.said[1], "rank 0 still running 300ms after") ||
		!strings.HasPrefix(r.said[2], "rank 0 still running: killing") {
		t.Errorf("said %q, want a failure, a request and a kill", r.said)
	}
}

// A watcher is a Writer that lets a test act on the output.
type watcher struct {
	mu   sync.Mutex
	all  string
	want string
	n    int
	seen func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all += string(p)
	if w.seen != nil && strings.Count(w.all, w.want) == w.n {
		w.seen()
		w.seen = nil
	}
	return len(p), nil
}

func TestSignalsAreForwarded(t *testing.T) {
	in := make(chan os.Signal, 1)
	w := &watcher{want: "ready", n: 3, seen: func() { in <- os.Interrupt }}
	var r run
	r.do(Config{Stdout: w, Signals: in}, "polite", "polite", "polite")
	if r.failed != nil {
		t.Errorf("got error %v, want none, since all ended with status 0", r.failed)
	}
	if n := strings.Count(w.all, "got interrupt\n"); n != 3 {
		t.Errorf("output is %q, want each child to get the signal", w.all)
	}
}

func TestThirdRequestKills(t *testing.T) {
	in := make(chan os.Signal, 3)
	w := &watcher{want: "ready", n: 2, seen: func() {
		for range 3 {
			in <- os.Interrupt
		}
	}}
	var r run
	r.do(Config{Stdout: w, Signals: in, Grace: time.Hour}, "stubborn", "stubborn")
	if signals {
		if f := r.failure(t); f.Signal != int(syscall.SIGKILL) {
			t.Errorf("got failure %v, want a kill", f)
		}
	}
}

func TestStdinGoesToFirstChild(t *testing.T) {
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	io.WriteString(feed, "one\ntwo\n")
	feed.Close()
	var r run
	r.do(Config{Stdin: in}, "cat", "cat")
	// Lines of different children come in any order.
	for prefix, want := range map[string]string{"[0] ": "[0] read one\n[0] read two\n[0] end\n", "[1] ": "[1] end\n"} {
		got := ""
		for line := range strings.Lines(r.out.String()) {
			if strings.HasPrefix(line, prefix) {
				got += line
			}
		}
		if got != want {
			t.Errorf("output is %q, of which %q are %q, want %q", r.out.String(), prefix, got, want)
		}
	}
}

func TestGrandchildrenDoNotOutliveRun(t *testing.T) {
	var r run
	began := time.Now()
	r.do(Config{}, "parent")
	if r.failed != nil {
		t.Fatal(r.failed)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("Run took %v: it waited for the grandchild", took)
	}
	var pid int
	if _, err := fmt.Sscanf(r.out.String(), "[0] grandchild %d\n", &pid); err != nil {
		t.Fatalf("output %q: %v", r.out.String(), err)
	}
	for alive(pid) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("process %d still runs", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestHarmfulEndIsAFailure(t *testing.T) {
	oops := errors.New("ended too early")
	for _, asked := range []int{1, 2} { // at once, or when asked again
		var r run
		failed := false
		r.do(Config{
			Grace: 50 * time.Millisecond,
			ExitError: func(i int) error {
				if asked--; i == 1 && asked == 0 {
					return oops
				}
				return nil
			},
			OnFailure: func() { failed = true },
		}, "sleep", "hello")
		f := r.failure(t)
		if f.Child != 1 || f.Code() != 1 || !errors.Is(f, oops) {
			t.Errorf("got failure %v with code %d, want that of rank 1 with code 1", f, f.Code())
		}
		if !failed {
			t.Error("Failed was not called")
		}
	}
}

func TestMissingProgram(t *testing.T) {
	var r run
	cfg := Config{Children: []Child{cast(0, "sleep"), {Name: func() string { return "rank 1" }, Path: "/no/such/program", Args: []string{"program"}}}}
	r.do(cfg)
	e, ok := errors.AsType[*StartError](r.failed)
	if !ok || e.Code() != 127 {
		t.Fatalf("got error %v, want a *StartError with code 127", r.failed)
	}
	if _, err := LookPath("no-such-program-anywhere"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("LookPath: got error %v, want %v", err, exec.ErrNotFound)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLostOutputEndsAll(t *testing.T) {
	var r run
	r.do(Config{Stdout: brokenWriter{}, Grace: 10 * time.Second}, "polite", "sleep")
	if f := r.failure(t); f.Child != -1 || !errors.Is(f, io.ErrClosedPipe) || !strings.Contains(f.Error(), io.ErrClosedPipe.Error()) {
		t.Errorf("got failure %v, want that of the output with its reason", f)
	}
}

// TestReminder: Run names the children that go on although the others have succeeded, at growing intervals.
func TestReminder(t *testing.T) {
	var log bytes.Buffer
	s := &supervisor{cfg: Config{Title: "run"}, out: newPrinter(io.Discard, &log)}
	for i := range 4 {
		s.cfg.Children = append(s.cfg.Children, Child{Name: func() string { return "rank " + strconv.Itoa(i) }})
		s.running = append(s.running, &child{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}})
	}
	for range 100 {
		s.remind(time.Now().Add(time.Hour)) // All of them run.
	}
	began := time.Now()
	for i := range 3 {
		s.running[i].ended = true
		s.succeeded = append(s.succeeded, exit{child: i})
	}
	s.reminded, s.pause = began, remindAfter
	var at []int
	for second := range 100 {
		before := s.pause
		if s.remind(began.Add(time.Duration(second) * time.Second)); s.pause != before {
			at = append(at, second)
		}
	}
	s.cfg.Survives = func() bool { return true }
	s.remind(began.Add(time.Hour))
	s.out.close()
	if want := []int{10, 30, 70}; !slices.Equal(at, want) {
		t.Errorf("reminders after %v seconds, want %v", at, want)
	}
	if want := strings.Repeat("run: waiting for rank 3: all others have exited with status 0\n", 3); log.String() != want {
		t.Errorf("got the reminders\n%s, want\n%s", log.String(), want)
	}
}

package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/require"
)

// ceiling is far above the time that anything here takes.
const ceiling = time.Minute

// marked returns the running processes that have a variable in their environment, and so descend from a process that was started
// with it.
func marked(pair string) (found []process) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// The environment of an ended process is empty.
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && bytes.Contains(env, []byte(pair+"\x00")) {
			found = append(found, process{pid})
		}
	}
	return found
}

// script returns a Child that runs a shell script, with the script as its $0, and the variable
// that marks its descendants.
func script(t *testing.T, text string) (c Child, mark string) {
	t.Helper()
	setsid, err := exec.LookPath("setsid")
	require.Have(t, "setsid", err == nil && setsid != "", "there is no program setsid here")
	dir := t.TempDir()
	path := filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mark = "LAUNCH_TEST_MARK=" + dir
	return Child{
		Name: func() string { return "rank 0" }, Path: "/bin/sh", Args: []string{"sh", path},
		Env: append(os.Environ(), mark, "DIR="+dir),
	}, mark
}

// until waits for a file that the script is to make.
const until = `until test -f "$DIR/ready"; do sleep 0.01; done; `

// No descendant of a child outlives Run.
func TestNoDescendantOutlivesRun(t *testing.T) {
	t.Run("alone", func(t *testing.T) { testNoDescendantOutlivesRun(t, false) })
	t.Run("beside another child", func(t *testing.T) {
		other := exec.Command("sleep", "77")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = other.Process.Kill()
			_ = other.Wait()
		}()
		testNoDescendantOutlivesRun(t, true)
		if left := directChildren(); !slices.Equal(left, []int{other.Process.Pid}) {
			t.Errorf("the children are %v after Run, want %d alone: ended orphans must be waited for", left, other.Process.Pid)
		}
	})
}

// testNoDescendantOutlivesRun leaves out the tests that wait for output if brief is set.
func testNoDescendantOutlivesRun(t *testing.T, brief bool) {
	for _, test := range []struct{ name, text, said string }{
		{"background", `sleep 77 >/dev/null 2>&1 &`, ""},
		{"session", `setsid sleep 77 >/dev/null 2>&1 &`, ""},
		{"session that holds the output", `setsid sleep 77 & echo started`, ""},
		{"session that keeps writing", `setsid sh -c 'for i in $(seq 700); do echo on; sleep 0.1; done' &`, ""},
		{"double fork", `(setsid sh -c '(setsid sh -c "sleep 77 & sleep 77" &) ; sleep 77' &) >/dev/null 2>&1`, ""},
		{"ignores SIGTERM", `setsid sh -c 'trap "" TERM; >"$DIR/ready"; sleep 77' >/dev/null 2>&1 & ` + until, "left by the program, still running 200ms after SIGTERM: killing"},
		{"ignores SIGTERM in the group", `sh -c 'trap "" TERM; >"$DIR/ready"; sleep 77' >/dev/null 2>&1 & ` + until, ""},
		{"stopped", `setsid sh -c '>"$DIR/ready"; kill -STOP $$; sleep 77' >/dev/null 2>&1 & ` + until, ""},
		{
			"forks without end", `setsid sh -c 'trap "" TERM; >"$DIR/ready"; for i in $(seq 5000); do sleep 77 & done; wait' >/dev/null 2>&1 & ` + until,
			"left by the program, still running 200ms after SIGTERM: killing",
		},
		{
			// Each of these processes lives until it has started the next one.
			"hops from session to session", `if test -z "$1"; then setsid sh "$0" 1 >/dev/null 2>&1 & ` + until + ` exit; fi
trap "" TERM; >"$DIR/ready"; test "$1" -gt 5000 || setsid sh "$0" $(($1 + 1)) &`, "",
		},
	} {
		if brief && strings.HasPrefix(test.name, "session that") {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			c, mark := script(t, test.text)
			var r run
			began := time.Now()
			r.do(Config{Children: []Child{c}, Grace: 200 * time.Millisecond})
			if left := marked(mark); len(left) > 0 {
				t.Errorf("%s outlive Run: %+v; this process is %d, with the children %v", describe(left), left, os.Getpid(), directChildren())
			}
			for _, p := range marked(mark) {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
			if r.failed != nil {
				t.Errorf("Run: %v, want no error, since the child exited with status 0", r.failed)
			}
			if said := strings.Join(r.said, "\n"); !strings.Contains(said, test.said) {
				t.Errorf("said %q, want %q", said, test.said)
			}
			if took := time.Since(began); took > ceiling {
				t.Errorf("Run took %v", took)
			}
		})
	}
}

// Orphans are asked to end before they are killed, and have the grace time.
func TestOrphansEndInGoodOrder(t *testing.T) {
	c, mark := script(t, `setsid sh -c 'trap ">\"$DIR/ended\"; exit" TERM; >"$DIR/ready"; while :; do sleep 0.01; done' >/dev/null 2>&1 & `+until)
	var r run
	r.do(Config{Children: []Child{c}, Grace: ceiling})
	if _, err := os.Stat(strings.TrimPrefix(mark, "LAUNCH_TEST_MARK=") + "/ended"); err != nil {
		t.Errorf("the orphan has not handled SIGTERM: %v", err)
	}
	if len(r.said) > 0 {
		t.Errorf("said %q, want nothing", r.said)
	}
}

// The third request to end also kills orphans that have time left, and so does
// the end of the guard.
func TestOrphansAreKilledOnRequest(t *testing.T) {
	for _, abandoned := range []bool{false, true} {
		c, mark := script(t, `setsid sh -c 'trap "" TERM INT; >"$DIR/ready"; sleep 77' >/dev/null 2>&1 & `+until)
		signals, cut := make(chan os.Signal, requestsMax), make(chan struct{})
		if abandoned {
			close(cut)
		}
		for range requestsMax {
			signals <- os.Interrupt
		}
		s := &sweep{orphans: adoptOrphans(), grace: time.Hour, say: func(text string) { t.Log(text) }}
		cmd := exec.Command(c.Path, c.Args[1:]...)
		cmd.Env = c.Env
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if abandoned {
			s.abandoned = cut
		} else {
			s.signals = signals
		}
		s.run(false)
		s.orphans.close()
		if left := marked(mark); len(left) > 0 {
			t.Errorf("%s is left", describe(left))
		}
	}
}

// An abandoned Run kills the children as well.
func TestAbandonedRunKillsAll(t *testing.T) {
	c, mark := script(t, `setsid sh -c 'trap "" TERM; >"$DIR/ready"; sleep 77' >/dev/null 2>&1 & `+until+`echo started; sleep 77`)
	cut := make(chan struct{})
	w := &watcher{want: "started", n: 1, seen: func() { close(cut) }}
	var r run
	r.do(Config{Children: []Child{c}, Stdout: w, Abandoned: cut, Grace: time.Hour})
	if f := r.failure(t); f.Signal != int(syscall.SIGKILL) {
		t.Errorf("Run: %v, want a child that was killed", f)
	}
	if left := marked(mark); len(left) > 0 {
		t.Errorf("%s is left", describe(left))
	}
}

// TestStoppedChild: a stopped child does not act on a request to end. Run says so after the grace time.
func TestStoppedChild(t *testing.T) {
	c, mark := script(t, `echo started; kill -STOP $$`)
	signals := make(chan os.Signal, requestsMax)
	request := func() { signals <- syscall.SIGTERM }
	out := &watcher{want: "started", n: 1, seen: func() {
		for !slices.ContainsFunc(marked(mark), process.stopped) {
			time.Sleep(time.Millisecond)
		}
		request()
	}}
	said := &watcher{want: "still running", n: 1, seen: func() { request(); request() }}
	var r run
	r.do(Config{Children: []Child{c}, Stdout: out, Stderr: said, Signals: signals, Grace: time.Millisecond})
	f := r.failure(t)
	want := fmt.Sprintf("rank 0 still running after request 1 to end; request 3 kills; stopped: rank 0 (pid %d)", f.Pid)
	if f.Signal != int(syscall.SIGKILL) || r.said[0] != want {
		t.Errorf("Run: %v after %q, want a child that was killed after %q", f, r.said, want)
	}
}

// Children that this process had before Run, and their descendants, go on.
func TestOtherChildrenGoOn(t *testing.T) {
	before := exec.Command("/bin/sh", "-c", "sleep 77 & wait")
	before.Env = append(os.Environ(), "LAUNCH_TEST_MARK=before-"+t.Name())
	before.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-before.Process.Pid, syscall.SIGKILL)
		_ = before.Wait()
	}()
	for end := time.Now().Add(ceiling); len(marked("LAUNCH_TEST_MARK=before-"+t.Name())) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the process did not start")
		}
	}
	c, mark := script(t, `setsid sleep 77 >/dev/null 2>&1 &`)
	var r run
	r.do(Config{Children: []Child{c}})
	if left := marked(mark); len(left) > 0 {
		t.Errorf("%s outlive Run", describe(left))
	}
	if left := marked("LAUNCH_TEST_MARK=before-" + t.Name()); len(left) != 2 {
		t.Errorf("%d processes of before go on, want 2", len(left))
	}
}

// A process that a child from before leaves behind in the process group of that child is ended alone.
func TestGroupOfOtherChildrenGoesOn(t *testing.T) {
	dir := t.TempDir()
	before := exec.Command("/bin/sh", "-c", `sh -c "sleep 77 &"; >"$DIR/left"; sleep 77; :`)
	before.Env = append(os.Environ(), "DIR="+dir)
	before.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	adopting := adoptOrphans() // so that the process becomes a child of this one
	defer adopting.close()
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-before.Process.Pid, syscall.SIGKILL)
		_ = before.Wait()
		adopting.kill() // its own child
	}()
	for end := time.Now().Add(ceiling); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(dir + "/left"); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the process did not start")
		}
	}
	o := &orphans{kept: []int{before.Process.Pid}, terminated: make(map[int]bool)}
	if running := o.terminate(nil); len(running) != 1 {
		t.Errorf("the orphans are %v, want one", running)
	}
	if left := o.kill(); len(left) > 0 {
		t.Errorf("%s is left", describe(left))
	}
	if err := syscall.Kill(before.Process.Pid, 0); err != nil {
		t.Errorf("the child from before: %v, want it to go on", err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, before.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil || info.Signo != 0 {
		t.Errorf("the child from before has ended (%v)", err)
	}
}

// TestOrphansGetOneSIGTERM: the members of a group that was sent SIGTERM get no second one when they become direct children.
func TestOrphansGetOneSIGTERM(t *testing.T) {
	member := `trap "echo >>\"$DIR/terms\"" TERM; >"$DIR/ready"; for i in $(seq 50); do sleep 0.01; done`
	c, mark := script(t, `setsid sh -c 'trap exit TERM; (`+member+`) & wait' >/dev/null 2>&1 & `+until)
	var r run
	r.do(Config{Children: []Child{c}, Grace: ceiling})
	text, err := os.ReadFile(strings.TrimPrefix(mark, "LAUNCH_TEST_MARK=") + "/terms")
	if err != nil || len(text) != 1 {
		t.Errorf("the orphan got SIGTERM %d times (%v), want once", len(text), err)
	}
}

// TestChildrenByParent compares both sources of the children.
func TestChildrenByParent(t *testing.T) {
	child := exec.Command("sleep", "77")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	if got, want := childrenByParent(), directChildren(); !slices.Equal(got, want) || !slices.Contains(got, child.Process.Pid) {
		t.Errorf("got %v, want %v with %d", got, want, child.Process.Pid)
	}
}

// An orphan that has ended counts until it is waited for, since it may have forked unseen. A child from before counts in no state.
func TestEndedOrphanCounts(t *testing.T) {
	start := func() *exec.Cmd {
		cmd := exec.Command("sleep", "77")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) { // and leaves it as a zombie
		_ = cmd.Process.Kill()
		if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := start()
	o := adoptOrphans()
	defer o.close()
	want := func(pids ...int) {
		t.Helper()
		var got []int
		for _, p := range o.direct() {
			got = append(got, p.pid)
		}
		if !slices.Equal(got, pids) {
			t.Errorf("the orphans are %v, want %v", got, pids)
		}
	}
	want()
	orphan := start()
	want(orphan.Process.Pid)
	kill(orphan)
	want(orphan.Process.Pid)
	kill(before)
	want(orphan.Process.Pid)
	if !o.none() {
		t.Error("none is false after the end of the only orphan")
	}
	want()
	if err := before.Wait(); err == nil {
		t.Error("the child from before exited with status 0, want a signal")
	}
}

// While Run runs, orphans that have ended are waited for, so that they do not
// stay as zombies.
func TestOrphansAreReaped(t *testing.T) {
	c, _ := script(t, `(setsid sh -c 'echo orphan $$' &); read end || true`)
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer feed.Close()
	w := new(watcher)
	done := make(chan error, 1)
	go func() { done <- Run(Config{Children: []Child{c}, Stdin: in, Stdout: w, Stderr: w}) }()
	for end := time.Now().Add(ceiling); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		_, text, ok := strings.Cut(w.all, "orphan ")
		w.mu.Unlock()
		pid, _, whole := strings.Cut(text, "\n")
		if ok && whole {
			if _, err := os.Stat("/proc/" + pid); err != nil {
				break
			}
		}
		if time.Now().After(end) {
			t.Errorf("the orphan is still there: output %q", text)
			break
		}
	}
	feed.Close()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

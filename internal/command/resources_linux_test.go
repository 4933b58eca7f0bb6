package command

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar/internal/command/internal/resources"
	"github.com/nexar-go/nexar/internal/require"
)

// testProgram returns the path of a link to this test program. TestMain runs it as the command of that
// name.
func testProgram(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/" + name
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRanksNeed compares the needs that nexar run and nexar doctor assume with those of ranks that have
// used all connections.
func TestRanksNeed(t *testing.T) {
	nexar, worker := testProgram(t, "nexar"), testProgram(t, "worker")
	const ranks = 5
	for _, transports := range []string{"", "shm", "tcp", "quic"} {
		t.Run("transports="+transports, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), nexar, "run", "--no-prefix", "-n", fmt.Sprint(ranks), worker, "resources")
			run.Env = append(os.Environ(), "NEXAR_TRANSPORTS="+transports, "GORACE=atexit_sleep_ms=0")
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("nexar run: %v\n%s", err, out)
			}
			w := resources.NewWorld(ranks, ranks, transports, "")
			var files, threads, launcher uint64
			for line := range strings.Lines(string(out)) {
				var f, th, l uint64
				if n, _ := fmt.Sscanf(line, "resources %d %d %d", &f, &th, &l); n == 3 {
					files, threads, launcher = max(files, f), max(threads, th), max(launcher, l)
				}
			}
			t.Logf("a rank has %d files and %d threads, nexar run has %d files", files, threads, launcher)
			// The listing counts its own file. Standard streams and files of the C library of the race detector may differ.
			for _, c := range []struct {
				what        string
				got, assume uint64
			}{{"files of a rank", files, w.FilesOfRank()}, {"files of nexar run", launcher, w.FilesOfRun()}} {
				if c.got > c.assume+4 || c.got+6 < c.assume {
					t.Errorf("%s: %d, want %d, as package resources assumes", c.what, c.got, c.assume)
				}
			}
			if threads > resources.ThreadsOfRank() {
				t.Errorf("%d threads of a rank, want at most %d, as package resources assumes", threads, resources.ThreadsOfRank())
			}
		})
	}
}

// TestRanksNeedOnDemand compares the files that nexar run and nexar doctor assume for links on demand with those of
// ranks that call collectives.
func TestRanksNeedOnDemand(t *testing.T) {
	nexar, worker := testProgram(t, "nexar"), testProgram(t, "worker")
	const ranks = 24
	run := exec.CommandContext(t.Context(), nexar, "run", "--no-prefix", "-n", fmt.Sprint(ranks), worker, "resources", "demand")
	run.Env = append(os.Environ(), "NEXAR_TRANSPORTS=tcp", "NEXAR_LINKS=demand", "GORACE=atexit_sleep_ms=0")
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("nexar run: %v\n%s", err, out)
	}
	var files uint64
	for line := range strings.Lines(string(out)) {
		var f, th, l uint64
		if n, _ := fmt.Sscanf(line, "resources %d %d %d", &f, &th, &l); n == 3 {
			files = max(files, f)
		}
	}
	onDemand, eager := resources.NewWorld(ranks, ranks, "tcp", "demand").FilesOfRank(), resources.NewWorld(ranks, ranks, "tcp", "").FilesOfRank()
	t.Logf("a rank has up to %d files; assumed: %d, and %d if it is linked to all", files, onDemand, eager)
	if files == 0 || files > onDemand+4 || files+4 >= eager {
		t.Errorf("%d files of a rank, want at most %d, and less than the %d of links to all ranks", files, onDemand, eager)
	}
}

// TestThreadLimitOfUser lowers RLIMIT_NPROC, which the superuser does not obey.
func TestThreadLimitOfUser(t *testing.T) {
	require.Root(t)
	_, err := exec.LookPath("bash")
	require.Have(t, "bash", err == nil, "the test lowers a limit with ulimit -u")
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	// The user cannot reach the path of the program.
	doctor := exec.CommandContext(t.Context(), "bash", "-c", "ulimit -u 60 && exec -a nexar /proc/self/fd/3 doctor -n 100")
	doctor.ExtraFiles = []*os.File{self}
	doctor.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64199, Gid: 64199}}
	doctor.Dir = "/"
	out, err := doctor.CombinedOutput()
	if want := "fail  processes and threads: 100 ranks, up to "; !strings.Contains(string(out), want) {
		t.Errorf("nexar doctor: %v\n%s\nwant %q", err, out, want)
	}
}

// TestManyLines: a rank that prints much, in lines or without an end of line, needs no more memory of nexar run.
func TestManyLines(t *testing.T) {
	require.NoRace(t, "the detector needs much memory, and there are other tests of output")
	nexar, worker := testProgram(t, "nexar"), testProgram(t, "worker")
	for _, mode := range []string{"lines", "line without end"} {
		run := exec.CommandContext(t.Context(), nexar, "run", "-n", "1", "--http", "0", "--metrics", "0", "--", worker, "print", mode)
		run.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		var status strings.Builder
		run.Stderr = &status
		if err := run.Run(); err != nil {
			t.Fatalf("%s: nexar run: %v\n%s", mode, err, status.String())
		}
		const most = 150 << 10 // KiB, less than a rank prints
		_, peak, _ := strings.Cut(status.String(), "VmHWM:")
		var rss int
		if _, err := fmt.Sscan(peak, &rss); err != nil || rss > most {
			t.Errorf("%s: nexar run has %d KiB (%v), want at most %d\n%s", mode, rss, err, most, status.String())
		}
	}
}

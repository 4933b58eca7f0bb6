//race:none its tests start child processes, which the detector does not see

package examples

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testbuild"
)

// runMax bounds the run of a program, which takes much less.
const runMax = 2 * time.Minute

// programs are the command nexar and the examples.
var programs = testbuild.Set{Build: func(dir string) error {
	// Programs without symbols are linked in half of the time.
	args := []string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator), "../cmd/nexar"}
	for _, name := range []string{"send_recv", "allreduce", "broadcast", "barrier", "elastic", "overlap", "rpc", "seed_worker", "train", "wordcount"} {
		args = append(args, "./"+name)
	}
	return testbuild.Go(args...)
}}

func TestMain(m *testing.M) { os.Exit(programs.Around(m).Run()) }

// program returns the path of an executable of build.
func program(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// lines returns the sorted lines of text.
func lines(text string) []string {
	return slices.Sorted(strings.Lines(text))
}

// times matches the two times in a line.
const times = " +[0-9.]+ ms +[0-9.]+ ms"

func TestExamples(t *testing.T) {
	dir := programs.Dir(t)
	tests := []struct {
		name string
		want []string // the output of all ranks, sorted
		args []string
	}{
		{"send_recv", []string{
			`rank 0 got \[1 1 1 1\] from rank 3`, `rank 1 got \[1 0 0 0\] from rank 0`,
			`rank 2 got \[1 1 0 0\] from rank 1`, `rank 3 got \[1 1 1 0\] from rank 2`,
		}, nil},
		{"allreduce", []string{
			"rank 0 of 4: the mean gradient is 1.5", "rank 1 of 4: the mean gradient is 1.5",
			"rank 2 of 4: the mean gradient is 1.5", "rank 3 of 4: the mean gradient is 1.5",
		}, nil},
		{"broadcast", []string{
			`rank 0 begins with \[.*\]`, `rank 1 begins with \[.*\]`, `rank 2 begins with \[.*\]`, `rank 3 begins with \[.*\]`,
		}, nil},
		{"barrier", []string{
			"rank 0 entered after .*", "rank 1 entered after .*", "rank 2 entered after .*", "rank 3 entered after .*",
		}, nil},
		{"rpc", []string{
			"rank 0 finds greeting/1 at rank 2: hello from rank 1", "rank 1 finds greeting/2 at rank 3: hello from rank 2",
			"rank 2 finds greeting/3 at rank 0: hello from rank 3", "rank 2 has not answered after 100ms",
			"rank 2 says: farewell/0 has no value", "rank 3 finds greeting/0 at rank 1: hello from rank 0",
		}, nil},
		{"wordcount", []string{"and 14", "he 7", "in 6", "jabberwock 3", "the 19"}, nil},
		{"overlap", []string{
			"4 ranks over .*, 3 gradients of 40000 bytes", "all-reduces" + times, "computation" + times, "computation on +processor +elsewhere",
			"overlapping" + times, "saved +-?[0-9]+ % +-?[0-9]+ %", "sequential" + times,
		}, []string{"--layers", "3", "--size", "10000"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), runMax)
			defer cancel()
			args := append([]string{"run", "-n", "4", "--no-prefix", "--", program(dir, test.name)}, test.args...)
			cmd := exec.CommandContext(ctx, program(dir, "nexar"), args...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := lines(string(out))
			if len(got) != len(test.want) {
				t.Fatalf("got %d lines, want %d:\n%s", len(got), len(test.want), out)
			}
			for i, want := range test.want {
				if !regexp.MustCompile("^" + want + "\n$").MatchString(got[i]) {
					t.Errorf("got line %q, want %q", got[i], want)
				}
			}
			if check := checks()[test.name]; check != nil {
				check(t, got)
			}
		})
	}
	t.Run("train", func(t *testing.T) { testTrain(t, dir) })
	t.Run("seed_worker", func(t *testing.T) { testSeedWorker(t, program(dir, "seed_worker")) })
	t.Run("seed_worker usage", func(t *testing.T) { testUsage(t, program(dir, "seed_worker")) })
}

// checks returns further checks of the output of examples.
func checks() map[string]func(t *testing.T, lines []string) {
	return map[string]func(*testing.T, []string){
		"broadcast": func(t *testing.T, lines []string) {
			for _, line := range lines {
				_, got, _ := strings.Cut(line, "with")
				_, want, _ := strings.Cut(lines[0], "with")
				if got != want {
					t.Errorf("got weights %q, want those of rank 0, %q", got, want)
				}
			}
		},
		// No rank leaves before the last enters, 3 × 200 ms after the first.
		"barrier": func(t *testing.T, lines []string) {
			for _, line := range lines {
				var rank, entered, left int
				if _, err := fmt.Sscanf(line, "rank %d entered after %d ms and left after %d ms", &rank, &entered, &left); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				// The clocks start with the difference of a barrier, and the machine may be
				// busy.
				if entered < rank*200 || left < 300 {
					t.Errorf("rank %d entered after %d ms and left after %d ms, want at least %d and about 600", rank, entered, left, rank*200)
				}
			}
		},
	}
}

// testUsage: an unknown mode is an error.
func testUsage(t *testing.T, path string) {
	for _, args := range [][]string{nil, {"leader"}} {
		out, err := exec.Command(path, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "seed") {
			t.Errorf("seed_worker %q: got %q and error %v, want a message and an error", args, out, err)
		}
	}
}

// testSeedWorker starts a seed, and two workers with the variables that it prints.
func testSeedWorker(t *testing.T, path string) {
	ctx, cancel := context.WithTimeout(t.Context(), runMax)
	defer cancel()
	seed := exec.CommandContext(ctx, path, "seed", "-listen", "127.0.0.1:0", "-world", "2")
	seed.Stderr = os.Stderr
	out, err := seed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := seed.Start(); err != nil {
		t.Fatal(err)
	}
	printed := bufio.NewScanner(out)
	env := os.Environ()
	for range 2 { // the token and the address
		if !printed.Scan() {
			t.Fatalf("the seed ends early: %v", seed.Wait())
		}
		env = append(env, printed.Text())
	}

	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			cmd := exec.CommandContext(ctx, path, "worker")
			cmd.Env = append(slices.Clip(env), "NEXAR_LISTEN=127.0.0.1:0")
			out, err := cmd.CombinedOutput()
			if want := regexp.MustCompile(`^rank [01] of 2: the sum of our process IDs is [0-9]+\n$`); err != nil || !want.Match(out) {
				t.Errorf("worker: got %q and error %v, want %q and none", out, err, want)
			}
		})
	}
	var rest []string
	for printed.Scan() {
		rest = append(rest, printed.Text())
	}
	if want := []string{"the world has formed", "all workers have left"}; !slices.Equal(rest, want) {
		t.Errorf("the seed prints %q, want %q", rest, want)
	}
	if err := seed.Wait(); err != nil {
		t.Errorf("seed: %v", err)
	}
	workers.Wait()
}

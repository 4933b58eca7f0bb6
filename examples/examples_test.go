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
)

// runMax is the longest that a program may run: far longer than it does.
const runMax = 2 * time.Minute

// build builds the examples and the command that starts them, and returns the
// directory that they are in.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-o", dir + string(filepath.Separator), "../cmd/nexar"}
	for _, name := range []string{"send_recv", "allreduce", "broadcast", "barrier", "seed_worker"} {
		args = append(args, "./"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return dir
}

// program is the path of what build has built.
func program(dir, name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(dir, name)
}

// lines are the lines of text, in order.
func lines(text string) []string {
	return slices.Sorted(strings.Lines(text))
}

func TestExamples(t *testing.T) {
	dir := build(t)
	tests := []struct {
		name string
		want []string // what each rank prints
	}{
		{"send_recv", []string{
			`rank 0 got \[1 1 1 1\] from rank 3`, `rank 1 got \[1 0 0 0\] from rank 0`,
			`rank 2 got \[1 1 0 0\] from rank 1`, `rank 3 got \[1 1 1 0\] from rank 2`,
		}},
		{"allreduce", []string{
			"rank 0 of 4: the mean gradient is 1.5", "rank 1 of 4: the mean gradient is 1.5",
			"rank 2 of 4: the mean gradient is 1.5", "rank 3 of 4: the mean gradient is 1.5",
		}},
		{"broadcast", []string{
			`rank 0 begins with \[.*\]`, `rank 1 begins with \[.*\]`, `rank 2 begins with \[.*\]`, `rank 3 begins with \[.*\]`,
		}},
		{"barrier", []string{
			"rank 0 came after .*", "rank 1 came after .*", "rank 2 came after .*", "rank 3 came after .*",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), runMax)
			defer cancel()
			cmd := exec.CommandContext(ctx, program(dir, "nexar"), "run", "-n", "4", "--no-prefix", "--", program(dir, test.name))
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
	t.Run("seed_worker", func(t *testing.T) { testSeedWorker(t, program(dir, "seed_worker")) })
	t.Run("seed_worker usage", func(t *testing.T) { testUsage(t, program(dir, "seed_worker")) })
}

// checks are what must hold of the lines of examples besides their form.
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
		// Nobody goes on before the last has come, 3 × 200 ms after the first.
		"barrier": func(t *testing.T, lines []string) {
			for _, line := range lines {
				var rank, came, went int
				if _, err := fmt.Sscanf(line, "rank %d came after %d ms and went on after %d ms", &rank, &came, &went); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				// The clocks begin together but for the time that a
				// barrier takes, and a busy machine.
				if came < rank*200 || went < 300 {
					t.Errorf("rank %d came after %d ms and went on after %d ms, want at least %d and about 600", rank, came, went, rank*200)
				}
			}
		},
	}
}

// testUsage: a mode that does not exist ends with a message.
func testUsage(t *testing.T, path string) {
	for _, args := range [][]string{nil, {"leader"}} {
		out, err := exec.Command(path, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "seed") {
			t.Errorf("seed_worker %q: got %q and error %v, want a message and an error", args, out, err)
		}
	}
}

// testSeedWorker starts a seed, reads what it prints, and starts two workers
// with that.
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
	for range 2 { // the token, and the address
		if !printed.Scan() {
			t.Fatalf("the seed ends early: %v", seed.Wait())
		}
		env = append(env, printed.Text())
	}

	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			cmd := exec.CommandContext(ctx, path, "worker")
			cmd.Env = append(env[:len(env):len(env)], "NEXAR_LISTEN=127.0.0.1:0")
			out, err := cmd.CombinedOutput()
			if want := regexp.MustCompile(`^rank [01] of 2: our process numbers sum up to [0-9]+\n$`); err != nil || !want.Match(out) {
				t.Errorf("worker: got %q and error %v, want %q and none", out, err, want)
			}
		})
	}
	var rest []string
	for printed.Scan() {
		rest = append(rest, printed.Text())
	}
	if want := []string{"the world has formed", "all workers have gone"}; !slices.Equal(rest, want) {
		t.Errorf("the seed prints %q, want %q", rest, want)
	}
	if err := seed.Wait(); err != nil {
		t.Errorf("seed: %v", err)
	}
	workers.Wait()
}

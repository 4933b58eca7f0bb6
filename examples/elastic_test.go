package examples

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestElastic kills one of four ranks, adds one, and lets one leave. The training is as accurate as
// with four ranks.
func TestElastic(t *testing.T) {
	dir := programs.Dir(t)
	ctx, cancel := context.WithTimeout(t.Context(), runMax)
	defer cancel()
	train := []string{program(dir, "elastic"), "--epochs", "12", "--pause", "2ms"}
	cmd := exec.CommandContext(ctx, program(dir, "nexar"), append([]string{"run", "-n", "4", "--no-prefix", "--elastic", "--"}, train...)...)
	cmd.Env = append(os.Environ(), "NEXAR_CLUSTER_TOKEN=") // nexar run creates and prints a token
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tokenFile, seed := invitation(t, stderr)
	joiner := exec.CommandContext(ctx, program(dir, "nexar"), append([]string{"run", "--no-prefix", "--elastic", "--seed", seed, "--"}, train...)...)
	joiner.Env = append(os.Environ(), "NEXAR_CLUSTER_TOKEN=", "NEXAR_CLUSTER_TOKEN_FILE="+tokenFile)
	joiner.Stdout, joiner.Stderr = os.Stderr, os.Stderr
	text := follow(t, out,
		stage{4, 4, func(rank1 *os.Process) error { return rank1.Kill() }},
		stage{3, 3, func(*os.Process) error { return joiner.Start() }},
		stage{4, 3, func(rank1 *os.Process) error { return rank1.Signal(syscall.SIGTERM) }},
		stage{3, 2, func(*os.Process) error { return nil }},
	)
	if err := cmd.Wait(); err != nil {
		t.Errorf("nexar run: %v, want success as some ranks finished", err)
	}
	if err := joiner.Wait(); err != nil {
		t.Errorf("added rank: %v", err)
	}
	m := regexp.MustCompile(`3 ranks have finished: accuracy ([0-9.]+)%`).FindStringSubmatch(text)
	if m == nil || !strings.Contains(text, "has left after step") {
		t.Fatalf("want three ranks that finished and one that left:\n%s", text)
	}
	if accuracy, err := strconv.ParseFloat(m[1], 64); err != nil || accuracy < 93 {
		t.Errorf("accuracy %s%%, want at least 93%%", m[1])
	}
}

// invitation reads the command to add a rank and returns its token file and seed. It copies the rest
// of the output to standard error.
func invitation(t *testing.T, stderr io.Reader) (tokenFile, seed string) {
	t.Helper()
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	m := regexp.MustCompile(`NEXAR_CLUSTER_TOKEN_FILE=(\S+) .*--seed (\S+) `).FindStringSubmatch(line)
	if err != nil || m == nil {
		t.Fatalf("nexar run printed %q (%v), want the command to add a rank", line, err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(os.Stderr, r)
	}()
	t.Cleanup(func() { <-copied })
	return m[1], m[2]
}

// A stage is a world of size ranks. When the output has reported the begin of the given number of them,
// the test calls then with the process of rank 1.
type stage struct {
	size, begin int
	then        func(rank1 *os.Process) error
}

// follow reads output and performs the action of each stage.
func follow(t *testing.T, out io.Reader, stages ...stage) string {
	t.Helper()
	begins := regexp.MustCompile(`rank (\d) of (\d), process (\d+), begins`)
	begun, pid := 0, 0
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		m := begins.FindStringSubmatch(lines.Text())
		if m == nil || len(stages) == 0 || m[2] != strconv.Itoa(stages[0].size) {
			continue
		}
		if m[1] == "1" {
			pid, _ = strconv.Atoi(m[3])
		}
		if begun++; begun < stages[0].begin {
			continue
		}
		p, err := os.FindProcess(pid)
		if err == nil {
			err = stages[0].then(p)
		}
		if err != nil {
			t.Errorf("stage %v: %v", stages[0], err)
		}
		stages, begun = stages[1:], 0
	}
	if len(stages) > 0 {
		t.Errorf("stages not reached: %v", stages)
	}
	return all.String()
}

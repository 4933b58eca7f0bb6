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
	"testing"
)

// TestElastic kills two ranks of four, one after the other. The others learn what
// all would have.
func TestElastic(t *testing.T) {
	dir := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), runMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(dir, "nexar"), "run", "-n", "4", "--no-prefix", "--elastic", "--",
		program(dir, "elastic"), "--epochs", "10", "--pause", "2ms")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := killAsItGoes(t, out, "4", "3")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, although two ranks have finished", err)
	}
	m := regexp.MustCompile(`2 ranks have finished: accuracy ([0-9.]+)%`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("nobody has finished:\n%s", text)
	}
	if accuracy, err := strconv.ParseFloat(m[1], 64); err != nil || accuracy < 93 {
		t.Errorf("the accuracy is %s%%, want 93%% at least", m[1])
	}
}

// killAsItGoes reads output, and kills rank 1 once all ranks have begun in a
// world of each of some sizes.
func killAsItGoes(t *testing.T, out io.Reader, sizes ...string) string {
	t.Helper()
	begins := regexp.MustCompile(`rank (\d) of (\d), process (\d+), begins`)
	begun, victim := make(map[string]int), make(map[string]string)
	var all strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		m := begins.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if begun[m[2]]++; m[1] == "1" {
			victim[m[2]] = m[3]
		}
		if len(sizes) == 0 || m[2] != sizes[0] || strconv.Itoa(begun[m[2]]) != m[2] {
			continue
		}
		sizes = sizes[1:]
		pid, err := strconv.Atoi(victim[m[2]])
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			t.Errorf("kill %d: %v", pid, err)
		}
	}
	return all.String()
}

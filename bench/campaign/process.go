package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// grace is the time that a process has to exit after SIGTERM.
	grace = 3 * time.Second
	// stderrMax is the number of bytes of a process's standard error that an error contains.
	stderrMax = 4 << 10
)

// run runs a process in a session of its own, so that each system gets the same share of the processors, and returns its
// standard output. It is killed when timeout has passed. No descendant outlives the call. An error contains the end of the
// standard error.
func (p process) run(ctx context.Context, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within %v", timeout))
	defer cancel()
	orphans := watchOrphans()
	defer orphans.end()
	var out bytes.Buffer
	stderr := new(tail)
	cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	cmd.Env = append(cleanEnv(os.Environ()), p.env...)
	cmd.Stdout, cmd.Stderr = &out, stderr
	cmd.WaitDelay = 2 * grace
	stop := endAsSession(cmd)
	err := cmd.Run()
	stop()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", filepath.Base(p.args[0]), err, stderr)
	}
	return out.Bytes(), err
}

// cleanEnv returns env without variables that the measured systems read, so that settings of the
// caller do not affect the measurement.
func cleanEnv(env []string) []string {
	var clean []string
	for _, pair := range env {
		switch {
		case strings.HasPrefix(pair, "NEXAR_"), strings.HasPrefix(pair, "OMPI_"), strings.HasPrefix(pair, "GLOO_"),
			strings.HasPrefix(pair, "I_MPI_"), strings.HasPrefix(pair, "MPIR_"), strings.HasPrefix(pair, "FI_"), strings.HasPrefix(pair, "OMP_"), strings.HasPrefix(pair, "GOMAXPROCS="), strings.HasPrefix(pair, "GODEBUG="):
		default:
			clean = append(clean, pair)
		}
	}
	return clean
}

// A tail is a writer that keeps the last stderrMax bytes.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if n := len(t.text) - stderrMax; n > 0 {
		t.text = t.text[n:]
	}
	return len(p), nil
}

// String joins the distinct lines: all ranks may print the same error.
func (t *tail) String() string { return strings.Join(distinct(string(t.text)), "; ") }

// distinct returns the distinct nonempty lines of a text.
func distinct(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

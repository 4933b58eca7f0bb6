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
	// grace is the time that the other processes have after one has failed, and that a process
	// has to exit after SIGTERM.
	grace = 3 * time.Second
	// stderrMax is the number of bytes of a process's standard error that an error contains.
	stderrMax = 4 << 10
)

// runAll starts processes and waits until all have ended. It returns the concatenation of their
// standard outputs. The others are killed when one has failed and grace has passed, or when timeout
// has passed. No process outlives the call.
func runAll(ctx context.Context, all []process, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not finished within %v", timeout))
	defer cancel()
	orphans := watchOrphans()
	defer orphans.end()

	type end struct {
		i   int
		err error
	}
	ends := make(chan end)
	outputs := make([]bytes.Buffer, len(all))
	for i, p := range all {
		go func() { ends <- end{i, p.run(ctx, &outputs[i])} }()
	}
	var first error
	for range all {
		e := <-ends
		if e.err == nil || first != nil {
			continue
		}
		first = fmt.Errorf("%s: %w", filepath.Base(program(all[e.i].args)), e.err)
		if cause := context.Cause(ctx); cause != nil {
			first = cause
		}
		defer time.AfterFunc(grace, cancel).Stop()
	}
	var output []byte
	for i := range outputs {
		output = append(output, outputs[i].Bytes()...)
	}
	return output, first
}

// program returns the program of a command, without the prefix that runs it on a host.
func program(args []string) string {
	for i, word := range args {
		if word == "--" && args[0] == "nsenter" {
			return args[i+1]
		}
	}
	return args[0]
}

// run runs a process and waits for it. Its error contains the end of the standard error.
func (p process) run(ctx context.Context, out *bytes.Buffer) error {
	stderr := new(tail)
	cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	cmd.Env = append(cleanEnv(os.Environ()), p.env...)
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.WaitDelay = 2 * grace
	stop := endAsGroup(cmd)
	err := cmd.Run()
	stop()
	if exit := new(exec.ExitError); errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%w: %s", err, stderr)
	}
	return err
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

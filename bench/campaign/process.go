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
	// grace is how long the others may run when one process has failed, and
	// how long a process may take to end when it is asked to.
	grace = 3 * time.Second
	// complaintMax is how much of a process's standard error is kept, in bytes.
	complaintMax = 4 << 10
)

// runAll starts processes and waits until all have ended. It returns their standard output, one
// process after the other. When one fails, the others are ended after a while. No process is left
// when it returns.
func runAll(ctx context.Context, all []process, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no end within %v", timeout))
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

// program returns the command itself, without the prefix that runs it on a host.
func program(args []string) string {
	for i, word := range args {
		if word == "--" && args[0] == "nsenter" {
			return args[i+1]
		}
	}
	return args[0]
}

// run runs a process to its end.
func (p process) run(ctx context.Context, out *bytes.Buffer) error {
	complaint := new(tail)
	cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
	cmd.Env = append(cleanEnv(os.Environ()), p.env...)
	cmd.Stdout, cmd.Stderr = out, complaint
	cmd.WaitDelay = 2 * grace
	stop := endAsGroup(cmd)
	err := cmd.Run()
	stop()
	if exit := new(exec.ExitError); errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%w: %s", err, complaint)
	}
	return err
}

// cleanEnv returns env without the variables that measured systems read, so that settings of the
// caller do not affect them.
func cleanEnv(env []string) []string {
	var clean []string
	for _, pair := range env {
		switch {
		case strings.HasPrefix(pair, "NEXAR_"), strings.HasPrefix(pair, "OMPI_"), strings.HasPrefix(pair, "GLOO_"),
			strings.HasPrefix(pair, "OMP_"), strings.HasPrefix(pair, "GOMAXPROCS="), strings.HasPrefix(pair, "GODEBUG="):
		default:
			clean = append(clean, pair)
		}
	}
	return clean
}

// A tail keeps the end of its input.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if n := len(t.text) - complaintMax; n > 0 {
		t.text = t.text[n:]
	}
	return len(p), nil
}

// String is the lines, each of them once: ranks complain in chorus.
func (t *tail) String() string { return strings.Join(distinct(string(t.text)), "; ") }

// distinct are the lines of a text that are not empty, each of them once.
func distinct(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

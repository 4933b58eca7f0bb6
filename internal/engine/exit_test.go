package engine

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// exitSize is an environment variable. TestGoexit ends a goroutine in an all-reduce of so many
// elements if it is set.
const exitSize = "EXIT_TEST_SIZE"

// TestGoexit: a reduction function that calls runtime.Goexit on a goroutine of a link ends the
// process, with its stack, so that no caller blocks forever.
func TestGoexit(t *testing.T) {
	if size, err := strconv.Atoi(os.Getenv(exitSize)); err == nil {
		exit(t, size)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"a payload at once": 10, "a payload that is granted": 300_000} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, exe, "-test.run=^TestGoexit$", "-test.timeout=30s")
			cmd.Env = append(os.Environ(), exitSize+"="+strconv.Itoa(size))
			out, err := cmd.CombinedOutput()
			for _, want := range []string{"has ended a goroutine of the engine", "engine.exit."} {
				if err == nil || !strings.Contains(string(out), want) {
					t.Errorf("%v, want a panic with %q:\n%s", err, want, out)
				}
			}
		})
	}
}

// exit runs an all-reduce with a function that calls runtime.Goexit. The callers recover from all
// panics.
func exit(t *testing.T, size int) {
	w := newWorld(t, 2, overMem, Config{})
	w.on(func(rank int, c *Comm) error {
		defer func() { _ = recover() }()
		work := w.work(rank, choice{plan.AllReduce, "direct", 1, 0}, vector(rank, size))
		work.Reduce = func(_, _, _ []byte) { runtime.Goexit() }
		op, err := c.start(work)
		if err != nil {
			return err
		}
		return op.Wait(t.Context())
	})
}

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

// exitSize is the variable of the environment that has TestExit end a goroutine,
// in a vector of so many elements.
const exitSize = "NEXAR_TEST_EXIT_SIZE"

// TestExit: a function that ends a goroutine which links depend on ends the
// process, with its stack, whoever has called it: nobody waits for ever.
func TestExit(t *testing.T) {
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
			cmd := exec.CommandContext(ctx, exe, "-test.run=^TestExit$", "-test.timeout=30s")
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

// exit carries an all-reduce out with a function that does not return, from which
// whoever has called it recovers as far as he can.
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

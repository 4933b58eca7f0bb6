package nexartest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	for _, n := range []int{1, 2, 5, 16} {
		var ranks, sum atomic.Int64
		nexartest.Run(t, n, func(t *testing.T, c *nexar.Comm) {
			x := []int64{int64(c.Rank()) + 1}
			if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
				t.Fatal(err)
			}
			ranks.Add(1)
			sum.Add(x[0])
		})
		if want := int64(n * (n + 1) / 2); ranks.Load() != int64(n) || sum.Load() != int64(n)*want {
			t.Errorf("n=%d: %d ranks with a sum of %d, want %d with %d", n, ranks.Load(), sum.Load(), n, int64(n)*want)
		}
	}
}

// TestReturnEarly: a rank may return early if no other rank needs it.
func TestReturnEarly(t *testing.T) {
	nexartest.Run(t, 3, func(t *testing.T, c *nexar.Comm) {
		switch c.Rank() {
		case 0:
			if err := nexar.Send(t.Context(), c, []int32{42}, 1, 7); err != nil {
				t.Error(err)
			}
		case 1:
			x := make([]int32, 1)
			if _, err := nexar.Recv(t.Context(), c, x, 0, 7); err != nil || x[0] != 42 {
				t.Errorf("received %v, %v", x, err)
			}
		case 2:
			t.Skip("this rank has nothing to do")
		}
	})
}

func TestConfig(t *testing.T) {
	cluster := nexartest.Cluster{Config: nexar.Config{BarrierTimeout: 200 * time.Millisecond}}
	over := make(chan struct{})
	cluster.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		if c.Rank() == 0 {
			<-over // keeps the communicator open
			return
		}
		defer close(over)
		late, ok := errors.AsType[*nexar.TimeoutError](c.Barrier(t.Context()))
		if !ok || len(late.Waiting) != 1 || late.Waiting[0] != 0 {
			t.Errorf("barrier: %v, want a timeout that names rank 0", late)
		}
	})
}

// scenario is the environment variable that selects the failure for TestScenario in a child process.
const scenario = "NEXARTEST_SCENARIO"

// A failure is a test that must fail, with its expected output.
type failure struct {
	args  string // of go test
	ranks int
	f     func(t *testing.T, c *nexar.Comm)
	world func(t *testing.T) // runs in a synctest bubble, in place of f
	want  []string           // in the output
	not   []string           // not in the output
}

var failures = map[string]failure{
	"error": {
		ranks: 3,
		f: func(t *testing.T, c *nexar.Comm) {
			if err := c.Barrier(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.Rank() == 1 {
				t.Error("something is wrong")
			}
		},
		want: []string{"--- FAIL: TestScenario/rank=1", "something is wrong", "--- PASS: TestScenario/rank=0", "--- PASS: TestScenario/rank=2"},
	},
	"fatal": {
		ranks: 3,
		f: func(t *testing.T, c *nexar.Comm) {
			if c.Rank() == 1 {
				t.Fatal("something is wrong")
			}
			if err := c.Barrier(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		want: []string{"--- FAIL: TestScenario/rank=1", "something is wrong", "rank 1 (node ", "has left"},
		not:  []string{"goroutine"},
	},
	"return": {
		ranks: 2,
		f: func(t *testing.T, c *nexar.Comm) {
			if c.Rank() == 0 {
				return
			}
			if err := c.Barrier(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		want: []string{"--- PASS: TestScenario/rank=0", "rank 0 (node ", "has left"},
	},
	"panic": {
		ranks: 2,
		f: func(t *testing.T, c *nexar.Comm) {
			if c.Rank() == 1 {
				panicHere()
			}
			if err := c.Barrier(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		want: []string{"rank 1 panicked: oh no", "panicHere", "--- FAIL: TestScenario/rank=0", "rank 1 (node "},
	},
	// Rank 0 waits for a message from itself, which the failure of another rank does not end.
	"grace": {
		ranks: 3,
		f: func(t *testing.T, c *nexar.Comm) {
			switch c.Rank() {
			case 0:
				receive(t, c, 0)
			case 1:
				t.Fatal("something is wrong")
			}
		},
		want: []string{"something is wrong", "rank 0 has not returned", "nexartest_test.receive", "nexar: recv: closed by this rank"},
	},
	"limit": {
		ranks: 2,
		f:     func(t *testing.T, c *nexar.Comm) { receive(t, c, c.Rank()) },
		want:  []string{"ranks 0, 1 have not returned", "nexartest_test.receive", "nexar: recv: closed by this rank"},
	},
	"stuck": {
		ranks: 2,
		f: func(t *testing.T, c *nexar.Comm) {
			if c.Rank() == 1 {
				sleepForEver()
			}
		},
		want: []string{"panic: nexartest: rank 1 has not returned", "rank 1, 1 goroutine", "sleepForEver"},
		not:  []string{"rank 0, 1 goroutine"},
	},
	"parallel": {
		ranks: 2,
		f: func(t *testing.T, c *nexar.Comm) {
			if c.Rank() == 1 {
				t.Parallel()
			}
		},
		want: []string{"rank 1 called t.Parallel"},
	},
	"run": {
		args:  "-test.run=^TestScenario$/^rank=0$",
		ranks: 2,
		f:     func(*testing.T, *nexar.Comm) {},
		want:  []string{"not all ranks ran"},
	},
	"world late": {
		world: func(t *testing.T) {
			w := nexartest.Cluster{Timeout: 2 * time.Second}.New(t, 2)
			w.Start(waitForContext)
			w.Wait()
		},
		want: []string{"nodes [0 1] have not returned within 2s", "nexartest_test.waitForContext", "Cluster{Random: 1}"},
	},
	"world panic": {
		world: func(t *testing.T) {
			w := nexartest.New(t, 2)
			w.Start(func(_ context.Context, n *nexar.Node) error {
				if n.World().Rank() == 1 {
					panicHere()
				}
				return nil
			})
			if errs := w.Wait(); errs[0] != nil || errs[1] == nil {
				t.Logf("errors %v, want one of node 1 only", errs)
			}
		},
		want: []string{"node 1 panicked: oh no", "panicHere"},
		not:  []string{"want one of node 1 only"},
	},
	"world without the node": {
		world: func(t *testing.T) { nexartest.New(t, 2).Kill(9) },
		want:  []string{"unknown node 9: the nodes are 0 to 1"},
	},
}

// waitForContext is the program of a node that returns only when its context ends.
func waitForContext(ctx context.Context, _ *nexar.Node) error {
	<-ctx.Done()
	return nil
}

func panicHere()    { panic("oh no") }
func sleepForEver() { <-make(chan int) }

func receive(t *testing.T, c *nexar.Comm, from int) {
	if _, err := nexar.Recv(t.Context(), c, make([]int32, 1), from, nexar.AnyTag); err != nil {
		t.Error(err)
	}
}

// TestScenario is the failing test, in a child process of TestFailures.
func TestScenario(t *testing.T) {
	name := os.Getenv(scenario)
	if name == "" {
		return
	}
	if world := failures[name].world; world != nil {
		synctest.Test(t, world)
		return
	}
	cluster := nexartest.Cluster{Timeout: 2 * time.Second, Grace: 300 * time.Millisecond}
	cluster.Run(t, failures[name].ranks, failures[name].f)
}

func TestFailures(t *testing.T) {
	if os.Getenv(scenario) != "" {
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := want.args
			if args == "" {
				args = "-test.run=^TestScenario$"
			}
			began := time.Now()
			cmd := exec.CommandContext(t.Context(), exe, args, "-test.v", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), scenario+"="+name)
			out, err := cmd.CombinedOutput()
			if _, ok := errors.AsType[*exec.ExitError](err); !ok {
				t.Errorf("the test did not fail: %v", err)
			}
			for _, text := range want.want {
				if !strings.Contains(string(out), text) {
					t.Errorf("no %q in the output", text)
				}
			}
			for _, text := range want.not {
				if strings.Contains(string(out), text) {
					t.Errorf("%q in the output", text)
				}
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("the test took %v, want at most a minute", took)
			}
			if t.Failed() {
				t.Logf("output:\n%s", out)
			}
		})
	}
}

func ExampleRun() {
	var t *testing.T // the parameter of the test function
	nexartest.Run(t, 4, func(t *testing.T, c *nexar.Comm) {
		x := []float64{float64(c.Rank())}
		if err := nexar.AllReduce(t.Context(), c, x, nexar.Avg); err != nil {
			t.Fatal(err)
		}
		if x[0] != 1.5 {
			t.Errorf("mean = %v, want 1.5", x[0])
		}
	})
}

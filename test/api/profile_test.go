package api_test

import (
	"bytes"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestProfileLabels: with the setting, a goroutine that waits in a receive has the labels of its operation, rank and communicator, and none
// afterwards.
func TestProfileLabels(t *testing.T) {
	for _, on := range []bool{true, false} {
		cl := nexartest.Cluster{Config: nexar.Config{ProfileLabels: on}}
		cl.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
			if c.Rank() == 1 {
				var seen bool
				for range 1000 {
					if seen = strings.Contains(goroutines(t), `"nexar_comm":"1", "nexar_op":"recv", "nexar_rank":"0"`); seen || !on {
						break
					}
				}
				if seen != on {
					t.Errorf("labels %v: a waiting goroutine with labels was seen: %v\n%s", on, seen, goroutines(t))
				}
				if err := nexar.Send(t.Context(), c, []int{1}, 0, 0); err != nil {
					t.Error(err)
				}
				return
			}
			if _, err := nexar.Recv(t.Context(), c, make([]int, 1), 1, 0); err != nil {
				t.Error(err)
			}
			if text := goroutines(t); strings.Contains(text, "nexar_op") {
				t.Errorf("the goroutine has labels after the operation:\n%s", text)
			}
		})
	}
}

// goroutines is the profile of all goroutines, with their labels.
func goroutines(t *testing.T) string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestExecutionTrace: operations are tasks of an execution trace that is being written.
func TestExecutionTrace(t *testing.T) {
	var b bytes.Buffer
	if err := trace.Start(&b); err != nil {
		t.Fatal(err)
	}
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		if err := nexar.AllReduce(t.Context(), c, make([]float32, 10), nexar.Sum); err != nil {
			t.Error(err)
		}
	})
	trace.Stop()
	if !bytes.Contains(b.Bytes(), []byte("nexar.all_reduce")) {
		t.Error("the trace has no task nexar.all_reduce")
	}
}

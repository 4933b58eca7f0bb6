package callsite

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestKindOf(t *testing.T) {
	for _, test := range []struct {
		function, file string
		kind           int
		name           string
	}{
		{module + ".AllReduce[...]", "nexar/collective.go", library, "all_reduce"},
		{module + ".AllReduce[go.shape.[]github.com/a/b.T]", "nexar/collective.go", library, "all_reduce"},
		{module + ".(*Comm).Barrier", "nexar/comm.go", library, "barrier"},
		{module + ".(*Handle).Wait", "nexar/async.go", library, "wait"},
		{module + ".TestSend", "nexar/send_test.go", program, "test_send"},
		{module + "_test.ExampleSend", "nexar/example_test.go", program, "example_send"},
		{module + "/internal/engine.(*Op).Wait", "engine/op.go", library, "wait"},
		{module + "/examples/train.main", "train/main.go", program, "main"},
		{module + "-tools/x.F", "x/x.go", program, "f"},
		{"main.(*trainer[...]).step", "/home/me/train/main.go", program, "step"},
		{"gopkg.in/yaml%2ev3.Marshal", "yaml.go", program, "marshal"},
		{"myapp/train.Step", "myapp/train/step.go", program, "step"},
		{"sync.(*Once).Do", "sync/once.go", other, "do"},
		{"net/http.(*Server).Serve", "net/http/server.go", other, "serve"},
		{"runtime.main", "runtime/proc.go", other, "main"},
	} {
		if kind, name := kindOf(test.function, test.file, "myapp"), snake(test.function); kind != test.kind || name != test.name {
			t.Errorf("%s in %s: kind %d, name %q; want %d, %q", test.function, test.file, kind, name, test.kind, test.name)
		}
	}
	if isCall(module+"/internal/relay.(*Endpoint).ReadFrom") || !isCall(module+"/grid.New") {
		t.Error("calls of internal packages count, or those of others do not")
	}
}

// TestTwoSites: an operation that waits in two places has both, and one that waits in three has none.
func TestTwoSites(t *testing.T) {
	r := Reader{at: time.Now(), calls: []call{{"recv", "b.go:2"}, {"recv", "a.go:1"}, {"recv", "a.go:1"}, {"send", "c.go:3"}}}
	if site := r.Call("recv"); site != "a.go:1 or b.go:2" {
		t.Errorf("it waits at %q", site)
	}
	if r.calls[3].function = "recv"; r.Call("recv") != "" {
		t.Errorf("it waits at %q", r.Call("recv"))
	}
}

// TestReadsAreLimited: the stacks are read every half second, and not those of too many goroutines.
func TestReadsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Reader
		for _, step := range []struct {
			pause time.Duration
			reads bool
		}{{0, true}, {readEvery - 1, false}, {1, true}} {
			time.Sleep(step.pause)
			if r.Main(); (r.at == time.Now()) != step.reads {
				t.Errorf("after a pause of %v the stacks are read: %v, want %v", step.pause, !step.reads, step.reads)
			}
		}
		end := make(chan struct{})
		defer close(end)
		for range goroutinesMax {
			go func() { <-end }()
		}
		var other Reader
		if other.Main(); len(r.seen) == 0 || len(other.seen) > 0 {
			t.Errorf("%d stacks are read of few goroutines and %d of many, want some and none", len(r.seen), len(other.seen))
		}
	})
}

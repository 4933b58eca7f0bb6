package recorder

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/trace"
)

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Log
		a := l.Call(1, 1, 1, "a", 10)
		time.Sleep(time.Second)
		b := l.Begin(call(2, strings.Repeat("b", 300)))
		time.Sleep(time.Second)
		l.End(a, trace.OK, 5)
		time.Sleep(time.Second)

		list := Last(l.Operations(), Length)
		if len(list) != 2 {
			t.Fatalf("%d operations, want 2", len(list))
		}
		if o := list[0]; o.Function != "a" || o.Outcome != trace.OK || o.Duration != 2*time.Second || o.Bytes != 15 {
			t.Errorf("the first is %+v", o)
		}
		o := list[1]
		if !o.Running() || o.Duration != 2*time.Second || len(o.Waiting) != 1 || o.Waiting[0] != 2 || len(o.Function) != functionMax {
			t.Errorf("the second is %+v", o)
		}
		if c := l.Begin(call(3, "c")); c != a {
			t.Errorf("index %d for the next, want %d again", c, a)
		}
		l.End(b, trace.Failed, 0)
	})
}

// Operations may be read while others are recorded.
func TestLogConcurrently(t *testing.T) {
	var l Log
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range 2000 {
				l.End(l.Begin(call(1, "f")), trace.OK, 1)
			}
		})
	}
	for range 50 {
		if n := len(l.Operations()); n > Length+4 {
			t.Errorf("%d operations, want at most %d", n, Length)
		}
	}
	running.Wait()
	if n := len(l.Operations()); n != Length {
		t.Errorf("%d operations at the end, want %d", n, Length)
	}
}

func TestLogAllocations(t *testing.T) {
	var l Log
	o := call(1, "f")
	for range Length {
		l.End(l.Begin(o), trace.OK, 0)
	}
	if n := testing.AllocsPerRun(1000, func() { l.End(l.Begin(o), trace.OK, 0) }); n > 0 {
		t.Errorf("%v allocations for each operation, want none", n)
	}
}

package devicetest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// faults maps each thing that a device may do wrong to the subtest that must
// notice it.
func faults() map[string]string {
	return map[string]string{
		"no name":                         "Names",
		"buffer of nobody":                "Names",
		"wrong length":                    "Alloc",
		"one memory for all buffers":      "Alloc",
		"one memory for all stagings":     "Stage",
		"odd staging":                     "Stage",
		"negative length":                 "NoMemory",
		"out of memory without bytes":     "NoMemory",
		"ended context":                   "Ended",
		"wait asks the context first":     "Ended",
		"last byte":                       "CopySizes",
		"one byte too many":               "CopyOffsets",
		"copies in at 0":                  "CopyOffsets",
		"copies out at 0":                 "CopyOffsets",
		"first row only":                  "CopyRows",
		"no stride":                       "CopyRows",
		"stages at 0":                     "StageSend",
		"stage clears the rest":           "StageSend",
		"first region only":               "StageSend",
		"receives from 0":                 "ReceiveInto",
		"regions backwards":               "ReceiveInto",
		"first region counts":             "LastRegionCounts",
		"copies from 0":                   "Copy",
		"copies to 0":                     "Copy",
		"staging is the buffer":           "StagingIsApart",
		"bytes are a copy":                "StagingIsApart",
		"newest first":                    "Order",
		"two in the wrong order":          "Order",
		"bytes without waiting":           "Order",
		"wait does nothing":               "Wait",
		"keeps the regions":               "RegionsAreCallers",
		"bytes of the first work":         "StagingTwice",
		"free drops work":                 "FreeBufferInUse",
		"freed buffer is given away":      "FreeBufferInUse",
		"freed staging is given away":     "FreeStagingInUse",
		"close drops work":                "CloseInUse",
		"few streams":                     "Concurrency",
		"takes what is outside":           "Range",
		"range without size":              "Range",
		"takes what is outside a staging": "StagingRange",
		"cut lengths":                     "Lengths",
		"copies what overlaps":            "Overlap",
		"refuses what is near":            "Overlap",
		"takes what is foreign":           "Foreign",
		"foreign without names":           "Foreign",
		"nil buffer":                      "NoBuffer",
		"use after free":                  "Freed",
		"free twice":                      "Freed",
		"bytes after free":                "Freed",
		"queues after close":              "Closed",
		"wait ignores the context":        "Held",
		"gives work up":                   "Held",
		"forgets failures":                "Failure",
		"goes on after a failure":         "Failure",
		"map is a copy":                   "Mapper",
		"reduces an element too few":      "Reducer",
		"keeps what is no number":         "Reducer",
		"reduces odd pieces":              "ReducerMisuse",
		"reduces anything":                "ReducerMisuse",
	}
}

// lazySubtests are those that a lazy device offers the means for, which is all.
func lazySubtests(t *testing.T) []subtest {
	offered, missing := further(t, newLazy(""))
	if len(missing) > 0 {
		t.Fatalf("left out: %q", missing)
	}
	return append(subtests(), offered...)
}

// A lazy device keeps all promises, so the suite must not ask for more.
func TestLazy(t *testing.T) {
	Run(t, func(testing.TB) device.Device { return newLazy("") })
}

func TestSuiteNoticesFaults(t *testing.T) {
	all := lazySubtests(t)
	for fault, name := range faults() {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			i := slices.IndexFunc(all, func(s subtest) bool { return s.name == name })
			if i < 0 {
				t.Fatalf("there is no subtest %s", name)
			}
			r := record(t, func(r *recorder) {
				all[i].run(r, func(testing.TB) device.Device { return newLazy(fault) })
			})
			if len(r.failures) == 0 {
				t.Errorf("%s does not notice: %s", name, fault)
			}
			if len(r.failures) > 0 && testing.Verbose() {
				t.Logf("%s says: %s", name, r.failures[0])
			}
		})
	}
}

// Every subtest can fail.
func TestEverySubtestHasAFault(t *testing.T) {
	for _, s := range lazySubtests(t) {
		noticed := false
		for _, name := range faults() {
			noticed = noticed || name == s.name
		}
		if !noticed {
			t.Errorf("no fault shows that %s can fail", s.name)
		}
	}
}

// A recorder is a test that writes down how it has failed.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

// record runs f as if it was a test, on a goroutine that it may end.
func record(t testing.TB, f func(r *recorder)) *recorder {
	r := &recorder{TB: t}
	r.guard(func() { f(r) })
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		cleanup := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.guard(cleanup)
	}
	return r
}

func (r *recorder) guard(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.failures = append(r.failures, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) Helper() {}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Failed() bool { return len(r.failures) > 0 }

func (r *recorder) Error(args ...any) { r.failures = append(r.failures, fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

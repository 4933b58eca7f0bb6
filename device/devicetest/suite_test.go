package devicetest

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// faults maps each fault of a lazy device to the subtest that must detect it.
func faults() map[string]string {
	return map[string]string{
		"no name":                        "Names",
		"buffer of another device":       "Names",
		"wrong length":                   "Alloc",
		"shared memory of buffers":       "Alloc",
		"shared memory of stagings":      "Stage",
		"unaligned staging":              "Stage",
		"negative length":                "NoMemory",
		"MemoryError without bytes":      "NoMemory",
		"ignores an ended context":       "Ended",
		"wait checks the context first":  "Ended",
		"omits the last byte":            "CopySizes",
		"one byte too many":              "CopyOffsets",
		"copies in at offset 0":          "CopyOffsets",
		"copies out at offset 0":         "CopyOffsets",
		"first row only":                 "CopyRows",
		"no stride":                      "CopyRows",
		"stages at offset 0":             "StageSend",
		"stage clears the rest":          "StageSend",
		"first region only":              "StageSend",
		"receives from offset 0":         "ReceiveInto",
		"reverses the regions":           "ReceiveInto",
		"first region counts":            "LastRegionCounts",
		"copies from offset 0":           "Copy",
		"copies to offset 0":             "Copy",
		"staging is the buffer":          "StagingIsApart",
		"bytes are a copy":               "StagingIsApart",
		"reverse order":                  "Order",
		"two swapped":                    "Order",
		"bytes without waiting":          "Order",
		"wait does nothing":              "Wait",
		"retains the regions":            "RegionsAreCallers",
		"bytes waits for the first work": "StagingTwice",
		"free drops work":                "FreeBufferInUse",
		"freed buffer is reused":         "FreeBufferInUse",
		"freed staging is reused":        "FreeStagingInUse",
		"close drops work":               "CloseInUse",
		"too few streams":                "Concurrency",
		"accepts invalid regions":        "Range",
		"RangeError without size":        "Range",
		"accepts invalid staging ranges": "StagingRange",
		"truncates lengths":              "Lengths",
		"copies overlapping regions":     "Overlap",
		"rejects adjacent regions":       "Overlap",
		"accepts foreign regions":        "Foreign",
		"ForeignError without names":     "Foreign",
		"nil buffer":                     "NoBuffer",
		"use after free":                 "Freed",
		"free twice":                     "Freed",
		"bytes after free":               "Freed",
		"works after close":              "Closed",
		"wait ignores the context":       "Held",
		"drops work of a canceled wait":  "Held",
		"forgets failures":               "Failure",
		"continues after a failure":      "Failure",
		"map is a copy":                  "Mapper",
		"attached memory is a copy":      "Peer",
		"exports freed memory":           "Peer",
		"attaches to the own device":     "Peer",
		"omits the last element":         "Reducer",
		"NaN with payload":               "Reducer",
		"reduces partial elements":       "ReducerMisuse",
		"reduces undefined ops":          "ReducerMisuse",
	}
}

// lazySubtests returns the subtests for a lazy device, which are all.
func lazySubtests(t *testing.T) []subtest {
	supported, missing := optional(t, newLazy(""))
	if len(missing) > 0 {
		t.Fatalf("omitted: %q", missing)
	}
	return append(subtests(), supported...)
}

// TestLazy: a lazy device without a fault keeps the contract, so it passes the suite.
func TestLazy(t *testing.T) {
	Run(t, func(testing.TB) device.Device { return newLazy("") })
}

func TestSuiteDetectsFaults(t *testing.T) {
	all := lazySubtests(t)
	for fault, name := range faults() {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			i := slices.IndexFunc(all, func(s subtest) bool { return s.name == name })
			if i < 0 {
				t.Fatalf("no subtest %s", name)
			}
			r := record(t, func(r *recorder) {
				all[i].run(r, func(testing.TB) device.Device { return newLazy(fault) })
			})
			if len(r.failures) == 0 {
				t.Errorf("%s does not detect: %s", name, fault)
			}
			if len(r.failures) > 0 && testing.Verbose() {
				t.Logf("%s fails with: %s", name, r.failures[0])
			}
		})
	}
}

// TestEverySubtestHasAFault: each subtest detects at least one fault.
func TestEverySubtestHasAFault(t *testing.T) {
	for _, s := range lazySubtests(t) {
		if !slices.Contains(slices.Collect(maps.Values(faults())), s.name) {
			t.Errorf("no fault for %s", s.name)
		}
	}
}

// A recorder is a test that records its failures.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

// record runs f as a test, on a goroutine that f may end.
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

// Package devicetest checks that a device keeps every promise of package
// device, and has a Fake for those who use devices.
//
// Most people who write a device write one test:
//
//	func TestConformance(t *testing.T) {
//		devicetest.Run(t, func(tb testing.TB) device.Device { … })
//	}
//
// Each promise is a subtest of its own, with a device of its own if the factory
// makes one each time. After every subtest everything that it has made is freed
// and closed, and no goroutine may be left that was not there before; other
// tests must therefore not run in parallel with Run. Waiting is bounded by
// contexts that end after 30 s. What is not promised is not demanded: a device
// may do work at once, or as late as somebody waits for it.
//
// Some promises can only be checked where there is a means for it. The subtests
// Mapper and Reducer are there if the device is a device.Mapper and its streams
// are device.Reducers; Held and Failure if the device, or a wrapper around it
// that the factory makes, is a Holder or a Failer. Run logs what is left out.
//
// Most people who write code that works with devices make a Fake, and look at
// what it has counted:
//
//	fake := devicetest.NewFake(t, devicetest.FakeConfig{})
//	buffer, err := fake.Alloc(ctx, n)
//
// Code that reaches for memory in any other way than by the methods of the
// device, or too early, or too late, gets wrong results there or fails the
// test. All methods of a Fake may be called from several goroutines.
package devicetest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/device"
)

// A Factory returns the device to be checked. It fails tb if it cannot. What
// has to be closed it gives to tb.Cleanup.
type Factory func(tb testing.TB) device.Device

// A Holder is a device whose streams can be halted: none does any work until
// the function is called that Hold returns.
type Holder interface {
	Hold() (release func())
}

// A Failer is a device that can be made to fail: the n-th copy from now on, 1
// being the next one, of which those of streams count when they are queued,
// fails with err.
type Failer interface {
	FailCopy(n int, err error)
}

// A subtest is one promise.
type subtest struct {
	name string
	body func(x *check)
}

// subtests are those for every device.
func subtests() []subtest {
	return []subtest{
		{"Names", testNames},
		{"Alloc", testAlloc},
		{"Stage", testStage},
		{"NoMemory", testNoMemory},
		{"Ended", testEnded},

		{"CopySizes", testCopySizes},
		{"CopyOffsets", testCopyOffsets},
		{"CopyRows", testCopyRows},
		{"StageSend", testStageSend},
		{"ReceiveInto", testReceiveInto},
		{"LastRegionCounts", testLastRegionCounts},
		{"Copy", testCopy},
		{"StagingIsApart", testStagingIsApart},

		{"Order", testOrder},
		{"Wait", testWait},
		{"RegionsAreCallers", testRegionsAreCallers},
		{"StagingTwice", testStagingTwice},
		{"FreeBufferInUse", testFreeBufferInUse},
		{"FreeStagingInUse", testFreeStagingInUse},
		{"CloseInUse", testCloseInUse},
		{"Concurrency", testConcurrency},

		{"Range", testRange},
		{"StagingRange", testStagingRange},
		{"Lengths", testLengths},
		{"Overlap", testOverlap},
		{"Foreign", testForeign},
		{"NoBuffer", testNoBuffer},
		{"Freed", testFreed},
		{"Closed", testClosed},
	}
}

// further are the subtests that d offers the means for, and what is left out.
func further(tb testing.TB, d device.Device) (offered []subtest, missing []string) {
	tb.Helper()
	s, err := d.NewStream()
	if err != nil {
		tb.Fatalf("new stream: %v", err)
	}
	_, holds := d.(Holder)
	_, fails := d.(Failer)
	_, maps := d.(device.Mapper)
	_, reduces := s.(device.Reducer)
	if err := s.Close(); err != nil {
		tb.Errorf("close a stream: %v", err)
	}
	for _, f := range []struct {
		offered bool
		what    string
		subtest subtest
	}{
		{holds, "the device is no devicetest.Holder", subtest{"Held", testHeld}},
		{fails, "the device is no devicetest.Failer", subtest{"Failure", testFailure}},
		{maps, "the device is no device.Mapper", subtest{"Mapper", testMapper}},
		{reduces, "its streams are no device.Reducers", subtest{"Reducer", testReducer}},
		{reduces, "its streams are no device.Reducers", subtest{"ReducerMisuse", testReducerMisuse}},
	} {
		if f.offered {
			offered = append(offered, f.subtest)
		} else {
			missing = append(missing, f.subtest.name+": "+f.what)
		}
	}
	return offered, missing
}

// Run checks the devices that the factory makes.
func Run(t *testing.T, factory Factory) {
	var offered []subtest
	t.Run("Capabilities", func(t *testing.T) {
		var missing []string
		offered, missing = further(t, factory(t))
		for _, text := range missing {
			t.Log("left out: " + text)
		}
	})
	for _, s := range append(subtests(), offered...) {
		t.Run(s.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { // after those of the factory
				if t.Failed() {
					return
				}
				if err := goleak.Find(before); err != nil {
					t.Errorf("goroutines are left: %v", err)
				}
			})
			s.run(t, factory)
		})
	}
}

// waitLimit is how long a device may take for what is little work.
const waitLimit = 30 * time.Second

func (s subtest) run(tb testing.TB, factory Factory) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	s.body(&check{
		TB: tb, d: factory(tb), ctx: ctx,
		rng: rand.New(rand.NewPCG(1, 2)),
	})
}

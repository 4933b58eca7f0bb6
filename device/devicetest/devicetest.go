// Package devicetest is the conformance suite of package device, and provides a [Fake] device
// for tests of code that uses devices.
//
// An implementation of a device needs one test:
//
//	func TestConformance(t *testing.T) {
//		devicetest.Run(t, func(tb testing.TB) device.Device { … })
//	}
//
// Each rule of the contract is a subtest, with a new device if the factory returns one. A subtest
// frees and closes all that it creates, and fails if goroutines remain that did not run before;
// other tests must therefore not run in parallel with [Run]. Contexts bound waiting to 30 s. The
// suite checks the contract only: a device may do work immediately, or only when a call waits.
//
// Some rules need a capability. Run includes the subtests Mapper, Peer and Reducer if the device is a
// device.Mapper or a device.Peer and its streams are device.Reducers, and Held and Failure if the device, or a
// wrapper that the factory returns, is a [Holder] or a [Failer]. It logs the subtests that it
// omits.
//
// A test of code that uses devices creates a Fake, and checks its Stats:
//
//	fake := devicetest.NewFake(t, devicetest.FakeConfig{})
//	buffer, err := fake.Alloc(ctx, n)
//
// Code that accesses memory other than by methods of the device, too early or too late, gets
// wrong results or fails the test. The methods of a Fake may be called concurrently.
package devicetest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/device"
)

// A Factory returns the device to check, or fails tb. It registers tb.Cleanup functions for
// resources that must be closed.
type Factory func(tb testing.TB) device.Device

// A Holder is a device that can pause its streams. After Hold no stream does work until release
// is called.
type Holder interface {
	Hold() (release func())
}

// A Failer is a device with injected failures: the n-th copy from the call on fails with err,
// where 1 is the next one. Copies of streams are counted when they are queued.
type Failer interface {
	FailCopy(n int, err error)
}

// A subtest checks one rule of the contract.
type subtest struct {
	name string
	body func(x *check)
}

// subtests returns the subtests for all devices.
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

// optional returns the subtests for capabilities of d, and descriptions of the missing ones.
func optional(tb testing.TB, d device.Device) (supported []subtest, missing []string) {
	tb.Helper()
	s, err := d.NewStream()
	if err != nil {
		tb.Fatalf("new stream: %v", err)
	}
	_, holds := d.(Holder)
	_, fails := d.(Failer)
	_, maps := d.(device.Mapper)
	_, peers := d.(device.Peer)
	_, reduces := s.(device.Reducer)
	if err := s.Close(); err != nil {
		tb.Errorf("close a stream: %v", err)
	}
	for _, f := range []struct {
		supported bool
		what      string
		subtest   subtest
	}{
		{holds, "the device is not a devicetest.Holder", subtest{"Held", testHeld}},
		{fails, "the device is not a devicetest.Failer", subtest{"Failure", testFailure}},
		{maps, "the device is not a device.Mapper", subtest{"Mapper", testMapper}},
		{peers, "the device is not a device.Peer", subtest{"Peer", testPeer}},
		{reduces, "its streams are not device.Reducers", subtest{"Reducer", testReducer}},
		{reduces, "its streams are not device.Reducers", subtest{"ReducerMisuse", testReducerMisuse}},
	} {
		if f.supported {
			supported = append(supported, f.subtest)
		} else {
			missing = append(missing, f.subtest.name+": "+f.what)
		}
	}
	return supported, missing
}

// Run checks the devices of a factory against the contract of package device.
func Run(t *testing.T, factory Factory) {
	var supported []subtest
	t.Run("Capabilities", func(t *testing.T) {
		var missing []string
		supported, missing = optional(t, factory(t))
		for _, text := range missing {
			t.Log("omitted: " + text)
		}
	})
	for _, s := range append(subtests(), supported...) {
		t.Run(s.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { // runs after the cleanups of the factory
				if t.Failed() {
					return
				}
				if err := goleak.Find(before); err != nil {
					t.Errorf("goroutines remain: %v", err)
				}
			})
			s.run(t, factory)
		})
	}
}

func (s subtest) run(tb testing.TB, factory Factory) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // It is little work.
	defer cancel()
	s.body(&check{
		TB: tb, d: factory(tb), ctx: ctx, another: func() device.Device { return factory(tb) },
		rng: rand.New(rand.NewPCG(1, 2)),
	})
}

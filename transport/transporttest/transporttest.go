// Package transporttest checks that a transport keeps every promise of package
// transport, and measures it.
//
// Most people write one test, one benchmark and the Factory that both share:
//
//	func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }
//	func BenchmarkMem(b *testing.B)    { transporttest.Bench(b, newCluster) }
//
//	func newCluster(tb testing.TB, n int) transporttest.Cluster { … }
//
// Each promise is a subtest of its own, with its own transports. A subtest
// that does not end within 30 s fails with the stacks of all goroutines, and
// the next one goes on, so that nothing hangs the suite. After every subtest
// no goroutine may be left that was not there before; other tests must
// therefore not run in parallel with Run.
//
// A subtest that a transport offers no means for is skipped, and says so:
// "kill" without Cluster.Kill, and "trywrite", "partwrite", "poller", "prioritize",
// "secured" and "remote" without the capabilities TryWriter, PartWriter, Poller,
// Prioritizer, Secured and RemoteMemory. The environment variable NEXAR_REQUIRE, a comma-separated list of these names, turns the
// skip into a failure.
//
// Not checked, for it takes a client that knows the protocol below, is that
// clients which prove no identity never delay Accept.
package transporttest

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport"
)

// A Factory makes n transports that know each other. It fails tb if it cannot.
// Run and Bench close the transports; what else there is to be closed, the
// factory gives to tb.Cleanup.
type Factory func(tb testing.TB, n int) Cluster

// A Cluster is what a Factory has made.
type Cluster struct {
	// Transports listen already.
	Transports []transport.Transport

	// Identities holds what peers prove to be: Conn.Peer says it, and Dial
	// takes it. The default is what Addr says.
	Identities []string

	// Kill ends transport i as the death of its process would, without a
	// good-bye of its own. Nil leaves the subtest Kill out.
	Kill func(i int)
}

// identity is what transport i proves to be.
func (c Cluster) identity(i int) string {
	if i < len(c.Identities) {
		return c.Identities[i]
	}
	return c.Transports[i].Addr()
}

// A subtest is one promise.
type subtest struct {
	name string
	size int // how many transports it needs
	body func(x *check)
}

func subtests() []subtest {
	return []subtest{
		{"Addresses", 2, testAddresses},
		{"Identity", 2, testIdentity},
		{"DialNobody", 2, testDialNobody},
		{"CancelDial", 2, testCancelDial},
		{"CancelAccept", 2, testCancelAccept},
		{"CancelAcceptPipe", 2, testCancelAcceptPipe},
		{"EverybodyDialsEverybody", 3, testEverybodyDialsEverybody},
		{"TLSConn", 2, testTLSConn},

		{"Sizes", 2, testSizes},
		{"MixedReads", 2, testMixedReads},
		{"ReadFuncPieces", 2, testReadFuncPieces},
		{"NothingToDo", 2, testNothingToDo},
		{"EOF", 2, testEOF},
		{"UnexpectedEOF", 2, testUnexpectedEOF},
		{"ManyPipes", 2, testManyPipes},
		{"PipesInOrderOfUse", 2, testPipesInOrderOfUse},
		{"Prioritize", 2, testPrioritize},

		{"Independence", 2, testIndependence},
		{"BackPressure", 2, testBackPressure},
		{"WriteDeadline", 2, testWriteDeadline},
		{"WriteDeadlineInterrupts", 2, testWriteDeadlineInterrupts},
		{"WriteGivesSliceBack", 2, testWriteGivesSliceBack},
		{"ReadDeadline", 2, testReadDeadline},
		{"ReadDeadlineInterrupts", 2, testReadDeadlineInterrupts},
		{"DeadlinesUnderWay", 2, testDeadlinesUnderWay},
		{"TryWrite", 2, testTryWrite},
		{"TryWriteConcurrently", 2, testTryWriteConcurrently},
		{"TryWriteVectored", 2, testTryWriteVectored},
		{"TryWritePart", 2, testTryWritePart},
		{"TryRead", 2, testTryRead},
		{"WaitReadable", 2, testWaitReadable},
		{"SetPolling", 2, testSetPolling},
		{"PollingInTurn", 2, testPollingInTurn},
		{"PollerDeadline", 2, testPollerDeadline},
		{"PollerEnd", 2, testPollerEnd},
		{"PollerKill", 2, testPollerKill},

		{"RemoteWrite", 2, testRemoteWrite},
		{"RemoteRefused", 2, testRemoteRefused},
		{"RemoteRevoke", 2, testRemoteRevoke},
		{"RemoteEnd", 2, testRemoteEnd},

		{"SenderClose", 2, testSenderClose},
		{"SenderCloseInterrupts", 2, testSenderCloseInterrupts},
		{"ReceiverClose", 2, testReceiverClose},
		{"ReceiverCloseInterrupts", 2, testReceiverCloseInterrupts},
		{"ConnClose", 2, testConnClose},
		{"ConnCloseReturnsBlockedCalls", 2, testConnCloseReturnsBlockedCalls},
		{"FirstCloseDecides", 2, testFirstCloseDecides},
		{"TransportClose", 3, testTransportClose},
		{"Kill", 3, testKill},
		{"Concurrency", 3, testConcurrency},
	}
}

// Run checks the transports that the factory makes, in real time.
func Run(t *testing.T, factory Factory) {
	data := newPattern()
	for _, s := range subtests() {
		t.Run(s.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { // after those of the factory
				if t.Failed() {
					return
				}
				if err := goleak.Find(before); err != nil {
					t.Errorf("goroutines are left after Close: %v", err)
				}
			})
			s.run(t, factory, data)
		})
	}
}

// RunInBubble is Run with every subtest in a testing/synctest bubble, in fake
// time. The factory runs inside the bubble too.
func RunInBubble(t *testing.T, factory Factory) {
	data := newPattern()
	for _, s := range subtests() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s.run(t, factory, data)
			})
		})
	}
}

// Limits on the time of a subtest, and of what it does.
const (
	subtestLimit = 30 * time.Second
	closeLimit   = 10 * time.Second // for closing the transports
	promptly     = 5 * time.Second  // what happens at once, on a busy machine
	aWhile       = 50 * time.Millisecond
)

// run carries the subtest out on its own goroutine, closes its transports,
// and reports it if either hangs.
func (s subtest) run(t *testing.T, factory Factory, data pattern) {
	x := &check{
		tb:      t,
		data:    data,
		cluster: factory(t, s.size),
		failed:  make(chan struct{}),
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer x.group.Wait()
		s.body(x)
	}()
	limit := time.NewTimer(subtestLimit)
	defer limit.Stop()
	select {
	case <-finished:
	case <-x.failed: // closing the transports ends what still runs
	case <-limit.C:
		x.report("not finished after %v\n%s", subtestLimit, stacks())
	}
	x.close(finished)
	if x.skipped != "" && !t.Failed() {
		skip(t, x.skipped, x.reason)
	}
}

// Package transporttest is the conformance suite of package transport, and benchmarks
// for transports.
//
// The tests of a transport need a [Factory] and two functions:
//
//	func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }
//	func BenchmarkMem(b *testing.B)    { transporttest.Bench(b, newCluster) }
//
//	func newCluster(tb testing.TB, n int) transporttest.Cluster { … }
//
// Each promise of the contract is a subtest with its own transports. A subtest that does
// not end within 30 s fails with the stacks of all goroutines, and the next one runs.
// After each subtest of Run no goroutine may be left that did not run before it;
// other tests must therefore not run in parallel with Run.
//
// A subtest is skipped with a message if the transport lacks a feature: "kill"
// without Cluster.Kill, and "trywrite", "partwrite", "lazywrite", "poller", "prioritize", "tlsconn"
// and "remote" without the capabilities TryWriter, PartWriter, LazyWriter, Poller, Prioritizer,
// TLSConn and RemoteMemory. The environment variable NEXAR_REQUIRE, a comma-separated list of
// these names, makes the skipped subtests fail.
//
// The suite does not check that clients without an identity never delay Accept, since
// that takes a client of the protocol below the transport.
package transporttest

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// A Factory starts n transports that can dial each other, or calls tb.Fatal. Run and Bench
// close the transports; the factory registers further clean-up with tb.Cleanup.
type Factory func(tb testing.TB, n int) Cluster

// A Cluster is a set of transports that can dial each other.
type Cluster struct {
	// Transports are listening.
	Transports []transport.Transport

	// Identities are the identities of the transports, for Conn.Peer and Dial. The
	// default identity is the address.
	Identities []string

	// Kill ends transport i as the death of its process would. If it is nil, the
	// subtests that need it are skipped.
	Kill func(i int)
}

// identity returns the identity of transport i.
func (c Cluster) identity(i int) string {
	if i < len(c.Identities) {
		return c.Identities[i]
	}
	return c.Transports[i].Addr()
}

// A subtest checks one promise of the contract.
type subtest struct {
	name string
	size int // number of transports
	body func(x *check)
}

func subtests() []subtest {
	return []subtest{
		{"Addresses", 2, testAddresses},
		{"Identity", 2, testIdentity},
		{"DialClosed", 2, testDialClosed},
		{"CancelDial", 2, testCancelDial},
		{"CancelAccept", 2, testCancelAccept},
		{"CancelAcceptPipe", 2, testCancelAcceptPipe},
		{"DialAll", 3, testDialAll},
		{"TLSConn", 2, testTLSConn},

		{"Sizes", 2, testSizes},
		{"MixedReads", 2, testMixedReads},
		{"ReadFuncPieces", 2, testReadFuncPieces},
		{"ZeroBytes", 2, testZeroBytes},
		{"EOF", 2, testEOF},
		{"UnexpectedEOF", 2, testUnexpectedEOF},
		{"ManyPipes", 2, testManyPipes},
		{"ReadPipesInAnyOrder", 2, testReadPipesInAnyOrder},
		{"Prioritize", 2, testPrioritize},

		{"Independence", 2, testIndependence},
		{"BackPressure", 2, testBackPressure},
		{"WriteDeadline", 2, testWriteDeadline},
		{"WriteDeadlineInterrupts", 2, testWriteDeadlineInterrupts},
		{"NoViewAfterWrite", 2, testNoViewAfterWrite},
		{"ReadDeadline", 2, testReadDeadline},
		{"ReadDeadlineInterrupts", 2, testReadDeadlineInterrupts},
		{"DeadlinesInTransfer", 2, testDeadlinesInTransfer},
		{"TryWrite", 2, testTryWrite},
		{"TryWriteConcurrently", 2, testTryWriteConcurrently},
		{"TryWriteVectored", 2, testTryWriteVectored},
		{"TryWritePart", 2, testTryWritePart},
		{"TryWriteLazy", 2, testTryWriteLazy},
		{"TryRead", 2, testTryRead},
		{"WaitReadable", 2, testWaitReadable},
		{"SetPolling", 2, testSetPolling},
		{"PollingInTurn", 2, testPollingInTurn},
		{"PollerDeadline", 2, testPollerDeadline},
		{"PollerEnd", 2, testPollerEnd},
		{"PollerKill", 2, testPollerKill},

		{"RemoteWrite", 2, testRemoteWrite},
		{"RemoteRefused", 2, testRemoteRefused},
		{"RemoteOtherConn", 2, testRemoteOtherConn},
		{"RemoteRevoke", 2, testRemoteRevoke},
		{"RemoteRecall", 2, testRemoteRecall},
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

// Run runs all subtests in real time.
func Run(t *testing.T, factory Factory) {
	data := newPattern()
	for _, s := range subtests() {
		t.Run(s.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { // runs after the clean-up of the factory
				if t.Failed() {
					return
				}
				if err := goleak.Find(before); err != nil {
					t.Errorf("goroutines left after Close: %v", err)
				}
			})
			s.run(t, factory, data)
		})
	}
}

// RunInBubble is Run with each subtest, and its factory, in a testing/synctest bubble.
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

// Time limits.
const (
	subtestLimit = 6 * promptly
	closeLimit   = 2 * promptly          // of Close of all transports
	promptly     = 5 * time.Second       // of an event without delay, on a busy machine
	aWhile       = 50 * time.Millisecond // for a call to block
)

// run runs the body on a separate goroutine and closes the transports. It fails the test
// if either does not end in time.
func (s subtest) run(t *testing.T, factory Factory, data pattern) {
	x := newCheck(t, data, factory(t, s.size))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer x.group.Wait()
		defer x.end()
		s.body(x)
	}()
	limit := time.NewTimer(subtestLimit)
	defer limit.Stop()
	select {
	case <-finished:
	case <-x.failed: // Closing the transports ends the calls that still block.
	case <-limit.C:
		x.report("not finished after %v\n%s", subtestLimit, stacks())
	}
	x.close(finished)
	if x.skipped != "" && !t.Failed() {
		require.Have(t, x.skipped, false, x.reason)
	}
}

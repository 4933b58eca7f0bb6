// Package faults tests whole nodes and calls when nodes fail, leave, join or lie, by the public API.
//
// Version 0.1 of the Rust crate of the same name has faults that must not reappear here. Each has a test that was written for it, or that
// covers it; internal/arch checks that these tests exist.
//
//   - nodes listen at 127.0.0.1 only, and send an empty address: test/cluster.TestFaultWorkersBindLoopback
//   - a pipelined all-reduce leaves elements unreduced: test/faults.TestPipelinedAllReduceReducesAll
//   - a reduce-scatter gives rank r the block of rank r+1: test/faults.TestReduceScatterGivesOwnBlock
//   - a compressed all-reduce differs between ranks: test/conformance.TestCompressed
//   - heartbeats arrive in the queue of a barrier, which fails: test/cluster.TestFaultHeartbeatsInBarrier, test/faults.TestBarrierAmongHeartbeats
//   - split communicators support neither barriers nor calls: test/faults.TestCallsOfCommunicators, test/faults.TestRebuiltAgainAndAgain
//   - rebuilt communicators support neither barriers nor calls: test/faults.TestRebuiltAgainAndAgain
//   - a message with another tag is an error, and lost: test/faults.TestTagMismatchLosesNothing
//   - bulk connections check no certificate: test/cluster.TestBulkImpostor, test/cluster.TestBulkUnknownNode
//   - joining checks no certificate: test/cluster.TestFaultUncheckedServer, internal/rendezvous/server.TestInterceptor
//   - the token is sent over the network: test/cluster.TestFaultTokenTravels
//   - every certificate names "localhost": test/cluster.TestFaultCertificateSaysLocalhost
//   - a bad client ends the formation: test/cluster.TestFaultBadClientAbortsFormation
//   - agreement needs no quorum: test/cluster.TestSurviveCutOff, test/cluster.TestRejoin, internal/membership.TestSimulatedWorlds
//   - agreement ignores the epoch: internal/rendezvous/server.TestReportsOfAnotherEpoch, internal/mesh.TestStaleReports
//   - agreement works only once: test/cluster.TestSurvive, test/faults.TestRebuiltAgainAndAgain
//   - a cancelled bulk write leaves a partial frame in the stream: test/faults.TestCancelledBulkKeepsStep
//   - relays forward messages for ever: internal/topology.TestForwarding (each hop is nearer to the destination)
//   - a call of an unknown function ends the call server, and its caller waits: test/faults.TestUnknownFunctionEndsNothing
package faults

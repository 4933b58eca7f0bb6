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
//
// The tests of sparse topologies and of the mesh in the versions 0.1 and 0.2 of that crate, by their names, are covered by these. Its k-regular
// graphs have other distances than ours, so that neighbors and next hops differ. Its relays have no tests of their own.
//
//   - test_full_mesh_neighbors, test_mesh_neighbors_full_mesh, test_kregular_neighbors, test_kregular_neighbors_wrap, test_hypercube_neighbors:
//     internal/topology.TestNeighbors
//   - test_mesh_neighbors_symmetric, test_ring_distance: internal/topology.TestGraphs, internal/topology.TestForwarding
//   - test_connection_count: internal/topology.TestConnectionCount, test/cluster.TestSparseSockets
//   - test_kregular_routing, test_hypercube_routing, test_full_mesh_no_next_hop: internal/topology.TestRoutingTable
//   - test_routing_table_complete: internal/topology.TestForwarding
//   - test_find_alternative_hop, test_find_alternative_hop_degree_2, test_find_alternative_hop_no_candidate: internal/topology.TestAlternatives
//   - test_spanning_tree, test_spanning_tree_covers_all: internal/membership.TestViewTree (collectives have trees of their own:
//     test/conformance.TestSparseNeighbors)
//   - test_parse_topology: internal/topology.TestParse, internal/topology.TestParseRefuses
//   - test_sparse_ring_topology: test/cluster.TestSparse, test/cluster.TestSparseSockets
//   - test_kregular_relay_send_recv: nexartest.TestRelayOpposite, test/cluster.TestRelays
//   - test_kregular_allreduce, test_kregular_broadcast, test_kregular_barrier, test_kregular_reduce_scatter, test_hypercube_allreduce,
//     test_hypercube_broadcast: nexartest.TestRelayCollectives, also with 16 nodes
//   - test_halving_doubling_5nodes, test_halving_doubling_8nodes, test_ring_7nodes_no_tcp: internal/plan.TestEveryAlgorithmIsRight,
//     test/conformance.TestConformance
//   - test_add_and_list_peers, test_remove_peer: internal/mesh.TestGrow, internal/topology.TestRosterChanges
//   - test_heartbeat, test_check_timeouts: internal/mesh.TestShortSilence, internal/mesh.TestSilenceOverViews
package faults

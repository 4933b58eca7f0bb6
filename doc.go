// Package nexar lets the processes of a distributed Go program work together:
// each joins a cluster, gets a rank, and then exchanges messages and takes
// part in collectives such as AllReduce with all the others, without MPI, a
// launcher, cgo or any C library.
//
// Most programs do this:
//
//	node, err := nexar.Join(ctx, nexar.Config{}) // settings from the environment
//	if err != nil {
//		return err
//	}
//	defer node.Close()
//	world := node.World()
//	err = nexar.AllReduce(ctx, world, gradient, nexar.Sum) // gradient []float32
//
// The processes meet at a seed. The command "nexar run -n 4 -- PROGRAM" starts a seed
// and four processes on this host. "nexar seed" starts a seed for processes on several
// hosts, which find it by NEXAR_SEEDS; [StartSeed] does so in a program. [Local] makes
// ranks within one process, as package nexartest does for tests.
//
// # Operations
//
// Most functions that block have a sibling that starts the operation and returns a [Handle],
// such as [StartAllReduce]. [SendVec], [RecvVec], [Probe], [RecvAlloc], [BroadcastBuckets],
// [BroadcastValues], [AllReduceMean] and the collectives of one element, such as
// [AllReduceOne], only block. Before they return, [StartAllToAllV] and
// [StartAllReduceCompressed] wait until all ranks have called them, and
// [StartAllReduceBuckets] may wait for the first of many buckets.
//
// Collectives that do not reduce, and those with a function of the caller, take elements of
// any type without pointers; the others take a [Number]. Names that end in V are for blocks
// of different lengths. AllReduceBuckets is for many short vectors, AllReduceCompressed for
// slow networks, and [Comm.WithStream] for vectors on an accelerator. [Comm.Split] makes
// communicators of some of the ranks and [Comm.SplitHost] one for each host, [Comm.Call]
// calls a function of another rank, and [Config] has the settings.
//
// # Guarantees
//
// The result of a collective has the same bits on every rank that gets it.
// When ranks call different collectives, or the same one with other parameters, each
// gets a [MismatchError] with the calls of two ranks. A rank that waits for others gets
// it from that call, a rank that has done its part from its next call. Messages from
// one rank to another with the same tag arrive in order.
//
// All data between hosts is encrypted, unless Config.PlainBulk says otherwise, and both
// sides of every connection have proved their identity. Processes of one user on one
// host use shared memory, which other users cannot open. The token that admits nodes
// never crosses the network; only a cluster on loopback may have none.
//
// # Failure
//
// An operation ends when its context does. A collective ends when it has made no progress
// for longer than Config allows; a message that no rank sends or receives has no such limit.
// All operations end as soon as a
// rank of the communicator is known to have failed, which takes milliseconds if its
// process has ended. The error names the rank. An operation that fails on one rank ends
// its communicator on all ranks, so that no rank waits for one that has given up; later
// operations, and [Comm.Err], return an error that is [ErrRevoked] and has the reason.
// Use errors.Is with the sentinels of this package and errors.AsType with its error
// types to distinguish causes. Only the call that was cancelled returns the error of its
// context.
//
// The remaining nodes need not start again: after each failure [Node.Epochs] yields a
// communicator of them, within a moment.
//
// A call with a wrong parameter, such as an invalid root or length, returns at once and
// does nothing else: ranks with a correct call wait for this one until they time out.
//
// An operation returns, also with an error, only when its vectors are not used any more.
// After an error their contents are undefined. Vectors of operations in progress do not
// overlap, unless all of them only read there. dst and src of one operation overlap only
// where its documentation allows that; otherwise it returns an [ErrOverlap].
//
// # Concurrency
//
// All functions may be called from several goroutines. Collectives on one [Comm] happen
// in the order of their calls, which has to be the same on all ranks.
package nexar

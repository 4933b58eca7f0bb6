// Package nexar is a distributed runtime. Each process of a program joins a cluster, gets a
// rank, and exchanges messages, collectives such as [AllReduce] and remote calls with the other
// ranks. It needs no MPI, cgo or C library.
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
// A seed admits the processes to the cluster. The command "nexar run -n 4 -- PROGRAM" starts a
// seed and four processes on this host. For several hosts, "nexar seed" or [StartSeed] starts a
// seed, and NEXAR_SEEDS has its address. [Local] makes ranks within one process,
// and package nexartest makes ranks for tests.
//
// # Operations
//
// Most functions that block have a Start function, such as [StartAllReduce], which starts the
// operation and returns a [Handle]. [SendVec], [RecvVec], [Probe], [BroadcastBuckets],
// [BroadcastValues], [AllReduceMean], the collectives of one element, such as [AllReduceOne],
// and the functions that allocate their result, such as [RecvAlloc] and [AllGatherVAlloc], have
// none. [StartAllToAllV] and [StartAllReduceCompressed] block until all
// ranks have called them, and [StartAllReduceBuckets] may block until the first of many buckets
// are reduced.
//
// Collectives without a reduction, and those with a function of the caller, take elements of
// any type without pointers; the others take a [Number]. Package objects exchanges values of any
// type that can be encoded, such as maps. Functions with names that end in V take
// blocks of different lengths. Use [AllReduceBuckets] for many short vectors,
// [AllReduceCompressed] in slow networks, and [Comm.WithStream] for vectors on an accelerator.
// [Comm.Split] makes communicators of some of the ranks, [Comm.SplitHost] makes one for each
// host, and [Comm.Call] calls a function of another rank. [Config] has the settings.
//
// # Guarantees
//
// The result of a collective has the same bits on all ranks that get it. If ranks call different
// collectives, or the same one with different parameters, each gets a [MismatchError] with the
// calls of two ranks: from that call if it has not returned yet, otherwise from the next call.
// Messages from one rank to another with the same tag are received in the order of the sends.
//
// All data between hosts is encrypted, unless [Config].PlainBulk is set, and both sides of every
// connection prove their identities. Processes of one user on one host use shared memory, which
// other users cannot access. The token that admits nodes is never sent over the network. Only
// clusters on a loopback address may do without a token.
//
// # Failure
//
// A collective, send, receive or probe ends when its context ends, or when it has made no progress
// for longer than [Config] allows, 30 minutes by default. Three waits have no such limit: receives
// and probes from [AnyRank], the wait of [Node.Epochs] for the next communicator, and calls that a
// device does not finish. After 10 seconds a warning in the log names the ranks that an operation
// waits for and their calls. Ranks that wait for each other get a [DeadlockError] after
// [Config].DeadlockTimeout.
// Operations that need a rank end when that rank is known to have failed, which takes
// milliseconds after the end of its process. The error names the rank.
//
// An operation that fails on one rank ends its communicator on all ranks, so that no other rank
// waits for it. Messages in progress end at once, also those between living ranks. After the failure of a rank, a collective in progress
// that needs no more data of it goes on for at most a second. Later operations, and [Comm.Err], return an error that is [ErrRevoked] and
// contains the reason. To distinguish causes, use [errors.Is] with the errors of this package and
// [errors.AsType] with its error types. Only the cancelled call returns the error of its context.
//
// The remaining nodes do not restart: after each failure [Node.Epochs] yields a communicator of
// them.
//
// A call with an invalid parameter, such as a root or a length, returns an error at once and sends
// nothing. Ranks that have made a valid call wait for this rank until they time out.
//
// When an operation returns, also with an error, its vectors are not used any more. After an error
// their contents are undefined. Vectors of operations in progress must not overlap, unless all of
// them are only read. dst and src of one operation may overlap only where its documentation allows
// that; otherwise it returns [ErrOverlap].
//
// # Concurrency
//
// All functions may be called concurrently. Collectives on one [Comm] take place in the order of
// their calls, which must be the same on all ranks.
package nexar

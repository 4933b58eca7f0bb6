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
// A seed brings the processes together: the command "nexar run -n 4 --
// PROGRAM" starts one and four processes on this host, "nexar seed" starts one
// that processes on several hosts name in NEXAR_SEEDS, and StartSeed is the
// same for programs. Local makes ranks within one process, and package
// nexartest does so for tests.
//
// # What there is
//
// Every collective, and Send, Recv and Exchange, have a function that blocks and
// one that begins with Start and returns a Handle; SendVec, RecvVec and Probe only
// block. Of the others StartAllToAllV and StartAllReduceCompressed wait until all
// ranks have called them, and StartAllReduceBuckets may have to wait for the first
// of many buckets, before they return. Those that move data without reducing
// it take elements of any type without pointers. Names that end in V are for
// blocks of different lengths. AllReduceBuckets is for many short vectors,
// AllReduceCompressed for networks that are slower than the computation between
// them, and Comm.On for vectors on an accelerator. Comm.Split makes
// communicators of some of the ranks, Comm.Call calls a function of another
// rank, and Config says how all of it behaves.
//
// # Guarantees
//
// The result of a collective has the same bits on every rank that gets it.
// When ranks call different collectives, or the same one with other
// parameters, each gets a MismatchError that says who called what: a rank that
// waits for others from that call, one whose part had been done from its next.
// Messages from one rank to another with the same tag arrive in order.
//
// Everything between hosts is encrypted, unless Config.PlainBulk says
// otherwise, and both sides of every connection have proved which node they
// are. Processes of one user on one host talk through shared memory, where no
// other user gets at it. The token that admits nodes never crosses the
// network; only a cluster on loopback can do without.
//
// # Failure
//
// Nothing waits for ever: operations end when their context does, collectives
// when they have made no progress for longer than Config allows, and all as
// soon as a rank of the communicator is known to have failed, which for a
// process that ends is within milliseconds. The error names the rank. An
// operation that fails on one rank ends its communicator on all ranks, so that
// no rank waits for one that has given up; later operations, and Comm.Err,
// return an error that is ErrRevoked and says why. Package errors tells causes
// apart: errors.Is with the sentinels of this package, errors.AsType with its
// error types. Only the call that was cancelled itself is the error of its
// context.
//
// The nodes that are left need not start again: Node.Epochs yields a communicator
// of them, within a moment, after each failure.
//
// A call with a parameter that cannot be right, an invalid root or length,
// returns at once and does nothing else: ranks that have made the call rightly
// wait for this one until they time out.
//
// An operation returns, also with an error, only when nothing uses its vectors
// any more. After an error their contents are undefined. Vectors of operations
// under way do not overlap, unless all of them only read there. dst and src of one
// operation overlap only where it says so, in place; otherwise it returns an
// ErrOverlap.
//
// # Concurrency
//
// All functions may be called from several goroutines. Collectives on one
// Comm happen in the order in which they are called, which has to be the same
// on all ranks.
package nexar

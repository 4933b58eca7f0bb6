// Package examples holds small programs, each in a directory of its own:
//
//	send_recv    messages from rank to rank, around a ring
//	allreduce    the mean of a gradient over all ranks
//	broadcast    the same weights on all ranks
//	barrier      no rank continues before the last one has arrived
//	overlap      communication beside computation, and the time that it saves
//	rpc          a key-value store sharded over the ranks
//	train        data-parallel training of a network on real data
//	seed_worker  a seed and its workers as on several hosts
//
// Run each with the command in its doc comment. A failure ends the program with a message, and the
// other ranks get an error.
package examples

// Package examples holds small programs, each in a directory of its own:
//
//	send_recv    messages from rank to rank, around a ring
//	allreduce    the mean of a gradient over all ranks
//	broadcast    the same weights on all ranks
//	barrier      no rank leaves a barrier before the last one has entered it
//	overlap      communication during computation, and the time that it saves
//	rpc          a key-value store sharded over the ranks
//	wordcount    the words of a text, counted by all ranks
//	train        data-parallel training of a network on real data
//	elastic      training that continues when ranks fail, join and leave
//	seed_worker  a seed and its workers on several hosts, without the nexar command
//
// The directory transport_unix, a module of its own, has a transport over unix sockets.
//
// The doc comment of each program has the command to run it. A program exits with a message when an
// operation fails, and the other ranks get an error.
package examples

// Package examples holds small programs, each in a directory of its own:
//
//	send_recv    messages from rank to rank, around a ring
//	allreduce    the mean of a gradient over all ranks
//	broadcast    the same weights on all ranks
//	barrier      nobody goes on before the last has come
//	overlap      communication beside computation, and what that saves
//	rpc          a key-value store that is divided among the ranks
//	train        data-parallel training of a network on real data
//	seed_worker  a seed and its workers as on several hosts
//
// There is nothing to call. Run one with the command in its comment, and copy
// what you need. All that fails ends the program with a message; the ranks
// that are left learn of it from nexar.
package examples

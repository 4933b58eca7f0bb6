// Package ddp trains a model on all ranks of a communicator, data-parallel: each rank computes the gradients of its samples, and all ranks get
// the mean over the samples of all of them, while they still compute.
//
// A Model has the parameters and gradients of a program, as plain slices:
//
//	m, err := ddp.New(ctx, comm, []ddp.Param[float32]{
//		{Name: "w", Data: w, Grad: gw},
//		{Name: "b", Data: b, Grad: gb},
//	}, ddp.Config{})
//	defer m.Close()
//	for batch := range sampler.Batches(comm.Rank(), comm.Size()) {
//		if _, err := m.Begin(ctx, len(batch)); err != nil {
//			return err
//		}
//		backward(batch, func(i int) { m.Ready(i) }) // sets gb, calls Ready(1), sets gw, calls Ready(0)
//		if _, err := m.Finish(ctx); err != nil {
//			return err
//		}
//		update(w, gw)
//		update(b, gb)
//	}
//
// All ranks have the same bits in Data after [New] and in Grad after [Model.Finish], so all make the same update.
//
// # Overlap
//
// Gradients are reduced in buckets of [Config.BucketBytes]. The reduction of a bucket starts when [Model.Ready] was called for its last gradient, so
// most of the communication takes place during the backward pass (Li et al., "PyTorch Distributed: Experiences on Accelerating
// Data Parallel Training", VLDB 2020). The first step learns the order of the calls of Ready, and later buckets follow it. With
// [nexar.Config.Deterministic] the order is always that of the parameters from the last to the first, so that all runs have the same buckets and bits.
//
// # Accumulation
//
// [Model.Ready] has no effect before [Model.Begin]. A program that accumulates gradients over several passes calls Begin before the last one, with the
// number of samples of all passes.
//
// # Uneven batches
//
// Ranks may have different numbers of samples, and a rank at the end of its data has none: its gradients are ignored. When no
// rank has samples left, Begin returns 0 on all ranks.
//
// # Elastic worlds
//
// [Run] trains while nodes die, leave and join: it goes on from the last complete step, and a [Sampler] gives each sample of
// an epoch to exactly one rank, for any number of ranks.
//
// # Errors
//
// Errors of a communicator are those of package nexar, and end the Model. Errors of this package are the same on all ranks, and the Model can
// still be used.
package ddp

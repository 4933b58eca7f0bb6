package nexar

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/bucket"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/plan"
)

// StartBroadcast starts a [DeviceComm.Broadcast]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartBroadcast(ctx context.Context, t device.Type, data device.Region, root int) *Handle {
	return d.start(ctx, call{plan.Broadcast, 0, root}, t, data)
}

// StartReduce starts a [DeviceComm.Reduce]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartReduce(ctx context.Context, t device.Type, data device.Region, op Op, root int) *Handle {
	return d.start(ctx, call{plan.Reduction, op, root}, t, data)
}

// StartAllReduce starts a [DeviceComm.AllReduce]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartAllReduce(ctx context.Context, t device.Type, data device.Region, op Op) *Handle {
	return d.start(ctx, call{plan.AllReduce, op, 0}, t, data)
}

// StartScan starts a [DeviceComm.Scan]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartScan(ctx context.Context, t device.Type, data device.Region, op Op) *Handle {
	return d.start(ctx, call{plan.Scan, op, 0}, t, data)
}

// StartExclusiveScan starts a [DeviceComm.ExclusiveScan]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartExclusiveScan(ctx context.Context, t device.Type, data device.Region, op Op) *Handle {
	return d.start(ctx, call{plan.ExclusiveScan, op, 0}, t, data)
}

// StartGather starts a [DeviceComm.Gather]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartGather(ctx context.Context, t device.Type, dst, src device.Region, root int) *Handle {
	return d.start(ctx, call{plan.Gather, 0, root}, t, dst, src)
}

// StartAllGather starts a [DeviceComm.AllGather]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartAllGather(ctx context.Context, t device.Type, dst, src device.Region) *Handle {
	return d.start(ctx, call{plan.AllGather, 0, 0}, t, dst, src)
}

// StartScatter starts a [DeviceComm.Scatter]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartScatter(ctx context.Context, t device.Type, dst, src device.Region, root int) *Handle {
	return d.start(ctx, call{plan.Scatter, 0, root}, t, dst, src)
}

// StartReduceScatter starts a [DeviceComm.ReduceScatter]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartReduceScatter(ctx context.Context, t device.Type, dst, src device.Region, op Op) *Handle {
	return d.start(ctx, call{plan.ReduceScatter, op, 0}, t, dst, src)
}

// StartAllToAll starts a [DeviceComm.AllToAll]; see [DeviceComm] for Start methods.
func (d DeviceComm) StartAllToAll(ctx context.Context, t device.Type, dst, src device.Region) *Handle {
	return d.start(ctx, call{plan.AllToAll, 0, 0}, t, dst, src)
}

// start starts a call.
func (d DeviceComm) start(ctx context.Context, c call, typ device.Type, regions ...device.Region) *Handle {
	operands, t, err := d.check(c, typ, regions)
	loaded := t
	if err == nil {
		loaded, err = d.loadCall(ctx, c, operands)
	}
	if err != nil {
		free(operands)
		return ended(opError(t.Name(), err))
	}
	return d.startLoaded(ctx, loaded, operands...)
}

// startLoaded starts a task with loaded operands. When it ends, it stores the first operand, the result, and frees all.
func (d DeviceComm) startLoaded(ctx context.Context, t *task, operands ...operand) *Handle {
	begun := d.comm.start(ctx, t)
	return d.comm.follow(func(*Handle) error {
		defer free(operands)
		if err := begun.Wait(); err != nil || t.ReadOnly {
			return err
		}
		return opError(t.Name(), d.store(ctx, operands[0].Operand, operands[0].Len()))
	})
}

// AllReduceCompressed is like the function [AllReduceCompressed], for regions. The compressor works on the
// host. Its error is an [ErrInvalidOp] as for slices, and the content of the region unchanged after every
// error but that of storing the result.
func (d DeviceComm) AllReduceCompressed(ctx context.Context, t device.Type, data device.Region, op Op, comp compress.Compressor) error {
	o, err := d.loadCompressed(ctx, t, data)
	defer o.Free()
	if err == nil {
		err = d.comm.allReduceCompressed(ctx, o.elements, o.Memory(), op, comp)
		if err != nil {
			return err // has the name of the call
		}
		err = d.store(ctx, o.Operand, o.Len())
	}
	return opError(collective.CompressedName, err)
}

// StartAllReduceCompressed starts a [DeviceComm.AllReduceCompressed]; see [DeviceComm] for Start methods,
// and the function [StartAllReduceCompressed], which describes when it waits.
func (d DeviceComm) StartAllReduceCompressed(ctx context.Context, t device.Type, data device.Region, op Op, comp compress.Compressor) *Handle {
	o, err := d.loadCompressed(ctx, t, data)
	loaded := false
	defer func() {
		if !loaded { // also if comp panics
			o.Free()
		}
	}()
	if err != nil {
		return ended(opError(collective.CompressedName, err))
	}
	begun := d.comm.startAllReduceCompressed(ctx, o.elements, o.Memory(), op, comp)
	loaded = true
	return d.comm.follow(func(h *Handle) error {
		defer o.Free()
		begun.await()
		h.guard = begun.guard // if comp has panicked, Wait does
		if begun.err != nil || begun.guard != nil {
			return begun.err
		}
		return opError(collective.CompressedName, d.store(ctx, o.Operand, o.Len()))
	})
}

// loadCompressed loads a vector as one aligned piece of memory of the host.
func (d DeviceComm) loadCompressed(ctx context.Context, t device.Type, data device.Region) (operand, error) {
	o := d.operand(t, []device.Region{data})
	if err := o.Err(); err != nil {
		return o, err
	}
	o.Read, o.Joined = true, true
	return o, d.load(ctx, true, o.Operand)
}

// AllReduceBuckets is like the function [AllReduceBuckets], for regions. The device copies short vectors
// straight to their places in a bucket, and results back, so there is no copy but those to and from the
// host. Ranks with slices may take part.
func (d DeviceComm) AllReduceBuckets(ctx context.Context, t device.Type, vectors []device.Region, op Op) error {
	return d.StartAllReduceBuckets(ctx, t, vectors, op).Wait()
}

// StartAllReduceBuckets starts a [DeviceComm.AllReduceBuckets]; see [DeviceComm] for Start methods. Like
// the function [StartAllReduceBuckets], it returns when all buckets have been started, at most eight at
// a time; long vectors count here, since they take staging memory.
func (d DeviceComm) StartAllReduceBuckets(ctx context.Context, t device.Type, vectors []device.Region, op Op) *Handle {
	lengths, err := d.checkBuckets(t, vectors, op)
	if err != nil {
		return ended(opError(collective.BucketsName, err))
	}
	digest := engine.Digest(lengths)
	var inFlight []*Handle
	var first error
	wait := func(n int) {
		for len(inFlight) > n {
			if err := inFlight[0].Wait(); first == nil {
				first = err
			}
			inFlight = inFlight[1:]
		}
	}
	for number, list := range bucket.Split(lengths, max(1, d.comm.node.config.BucketBytes/t.Size())) {
		wait(bucket.Most - 1)
		if first != nil {
			break // the communicator has ended, or the device has failed and ended it
		}
		regions := make([]device.Region, len(list))
		for i, at := range list {
			regions[i] = vectors[at]
		}
		inFlight = append(inFlight, d.startBucket(ctx, t, regions, op, digest+uint32(number)))
	}
	return d.comm.follow(func(*Handle) error {
		wait(0)
		return first
	})
}

// startBucket starts the all-reduce of a bucket.
func (d DeviceComm) startBucket(ctx context.Context, typ device.Type, regions []device.Region, op Op, digest uint32) *Handle {
	o := d.operand(typ, regions)
	o.Read, o.Joined = true, true
	err := o.Err()
	if err == nil {
		err = d.load(ctx, true, o.Operand)
	}
	if err != nil {
		o.Free()
		return ended(opError(collective.BucketsName, err))
	}
	t := d.task(call{plan.AllReduce, op, 0}, o.elements)
	t.Digest, t.Data = digest, o.Memory()
	return d.startLoaded(ctx, t, o)
}

// checkBuckets returns the numbers of elements of vectors, or an error that all ranks have.
func (d DeviceComm) checkBuckets(t device.Type, vectors []device.Region, op Op) (lengths []int, err error) {
	lengths = make([]int, len(vectors))
	for i := range vectors {
		o := d.operand(t, vectors[i:i+1])
		err := o.Err()
		if err == nil {
			err = d.task(call{plan.AllReduce, op, 0}, o.elements).Err
		}
		if err != nil {
			return nil, fmt.Errorf("vector %d: %w", i, err)
		}
		lengths[i] = o.N
	}
	o := d.operand(t, vectors)
	if err := o.Err(); err != nil {
		return nil, err
	}
	if o.Tangled() {
		return nil, fmt.Errorf("%w: two vectors share memory of the device", ErrOverlap)
	}
	return lengths, nil
}

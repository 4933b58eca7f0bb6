package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// A rank measures one rank of the communicator. Its buffers fit the largest cell.
type rank struct {
	comm     *nexar.Comm
	oracle   *oracle
	dst, src []float32
	device   *deviceMemory // nil for vectors in memory of the host
}

func newRank(c *nexar.Comm, cells []cell) *rank {
	r := &rank{comm: c, oracle: newOracle()}
	dst, src := 0, 0
	for _, cell := range cells {
		v := cell.op.vectors(r.place(cell))
		dst = max(dst, v.dstCount())
		src = max(src, total(v.src))
	}
	r.dst, r.src = make([]float32, dst), make([]float32, src)
	return r
}

// open allocates memory on a device, if there is one.
func (r *rank) open(ctx context.Context, s device.Stream) (err error) {
	if s != nil {
		r.device, err = newDeviceMemory(ctx, s, len(r.dst), len(r.src))
	}
	return err
}

// close frees the memory of the device.
func (r *rank) close() error {
	if r.device == nil {
		return nil
	}
	return r.device.free()
}

func (r *rank) place(c cell) place {
	return place{r.comm.Rank(), r.comm.Size(), int(c.bytes / elem), r.oracle}
}

func (v vectors) dstCount() int { return max(v.dstLen, total(v.dst)) }

// measure measures one cell, for about the time share. Rank 0 decides the number of runs.
func (r *rank) measure(ctx context.Context, c cell, pace pace, share time.Duration) (Result, error) {
	began := time.Now()
	v := c.op.vectors(r.place(c))
	var times []time.Duration
	wrong := 0
	for more := []int64{1}; more[0] > 0; {
		for range more[0] {
			took, bad, err := r.once(ctx, c, v)
			if err != nil {
				return Result{}, fmt.Errorf("%d bytes: %w", c.bytes, err)
			}
			times = append(times, took)
			wrong += bad
		}
		more[0] = int64(pace.more(len(times), time.Since(began), share))
		if err := nexar.Broadcast(ctx, r.comm, more, 0); err != nil {
			return Result{}, err
		}
	}
	if len(times) >= warmRunsMin {
		times = times[1:]
	}
	return r.combine(ctx, c, times, wrong)
}

// once runs a cell once. It returns the duration and the number of wrong elements.
func (r *rank) once(ctx context.Context, c cell, v vectors) (time.Duration, int, error) {
	dst, src := r.dst[:v.dstCount()], r.src[:total(v.src)]
	fill(src, v.src)
	if v.dst == nil {
		clear(dst)
	}
	fill(dst, v.dst)
	run := func() error { return c.op.run(ctx, r.comm, dst, src) }
	var result device.Region
	if r.device != nil && !c.op.empty {
		to, from, err := r.device.in(ctx, dst, src)
		if err != nil {
			return 0, 0, err
		}
		comm := onDevice{r.comm.WithStream(r.device.stream), r.comm}
		result = to
		run = func() error { return c.op.onDevice(ctx, comm, to, from) }
	}
	if err := r.comm.Barrier(ctx); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err := run()
	took := time.Since(began)
	if err == nil && r.device != nil && !c.op.empty {
		err = r.device.out(ctx, dst, result)
	}
	if err != nil {
		return 0, 0, err
	}
	return took / time.Duration(max(1, c.op.messages)), wrong(dst, v.want), nil
}

// onDevice returns the name of the device with the vectors, or "" for memory of the host.
func (r *rank) onDevice() string {
	if r.device == nil {
		return ""
	}
	return r.device.stream.Device().Name()
}

// combine combines the measurements of all ranks into one result.
func (r *rank) combine(ctx context.Context, c cell, times []time.Duration, wrong int) (Result, error) {
	slowest := []float64{quantile(times, 0.5), quantile(times, 0.99)}
	if err := nexar.AllReduce(ctx, r.comm, slowest, nexar.Max); err != nil {
		return Result{}, err
	}
	all := []int64{int64(wrong)}
	if err := nexar.AllReduce(ctx, r.comm, all, nexar.Sum); err != nil {
		return Result{}, err
	}
	result := Result{
		Device: r.onDevice(), Op: c.op.name, Ranks: r.comm.Size(), Bytes: c.bytes,
		Transport: r.comm.Transport(), Encrypted: r.comm.Encrypted(),
		Iters: len(times), P50: slowest[0], P99: slowest[1], Wrong: all[0],
	}
	result.bandwidth(c.op.bus)
	if r.device == nil && slices.Contains(Collectives(), c.op.name) {
		list, err := r.comm.Algorithms(c.op.name, int(c.bytes))
		if err != nil {
			return Result{}, err
		}
		result.Algorithm, result.Channels = list[0].Name, list[0].Channels
	}
	return result, nil
}

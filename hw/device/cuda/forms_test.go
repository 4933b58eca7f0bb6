package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// vectors are the operands of a call: memory of a device, and a slice with the same content.
type vectors struct {
	c      *nexar.Comm // of the slices
	on     nexar.DeviceComm
	slice  []float32
	region device.Region
}

// part returns n elements, of the region and of the slice.
func (v vectors) part(from, n int) (device.Region, []float32) {
	return device.Region{Buffer: v.region.Buffer, Offset: 4 * from, Bytes: 4 * n}, v.slice[from:][:n]
}

// parts returns vectors of several lengths, which do not overlap.
func (v vectors) parts() (regions []device.Region, slices [][]float32) {
	from := 0
	for _, n := range []int{1, 700, 0, 3, 40_000, 9, 1200, 5} { // some share a bucket; one is longer than a bucket
		region, slice := v.part(from, n)
		regions, slices = append(regions, region), append(slices, slice)
		from += n
	}
	return regions, slices
}

// TestForms: Start forms, and all-reduces with compression and of buckets, of ranks with a GPU and a rank without have the
// results of slices.
func TestForms(t *testing.T) {
	const n, block, bucket = 3, 14_000, 8192
	root := n - 1
	starts := func(gpu func(v vectors) *nexar.Handle, slices func(v vectors) error) func(v vectors) (error, error) {
		return func(v vectors) (error, error) { return gpu(v).Wait(), slices(v) }
	}
	ctx := t.Context()
	forms := map[string]func(v vectors) (gpu, slices error){
		"start broadcast": starts(func(v vectors) *nexar.Handle { return v.on.StartBroadcast(ctx, device.Float32, v.region, root) },
			func(v vectors) error { return nexar.Broadcast(ctx, v.c, v.slice, root) }),
		"start reduce": func(v vectors) (error, error) {
			err := v.on.StartReduce(ctx, device.Float32, v.region, nexar.Sum, root).Wait()
			return err, nexar.Reduce(ctx, v.c, v.slice, nexar.Sum, root)
		},
		"start all-reduce": starts(func(v vectors) *nexar.Handle { return v.on.StartAllReduce(ctx, device.Float32, v.region, nexar.Avg) },
			func(v vectors) error { return nexar.AllReduce(ctx, v.c, v.slice, nexar.Avg) }),
		"start scan": starts(func(v vectors) *nexar.Handle { return v.on.StartScan(ctx, device.Float32, v.region, nexar.Sum) },
			func(v vectors) error { return nexar.Scan(ctx, v.c, v.slice, nexar.Sum) }),
		"start exclusive scan": starts(func(v vectors) *nexar.Handle {
			return v.on.StartExclusiveScan(ctx, device.Float32, v.region, nexar.Sum)
		},
			func(v vectors) error { return nexar.ExclusiveScan(ctx, v.c, v.slice, nexar.Sum) }),
		"start gather": func(v vectors) (error, error) {
			dst, to := v.part(0, n*block)
			src, from := v.part(n*block, block)
			return v.on.StartGather(ctx, device.Float32, dst, src, root).Wait(), nexar.Gather(ctx, v.c, to, from, root)
		},
		"start all-gather": func(v vectors) (error, error) {
			dst, to := v.part(0, n*block)
			src, from := v.part(n*block, block)
			return v.on.StartAllGather(ctx, device.Float32, dst, src).Wait(), nexar.AllGather(ctx, v.c, to, from)
		},
		"start scatter": func(v vectors) (error, error) {
			src, from := v.part(0, n*block)
			dst, to := v.part(n*block, block)
			return v.on.StartScatter(ctx, device.Float32, dst, src, root).Wait(), nexar.Scatter(ctx, v.c, to, from, root)
		},
		"start reduce-scatter": func(v vectors) (error, error) {
			src, from := v.part(0, n*block)
			dst, to := v.part(n*block, block)
			return v.on.StartReduceScatter(ctx, device.Float32, dst, src, nexar.Sum).Wait(), nexar.ReduceScatter(ctx, v.c, to, from, nexar.Sum)
		},
		"start all-to-all": func(v vectors) (error, error) {
			dst, to := v.part(0, n*block)
			src, from := v.part(n*block, n*block)
			return v.on.StartAllToAll(ctx, device.Float32, dst, src).Wait(), nexar.AllToAll(ctx, v.c, to, from)
		},
		"buckets": func(v vectors) (error, error) {
			regions, slices := v.parts()
			return v.on.AllReduceBuckets(ctx, device.Float32, regions, nexar.Sum), nexar.AllReduceBuckets(ctx, v.c, slices, nexar.Sum)
		},
		"start buckets": func(v vectors) (error, error) {
			regions, slices := v.parts()
			return v.on.StartAllReduceBuckets(ctx, device.Float32, regions, nexar.Avg).Wait(), nexar.AllReduceBuckets(ctx, v.c, slices, nexar.Avg)
		},
	}
	for name, comp := range map[string]func() compress.Compressor{
		"none": func() compress.Compressor { return compress.None{} }, "cast": func() compress.Compressor { return compress.Cast16{} },
		"quantize": func() compress.Compressor { return compress.Quantize8{} },
	} {
		forms["compressed by "+name] = func(v vectors) (error, error) {
			err := v.on.AllReduceCompressed(ctx, device.Float32, v.region, nexar.Avg, comp())
			return err, nexar.AllReduceCompressed(ctx, v.c, v.slice, nexar.Avg, comp())
		}
		forms["start compressed by "+name] = func(v vectors) (error, error) {
			err := v.on.StartAllReduceCompressed(ctx, device.Float32, v.region, nexar.Sum, comp()).Wait()
			return err, nexar.AllReduceCompressed(ctx, v.c, v.slice, nexar.Sum, comp())
		}
	}
	drivers(t, func(t *testing.T, dr driver) {
		world := func() []*nexar.Comm {
			comms, err := nexar.Local(ctx, n, nexar.Config{BucketBytes: bucket, Deterministic: true})
			must(t, err)
			t.Cleanup(func() {
				for _, c := range comms {
					c.Close()
				}
			})
			return comms
		}
		onGPUs, onSlices := world(), world()
		devices, streams := make([]device.Device, n), make([]device.Stream, n)
		for i := range n {
			devices[i] = host.Device{}
			if i != root {
				devices[i] = dr.open(t, i%dr.gpus(t), cuda.Config{})
			}
			var err error
			streams[i], err = devices[i].NewStream()
			must(t, err)
		}
		for name, call := range forms {
			var all sync.WaitGroup
			errs := make([]error, n)
			for i := range n {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(i), 7))
					slice := make([]float32, 2*n*block)
					for k := range slice {
						slice[k] = float32(rng.NormFloat64())
					}
					data := unsafe.Slice((*byte)(unsafe.Pointer(&slice[0])), 4*len(slice))
					before := bytes.Clone(data)
					b, err := devices[i].Alloc(ctx, len(data))
					if err == nil {
						defer b.Free()
						err = devices[i].CopyIn(ctx, device.Whole(b), data)
					}
					if err == nil {
						err = errors.Join(call(vectors{onSlices[i], onGPUs[i].WithStream(streams[i]), slice, device.Whole(b)}))
					}
					got := make([]byte, len(data))
					if err == nil {
						err = devices[i].CopyOut(ctx, got, device.Whole(b))
					}
					switch {
					case err != nil:
					case !bytes.Equal(got, data):
						err = errors.New("the result differs from that of slices")
					case i == 1 && name != "start gather" && name != "start reduce" && bytes.Equal(got, before):
						err = errors.New("the call has done nothing")
					}
					if err != nil {
						errs[i] = fmt.Errorf("%s: rank %d: %w", name, i, err)
					}
				})
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		}
	})
}

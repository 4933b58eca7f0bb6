package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/test/worldtest"
)

// floats returns a vector that differs between ranks.
func floats(rank, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rank+1) * float32(i%97-48) / 8
	}
	return v
}

// place stores vectors at a spot, with a lead of bytes that is not aligned.
func (s spot) place(ctx context.Context, vectors [][]float32) (images []image, regions []device.Region, err error) {
	for _, v := range vectors {
		i, err := s.newImage(ctx, bytesOf(v), 0)
		if err != nil {
			return nil, nil, err
		}
		images, regions = append(images, i), append(regions, i.region)
	}
	return images, regions, nil
}

// onDeviceOrSlice calls f for the vectors of a rank, in buffers if the spot has a device, and reads them
// back.
func onDeviceOrSlice(ctx context.Context, c *nexar.Comm, s spot, vectors [][]float32, on func(nexar.DeviceComm, []device.Region) error, of func() error) error {
	if s.dev == nil {
		return of()
	}
	images, regions, err := s.place(ctx, vectors)
	if err != nil {
		return err
	}
	defer func() {
		for _, i := range images {
			i.region.Buffer.Free()
		}
	}()
	if err := on(c.WithStream(s.stream), regions); err != nil {
		return err
	}
	for i, v := range vectors {
		if err := s.read(ctx, images[i], bytesOf(v)); err != nil {
			return err
		}
	}
	return nil
}

// TestCompressedOnDevice: a compressed all-reduce has the same bits on devices as with slices.
func TestCompressedOnDevice(t *testing.T) {
	const n, count = 3, 4001
	comms := worldtest.Mem().Cluster(t, n, nexar.Config{})
	for name, comp := range map[string]compress.Compressor{"none": compress.None{}, "8 bits": compress.Quantize8{}, "16 bits": compress.Cast16{}} {
		want := make([][]float32, n)
		run := func(result [][]float32, spots []spot, starts bool) error {
			return worldtest.ForEach(n, func(rank int) error {
				ctx, c := t.Context(), comms[rank]
				result[rank] = floats(rank, count)
				v := [][]float32{result[rank]}
				return onDeviceOrSlice(ctx, c, spots[rank], v, func(d nexar.DeviceComm, r []device.Region) error {
					if starts {
						return d.StartAllReduceCompressed(ctx, device.Float32, r[0], nexar.Sum, comp).Wait()
					}
					return d.AllReduceCompressed(ctx, device.Float32, r[0], nexar.Sum, comp)
				}, func() error { return nexar.AllReduceCompressed(ctx, c, v[0], nexar.Sum, comp) })
			})
		}
		if err := run(want, make([]spot, n), false); err != nil {
			t.Fatal(err)
		}
		for where, arrange := range arrangements() {
			for _, starts := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/start=%v", name, where, starts), func(t *testing.T) {
					got := make([][]float32, n)
					if err := run(got, arrange(t, n), starts); err != nil {
						t.Fatal(err)
					}
					for rank := range got {
						if !bytes.Equal(bytesOf(got[rank]), bytesOf(want[rank])) {
							t.Errorf("rank %d: the bits differ from those of slices", rank)
						}
					}
				})
			}
		}
	}
}

// TestBucketsOnDevice: buckets of vectors of all lengths, with a mixture of devices and slices, have the
// bits of slices.
func TestBucketsOnDevice(t *testing.T) {
	const n = 3
	comms := worldtest.Mem().Cluster(t, n, nexar.Config{BucketBytes: 4096})
	for _, lengths := range [][]int{
		nil, {0, 0}, {1}, {5, 0, 700, 3}, {1024, 1025, 512, 513, 100, 300, 300, 1}, slices.Repeat([]int{600}, 20), slices.Repeat([]int{100}, 200),
	} {
		vectors := func(rank int) [][]float32 {
			list := make([][]float32, len(lengths))
			for i, k := range lengths {
				list[i] = floats(rank+i, k)
			}
			return list
		}
		run := func(spots []spot) (results [][][]float32, err error) {
			results = make([][][]float32, n)
			err = worldtest.ForEach(n, func(rank int) error {
				ctx, c, v := t.Context(), comms[rank], vectors(rank)
				results[rank] = v
				err := onDeviceOrSlice(ctx, c, spots[rank], v, func(d nexar.DeviceComm, r []device.Region) error {
					return d.AllReduceBuckets(ctx, device.Float32, r, nexar.Sum)
				}, func() error { return nexar.AllReduceBuckets(ctx, c, v, nexar.Sum) })
				if err != nil {
					c.Close()
				}
				return err
			})
			return results, err
		}
		want, err := run(make([]spot, n))
		if err != nil {
			t.Fatal(err)
		}
		for where, arrange := range arrangements() {
			t.Run(fmt.Sprintf("%d vectors/%s", len(lengths), where), func(t *testing.T) {
				got, err := run(arrange(t, n))
				if err != nil {
					t.Fatal(err)
				}
				for rank := range got {
					for i := range lengths {
						if !bytes.Equal(bytesOf(got[rank][i]), bytesOf(want[rank][i])) {
							t.Errorf("rank %d, vector %d: the bits differ from those of slices", rank, i)
						}
					}
				}
			})
		}
	}
}

// TestInvalidStartOnDevice: invalid arguments of Start methods are errors of the Handle, and the
// communicator can still be used.
func TestInvalidStartOnDevice(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 1, nexar.Config{})
	fake := newFake(t, devicetest.FakeConfig{})
	s := newSpot(t, fake)
	ctx, d := t.Context(), comms[0].WithStream(s.stream)
	b, err := fake.Alloc(ctx, 64)
	if err != nil {
		t.Fatal(err)
	}
	whole := device.Whole(b)
	part := device.Region{Buffer: b, Offset: 32, Bytes: 8}
	for what, test := range map[string]struct {
		h    *nexar.Handle
		want error
	}{
		"type":                {d.StartAllReduce(ctx, 0, whole, nexar.Sum), nexar.ErrInvalidType},
		"op":                  {d.StartAllReduce(ctx, device.Float32, whole, 99), nexar.ErrInvalidOp},
		"overlap of blocks":   {d.StartAllToAll(ctx, device.Int8, part, part), nexar.ErrOverlap},
		"overlap of vectors":  {d.StartAllReduceBuckets(ctx, device.Int8, []device.Region{whole, part}, nexar.Sum), nexar.ErrOverlap},
		"type of vectors":     {d.StartAllReduceBuckets(ctx, 0, []device.Region{part}, nexar.Sum), nexar.ErrInvalidType},
		"no compressor":       {d.StartAllReduceCompressed(ctx, device.Float32, whole, nexar.Sum, nil), nexar.ErrInvalidOp},
		"compressed integers": {d.StartAllReduceCompressed(ctx, device.Int32, whole, nexar.Max, compress.Quantize8{}), nexar.ErrInvalidOp},
	} {
		if err := test.h.Wait(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", what, err, test.want)
		}
	}
	if err := d.StartAllReduce(ctx, device.Float32, whole, nexar.Max).Wait(); err != nil {
		t.Errorf("after invalid arguments: %v", err)
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	if err := d.StartAllReduce(ctx, device.Float32, whole, nexar.Max).Wait(); !errors.Is(err, device.ErrFreed) {
		t.Errorf("freed buffer: %v, want ErrFreed", err)
	}
	if st := fake.Stats(); st.Stagings != 0 {
		t.Errorf("%d stagings are left", st.Stagings)
	}
}

// TestStartOnDeviceOverlaps: several operations are in progress on one stream.
func TestStartOnDeviceOverlaps(t *testing.T) {
	const n, parts, count = 2, 6, 1000
	comms := worldtest.Mem().Cluster(t, n, nexar.Config{})
	err := worldtest.ForEach(n, func(rank int) error {
		ctx := t.Context()
		s := newSpot(t, newFake(t, devicetest.FakeConfig{Name: fmt.Sprintf("fake:%d", rank)}))
		b, err := s.dev.Alloc(ctx, 4*parts*count)
		if err != nil {
			return err
		}
		defer b.Free()
		v := floats(rank, parts*count)
		if err := s.dev.CopyIn(ctx, device.Whole(b), bytesOf(v)); err != nil {
			return err
		}
		var handles []*nexar.Handle
		for i := range parts {
			r := device.Region{Buffer: b, Offset: 4 * i * count, Bytes: 4 * count}
			handles = append(handles, comms[rank].WithStream(s.stream).StartAllReduce(ctx, device.Float32, r, nexar.Sum))
		}
		if err := nexar.WaitAll(handles...); err != nil {
			return err
		}
		if err := s.dev.CopyOut(ctx, bytesOf(v), device.Whole(b)); err != nil {
			return err
		}
		for i, x := range floats(0, parts*count) {
			if v[i] != 3*x {
				return fmt.Errorf("element %d is %v, want %v", i, v[i], 3*x)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package nccl

import (
	"bytes"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// TestOneRank: a communicator of NCCL with one rank makes all calls of the library, whose results are the inputs. With NCCL
// itself TestCollectivesOfProcesses makes these calls, since a Group uses it for two ranks or more. NCCL 2.28.3 failed with an
// undefined result code in a communicator of one rank, when NCCL still wrote new communicators to the stack of a goroutine.
func TestOneRank(t *testing.T) {
	driver, library := cudafake.New(t).Path, cudafake.NCCL(t)
	comms, err := nexar.Local(t.Context(), 1, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := cuda.Open(0, cuda.Config{Library: driver})
	if err != nil {
		t.Fatal(err)
	}
	defer gpu.Close()
	stream, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	g := &Group{
		comm: comms[0], local: comms[0], cross: comms[0], stream: stream, gpu: gpu, hosts: [][]int{{0}}, inOrder: true, limited: true,
		cfg: Config{Timeout: time.Minute},
	}
	defer g.Close()
	g.inside = byNCCL{g}
	if g.lib, err = open(library); err != nil {
		t.Fatal(err)
	}
	if g.handle, err = cuda.Handle(stream); err != nil {
		t.Fatal(err)
	}
	if err := g.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	const n = 4800
	b, err := gpu.Alloc(t.Context(), 2*n)
	if err != nil {
		t.Fatal(err)
	}
	input := make([]byte, n)
	for i := range input {
		input[i] = byte(i % 59) // no NaN of any type
	}
	first, second := part(device.Whole(b), 0, n), part(device.Whole(b), n, n)
	for _, typ := range []device.Type{device.Float32, device.Int8, device.Uint64} {
		for name, call := range map[string]func(batch *Batch){
			"all_reduce":     func(b *Batch) { b.AllReduce(typ, second, nexar.Sum) },
			"average":        func(b *Batch) { b.AllReduce(typ, second, nexar.Avg) },
			"broadcast":      func(b *Batch) { b.Broadcast(typ, second, 0) },
			"reduce":         func(b *Batch) { b.Reduce(typ, second, nexar.Sum, 0) },
			"all_gather":     func(b *Batch) { b.AllGather(typ, second, first) },
			"reduce_scatter": func(b *Batch) { b.ReduceScatter(typ, second, first, nexar.Sum) },
			"all_to_all":     func(b *Batch) { b.AllToAll(typ, second, first) },
		} {
			for _, r := range []device.Region{first, second} {
				if err := gpu.CopyIn(t.Context(), r, input); err != nil {
					t.Fatal(err)
				}
			}
			if name == "all_gather" || name == "reduce_scatter" || name == "all_to_all" {
				if err := gpu.CopyIn(t.Context(), second, make([]byte, n)); err != nil {
					t.Fatal(err)
				}
			}
			batch := g.Batch()
			call(batch)
			if err := batch.Run(t.Context()); err != nil {
				t.Fatalf("%s of %v: %v", name, typ, err)
			}
			got := make([]byte, n)
			if err := gpu.CopyOut(t.Context(), got, second); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, input) {
				t.Errorf("%s of %v: the result differs from the input", name, typ)
			}
		}
	}
}

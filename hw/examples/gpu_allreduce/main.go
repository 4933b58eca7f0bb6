// Command gpu_allreduce averages a gradient in the memory of GPUs over all ranks. Each rank uses the GPU with its
// number on its host; ranks may share one. In a clone of the repository:
//
//	go build -o nexar ./cmd/nexar
//	(cd hw && go build -o .. ./examples/gpu_allreduce)
//	./nexar run -n 4 -- ./gpu_allreduce --elements 10000000
//
// Each rank prints how the ranks of its host exchanged data: by NCCL ("nccl"), directly between GPUs ("peer"), or
// through memory of the host ("host"), and why not by NCCL.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

// options are the values of the flags.
type options struct {
	elements, local int
	driver, nccl    string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("gpu_allreduce", flag.ContinueOnError)
	flags.IntVar(&o.elements, "elements", 1_000_000, "number of elements of the gradient")
	flags.IntVar(&o.local, "local", 0, "number of ranks in this process, without a cluster")
	flags.StringVar(&o.driver, "driver", "", "`file` of the CUDA driver (default: libcuda.so.1)")
	flags.StringVar(&o.nccl, "nccl", "", "`file` of NCCL (default: libnccl.so.2)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.elements < 1 || o.local < 0 {
		return fmt.Errorf("--elements %d, --local %d: must be at least 1 and 0", o.elements, o.local)
	}
	// Before the ranks start, so that the process reports a missing driver or GPU once.
	gpus, err := cuda.List(o.driver)
	if err == nil && len(gpus) == 0 {
		err = errors.New("no GPU: see CUDA_VISIBLE_DEVICES")
	}
	if err != nil {
		return fmt.Errorf("%w; see 'nexar-hw doctor'", err)
	}
	var comms []*nexar.Comm
	if o.local > 0 {
		if comms, err = nexar.Local(ctx, o.local, nexar.Config{}); err != nil {
			return err
		}
	} else {
		node, err := nexar.Join(ctx, nexar.Config{})
		if err != nil {
			return err
		}
		defer node.Close()
		comms = []*nexar.Comm{node.World()}
	}
	errs := make([]error, len(comms))
	var ranks sync.WaitGroup
	for i, c := range comms {
		ranks.Go(func() { errs[i] = errors.Join(o.average(ctx, c, len(gpus), out), c.Close()) })
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// average runs a rank, with one of the GPUs of the process.
func (o options) average(ctx context.Context, c *nexar.Comm, gpus int, out io.Writer) error {
	gpu, err := cuda.Open(c.LocalRank()%gpus, cuda.Config{Library: o.driver})
	if err != nil {
		return err
	}
	defer gpu.Close()
	stream, err := gpu.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	group, err := nccl.New(ctx, c, stream, nccl.Config{Library: o.nccl})
	if err != nil {
		return err
	}
	defer group.Close()

	// A program that computes on the GPU has its gradient there.
	gradient, err := gpu.Alloc(ctx, 4*o.elements)
	if err != nil {
		return err
	}
	defer func() { _ = gradient.Free() }()
	data := make([]byte, 0, 4*o.elements)
	for range o.elements {
		data = binary.NativeEndian.AppendUint32(data, math.Float32bits(float32(c.Rank())))
	}
	if err := gpu.CopyIn(ctx, device.Whole(gradient), data); err != nil {
		return err
	}

	if err := group.AllReduce(ctx, device.Float32, device.Whole(gradient), nexar.Avg); err != nil {
		return err
	}

	if err := gpu.CopyOut(ctx, data, device.Whole(gradient)); err != nil {
		return err
	}
	inside, reason := group.Inside(), ""
	if inside == "" {
		inside = "host"
	}
	if group.Reason() != "" {
		reason = " (not by NCCL: " + group.Reason() + ")"
	}
	mean := math.Float32frombits(binary.NativeEndian.Uint32(data[len(data)-4:]))
	_, err = fmt.Fprintf(out, "rank %d of %d on %s: the mean gradient is %v, by %s%s\n", c.Rank(), c.Size(), gpu.Info().Name, mean, inside, reason)
	return err
}

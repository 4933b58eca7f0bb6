// Command train trains a small network on handwritten digits, like the command of the same name without hardware
// (folder examples), and sums the gradients in the memory of GPUs:
//
//	go build -o nexar ./cmd/nexar
//	(cd hw && go build -o .. ./examples/train)
//	./nexar run -n 4 -- ./train --device cuda
//
// The network is computed by the processor, and each gradient is copied to the GPU and back. A program that
// computes on the GPU has it there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/mlp"
	"github.com/nexar-go/nexar/examples/train/sgd"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
)

func main() {
	log.SetFlags(0)
	o, err := parse(os.Args[1:])
	if err == nil {
		err = o.run(context.Background(), os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

// options are the values of the flags, the same on all ranks.
type options struct {
	device        string
	epochs, local int
	driver, nccl  string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("train", flag.ContinueOnError)
	flags.StringVar(&o.device, "device", "host", "where gradients are summed: host or cuda")
	flags.IntVar(&o.epochs, "epochs", 30, "number of passes over the images")
	flags.IntVar(&o.local, "local", 0, "number of ranks in this process, without a cluster")
	flags.StringVar(&o.driver, "driver", "", "`file` of the CUDA driver (default: libcuda.so.1)")
	flags.StringVar(&o.nccl, "nccl", "", "`file` of NCCL (default: libnccl.so.2)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.device != "host" && o.device != "cuda":
		return o, fmt.Errorf("--device %s: must be host or cuda", o.device)
	case o.epochs < 1:
		return o, fmt.Errorf("--epochs %d: must be at least 1", o.epochs)
	case o.local < 0:
		return o, fmt.Errorf("--local %d: must not be negative", o.local)
	}
	return o, nil
}

// run runs all ranks of this process.
func (o options) run(ctx context.Context, out io.Writer) error {
	gpus := 0
	if o.device == "cuda" {
		// Before the ranks start, so that the process reports a missing driver or GPU once.
		var err error
		if gpus, err = count(o.driver); err != nil {
			return err
		}
	}
	var comms []*nexar.Comm
	if o.local > 0 {
		var err error
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
		ranks.Go(func() {
			// Close ends the wait of other ranks for a failed one.
			errs[i] = errors.Join(o.train(ctx, c, gpus, out), c.Close())
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// count returns the number of GPUs that this process may use, at least 1, or an error with a hint.
func count(driver string) (int, error) {
	gpus, err := cuda.List(driver)
	if err == nil && len(gpus) == 0 {
		err = errors.New("no GPU: see CUDA_VISIBLE_DEVICES")
	}
	if err != nil {
		return 0, fmt.Errorf("--device cuda: %w; use --device host, or see 'nexar-hw doctor'", err)
	}
	return len(gpus), nil
}

// train runs the training on one rank, with one of the GPUs of the process, if there are any. Rank 0 prints.
func (o options) train(ctx context.Context, c *nexar.Comm, gpus int, out io.Writer) error {
	const (
		seed, held    = 1, 0.2
		hidden, decay = 64, 1e-3
		rate          = 0.2
	)
	if c.Rank() != 0 {
		out = io.Discard
	}
	all, err := digits.Load()
	if err != nil {
		return err
	}
	train, test := all.Split(seed, held)
	net := mlp.New(seed, digits.Pixels, hidden, digits.Classes)
	cfg := sgd.Config{Decay: decay, Seed: seed}
	if o.device == "cuda" {
		g, err := o.open(ctx, c, gpus)
		if err != nil {
			return err
		}
		defer g.close()
		cfg.Reduce = func(ctx context.Context, _ int, gradient []float32) error { return g.sum(ctx, gradient) }
		fmt.Fprintf(out, "gradients on %s, inside hosts by %q; %s\n", g.gpu.Info().Name, g.group.Inside(), g.group.Reason())
	}
	trainer, err := sgd.New(ctx, c, net, cfg)
	if err != nil {
		return err
	}
	for epoch := range o.epochs {
		seen, err := trainer.Epoch(ctx, train, sgd.Falling(rate, epoch, o.epochs))
		if err != nil {
			return err
		}
		unseen, err := trainer.Test(ctx, test)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "epoch %2d: training loss %.4f, test loss %.4f, test accuracy %.1f%%\n", epoch+1, seen.Loss, unseen.Loss, 100*unseen.Accuracy)
	}
	digest, err := trainer.Digest(ctx)
	if err == nil {
		fmt.Fprintf(out, "weights %016x, the same bits on all ranks\n", digest)
	}
	return err
}

// gradients are the memory of the GPU of a rank.
type gradients struct {
	gpu    *cuda.Device
	stream device.Stream
	group  *nccl.Group
	buffer device.Buffer
}

// open opens the GPU with the number of the rank on its host. Ranks share GPUs if there are fewer than ranks.
func (o options) open(ctx context.Context, c *nexar.Comm, gpus int) (g *gradients, err error) {
	g = new(gradients)
	if g.gpu, err = cuda.Open(c.LocalRank()%gpus, cuda.Config{Library: o.driver}); err != nil {
		return nil, err
	}
	if g.stream, err = g.gpu.NewStream(); err == nil {
		g.group, err = nccl.New(ctx, c, g.stream, nccl.Config{Library: o.nccl})
	}
	if err != nil {
		return nil, errors.Join(err, g.gpu.Close())
	}
	return g, nil
}

// close frees the memory of the GPU.
func (g *gradients) close() {
	_ = g.group.Close()
	_ = g.gpu.Close() // with its buffers and streams
}

// sum sums a gradient over all ranks.
func (g *gradients) sum(ctx context.Context, gradient []float32) (err error) {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(gradient))), 4*len(gradient))
	if g.buffer == nil || g.buffer.Len() < len(data) {
		if g.buffer != nil {
			if err := g.buffer.Free(); err != nil {
				return err
			}
		}
		if g.buffer, err = g.gpu.Alloc(ctx, len(data)); err != nil {
			return err
		}
	}
	r := device.Region{Buffer: g.buffer, Bytes: len(data)}
	if err := g.gpu.CopyIn(ctx, r, data); err != nil {
		return err
	}
	if err := g.group.AllReduce(ctx, device.Float32, r, nexar.Sum); err != nil {
		return err
	}
	return g.gpu.CopyOut(ctx, data, r)
}

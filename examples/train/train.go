package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/mlp"
	"github.com/nexar-go/nexar/examples/train/sgd"
)

const (
	hidden = 64
	// decay keeps the weights small, and reduces the loss on the test set.
	decay = 1e-3
)

// train runs the training on one rank. Rank 0 prints.
func (o options) train(ctx context.Context, c *nexar.Comm, sets *sets, out io.Writer) error {
	if c.Rank() != 0 {
		out = io.Discard
	}
	compressor, err := sgd.CompressorOf(o.compress, o.seed)
	if err != nil {
		return err
	}
	net := mlp.New(o.seed, digits.Pixels, hidden, digits.Classes)
	trainer, err := sgd.New(ctx, c, net, sgd.Config{Batch: o.batch, Decay: decay, Seed: o.seed, Compressor: compressor})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ranks: %d; training images: %d; test images: %d\n", c.Size(), sets.train.Len(), sets.test.Len())
	fmt.Fprintf(out, "parameters: %d; gradients: %s\n", net.Params(), sends(net, compressor))

	began := time.Now()
	if err := o.learn(ctx, trainer, sets, out); err != nil {
		return err
	}
	took := time.Since(began)
	digest, err := trainer.Digest(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "weights %016x, the same bits on all ranks, after %.1f s\n", digest, took.Seconds())
	return nil
}

// learn runs all epochs and prints the losses.
func (o options) learn(ctx context.Context, trainer *sgd.Trainer, sets *sets, out io.Writer) error {
	for epoch := range o.epochs {
		seen, err := trainer.Epoch(ctx, sets.train, sgd.Falling(o.rate, epoch, o.epochs))
		if err != nil {
			return err
		}
		unseen, err := trainer.Test(ctx, sets.test)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "epoch %2d: training loss %.4f, test loss %.4f, test accuracy %.1f%%\n", epoch+1, seen.Loss, unseen.Loss, 100*unseen.Accuracy)
	}
	return nil
}

// sends describes the bytes that a rank contributes to a step.
func sends(net *mlp.Network, compressor func(layer int) compress.Compressor) string {
	const bytesOfFloat32 = 4
	whole := bytesOfFloat32 * net.Params()
	if compressor == nil {
		return fmt.Sprintf("%d bytes for each rank and step", whole)
	}
	most := 0
	for i, l := range net.Layers {
		most += compressor(i).MaxBytes(len(l.Params))
	}
	return fmt.Sprintf("%d bytes for each rank and step, compressed to at most %d", whole, most)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/examples/train/curve"
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
func (o options) train(ctx context.Context, c *nexar.Comm, sets *sets, out io.Writer) (err error) {
	if c.Rank() != 0 {
		out, o.plot = io.Discard, ""
	}
	// The file is created first, so that an error is reported before the training.
	drawing, err := o.create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drawing.Close()) }()
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
	lines, err := o.learn(ctx, trainer, sets, out)
	if err != nil {
		return err
	}
	took := time.Since(began)
	digest, err := trainer.Digest(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "weights %016x, the same bits on all ranks, after %.1f s\n", digest, took.Seconds())
	return curve.Draw(drawing, "loss", lines...)
}

// learn runs all epochs and returns the losses.
func (o options) learn(ctx context.Context, trainer *sgd.Trainer, sets *sets, out io.Writer) ([]curve.Line, error) {
	training, test := curve.Line{Name: "training set"}, curve.Line{Name: "test set"}
	for epoch := range o.epochs {
		seen, err := trainer.Epoch(ctx, sets.train, sgd.Falling(o.rate, epoch, o.epochs))
		if err != nil {
			return nil, err
		}
		unseen, err := trainer.Test(ctx, sets.test)
		if err != nil {
			return nil, err
		}
		training.Values, test.Values = append(training.Values, seen.Loss), append(test.Values, unseen.Loss)
		fmt.Fprintf(out, "epoch %2d: training loss %.4f, test loss %.4f, test accuracy %.1f%%\n", epoch+1, seen.Loss, unseen.Loss, 100*unseen.Accuracy)
	}
	return []curve.Line{training, test}, nil
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

// create creates the file of the plot, or returns a writer that discards it.
func (o options) create() (io.WriteCloser, error) {
	if o.plot == "" {
		return nowhere{io.Discard}, nil
	}
	return os.Create(o.plot)
}

// nowhere is a writer with a Close method that does nothing.
type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

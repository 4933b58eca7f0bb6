// Package sgd trains a network on all ranks of a communicator, by stochastic
// gradient descent that is parallel over the data. Every rank does this:
//
//	trainer, err := sgd.New(ctx, comm, net, sgd.Config{})
//	for epoch := range epochs {
//		score, err := trainer.Epoch(ctx, train, sgd.Falling(0.2, epoch, epochs))
//		score, err = trainer.Test(ctx, test)
//	}
//
// In each step the ranks divide the samples of the batch among themselves, each
// computes the gradient of its share, and the sum of all moves the weights, which
// all ranks have. The gradient of a layer is on its way while that of the layer
// below is computed (Li et al., "PyTorch Distributed: Experiences on Accelerating
// Data Parallel Training", VLDB 2020).
//
// Weights and scores have the same bits on all ranks, so that each can decide by
// them alone what all do: to stop early, for example. Batches do not depend on how
// many ranks there are: any number of them learns what a single one does, up to
// rounding, as sums are grouped otherwise. With the same number of ranks and
// nexar.Config.Deterministic the weights have the same bits again in every run,
// whatever connects the ranks. Compression is another matter: what it leaves out
// depends on the shares of the ranks.
//
// An error is one of package nexar, with which the communicator has ended, or of
// a Compressor; the weights are then those of some step, which other ranks may
// have passed. A Trainer is for one goroutine,
// and while a call is under way nobody else may use its communicator.
package sgd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/mlp"
)

// defaultBatch is Config.Batch if that is 0.
const defaultBatch = 32

// ErrConfig says that a setting has a value that it must not have.
var ErrConfig = errors.New("invalid configuration")

// Config says how to train, the same on all ranks.
type Config struct {
	// Batch is how many samples a step takes, on all ranks together: 32 by
	// default. The last step of an epoch takes what is left.
	Batch int
	// Decay is how much of half its square each parameter adds to the loss that
	// the steps make smaller, which keeps weights small.
	Decay float64
	// Seed is that of the order of the samples.
	Seed uint64
	// Root is the rank whose weights all begin with.
	Root int
	// Compressor makes what compresses the gradient of a layer, by its number;
	// nil sends gradients as they are. It is called once for each layer.
	Compressor func(layer int) compress.Compressor
}

// A Score says how well a network does on a set.
type Score struct {
	Loss     float64 // the mean over all samples
	Accuracy float64 // the share that is classified rightly, from 0 to 1
}

// A Trainer trains one network, on one rank.
type Trainer struct {
	comm        *nexar.Comm
	net         *mlp.Network
	cfg         Config
	order       *rand.Rand            // of the samples, the same on all ranks
	compressors []compress.Compressor // of the layers; nil if there are none
	reducing    []*nexar.Handle       // of the layers
}

// New makes a Trainer for a network, which has the same layers on all ranks. All
// begin with the weights that Config.Root has.
func New(ctx context.Context, c *nexar.Comm, net *mlp.Network, cfg Config) (*Trainer, error) {
	switch {
	case cfg.Batch < 0:
		return nil, fmt.Errorf("%w: a batch of %d samples", ErrConfig, cfg.Batch)
	case !(cfg.Decay >= 0):
		return nil, fmt.Errorf("%w: a decay of %v", ErrConfig, cfg.Decay)
	case cfg.Batch == 0:
		cfg.Batch = defaultBatch
	}
	t := &Trainer{
		comm: c, net: net, cfg: cfg,
		order: rand.New(rand.NewPCG(cfg.Seed, 4)), reducing: make([]*nexar.Handle, len(net.Layers)),
	}
	for i, l := range net.Layers {
		if cfg.Compressor != nil {
			t.compressors = append(t.compressors, cfg.Compressor(i))
		}
		if err := nexar.Broadcast(ctx, c, l.Params, cfg.Root); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Falling is the rate for an epoch, counted from 0, if it falls in equal steps
// from the given one, in the first epoch, to 0 after the last.
func Falling(rate float64, epoch, epochs int) float64 {
	return rate * float64(epochs-epoch) / float64(epochs)
}

// Epoch lets the network learn from each sample of a set once, in an order that
// is new each time. Each step moves the weights by rate times the gradient. All
// ranks have the same set. The Score is that of each sample just before the step
// that learns from it.
func (t *Trainer) Epoch(ctx context.Context, set *digits.Set, rate float64) (Score, error) {
	var seen tally
	order := t.order.Perm(set.Len())
	for len(order) > 0 {
		batch := order[:min(t.cfg.Batch, len(order))]
		order = order[len(batch):]
		if err := t.step(ctx, set, batch, &seen); err != nil {
			return Score{}, err
		}
		t.update(float32(rate))
	}
	return seen.score(ctx, t.comm, set.Len())
}

// Step lets the network learn from some samples of a set, by their numbers. If it
// fails, the weights are as they were.
func (t *Trainer) Step(ctx context.Context, set *digits.Set, batch []int, rate float64) error {
	if err := t.step(ctx, set, batch, new(tally)); err != nil {
		return err
	}
	t.update(float32(rate))
	return nil
}

// step computes the gradient for the samples of a batch.
func (t *Trainer) step(ctx context.Context, set *digits.Set, batch []int, seen *tally) error {
	from, to := t.share(len(batch))
	mine := set.Pick(batch[from:to])
	seen.add(t.net.Forward(mine.Images, mine.Labels))

	// The loss of a step is the mean over the batch. What a rank has of that
	// may be more or less than others have, or nothing at all: so each divides
	// by the number of samples that all ranks have, and the sum is the mean.
	for i, layer := range t.net.Backward(1 / float32(len(batch))) {
		t.reducing[i] = t.startAllReduce(ctx, i, layer)
	}
	return nexar.WaitAll(t.reducing...)
}

// startAllReduce begins to add up the gradient of a layer over all ranks. That of
// its weights and that of its biases go in one bucket; compressed they are one
// vector, of which the largest elements are taken.
func (t *Trainer) startAllReduce(ctx context.Context, i int, layer *mlp.Layer) *nexar.Handle {
	if t.compressors == nil {
		return nexar.StartAllReduceBuckets(ctx, t.comm, layer.Tensors(), nexar.Sum)
	}
	return nexar.StartAllReduceCompressed(ctx, t.comm, layer.Gradient, nexar.Sum, t.compressors[i])
}

// share is which of n samples are this rank's. Each is some rank's, and no rank
// has two more than another.
func (t *Trainer) share(n int) (from, to int) {
	rank, size := t.comm.Rank(), t.comm.Size()
	return n * rank / size, n * (rank + 1) / size
}

// update moves the weights against the gradient. The conversions see to it that
// each product is rounded, also where a processor could multiply and add in one
// go: thus ranks on machines of different kinds keep the same weights.
func (t *Trainer) update(rate float32) {
	decay := float32(t.cfg.Decay)
	for _, layer := range t.net.Layers {
		for i, g := range layer.Gradient {
			g += float32(decay * layer.Params[i])
			layer.Params[i] -= float32(rate * g)
		}
	}
}

// Test returns the score on a set that all ranks have, and which they divide
// among themselves.
func (t *Trainer) Test(ctx context.Context, set *digits.Set) (Score, error) {
	mine := set.Slice(t.share(set.Len()))
	var seen tally
	seen.add(t.net.Forward(mine.Images, mine.Labels))
	return seen.score(ctx, t.comm, set.Len())
}

// A tally adds up what the samples of a rank have scored.
type tally struct {
	loss  float64
	right int
}

func (s *tally) add(loss float64, right int) {
	s.loss += loss
	s.right += right
}

// score is that of all n samples of all ranks.
func (s *tally) score(ctx context.Context, c *nexar.Comm, n int) (Score, error) {
	sums := []float64{s.loss, float64(s.right)}
	if err := nexar.AllReduce(ctx, c, sums, nexar.Sum); err != nil {
		return Score{}, err
	}
	return Score{Loss: sums[0] / float64(n), Accuracy: sums[1] / float64(n)}, nil
}

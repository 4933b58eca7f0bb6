// Package sgd trains a network on all ranks of a communicator, by data-parallel stochastic gradient
// descent. Each rank does this:
//
//	trainer, err := sgd.New(ctx, comm, net, sgd.Config{})
//	for epoch := range epochs {
//		score, err := trainer.Epoch(ctx, train, sgd.Falling(0.2, epoch, epochs))
//		score, err = trainer.Test(ctx, test)
//	}
//
// In each step the ranks divide the samples of the batch, each computes the gradient of
// its share, and all update their weights by the sum. The gradient of a layer is reduced
// while that of the layer below is computed (Li et al., "PyTorch Distributed: Experiences
// on Accelerating Data Parallel Training", VLDB 2020).
//
// Weights and scores are bit-identical on all ranks, so all ranks make the same decisions, such as
// stopping early. Batches do not depend on the number of ranks, so the result is that of a single
// rank up to rounding: sums are grouped differently. With nexar.Config.Deterministic, all runs with
// the same number of ranks have the same bits, over every transport. With compression the result
// depends on the number of ranks.
//
// Errors are those of package nexar, after which the communicator cannot be used, or of a
// Compressor; the weights are then those of a step that other ranks may have completed. A
// Trainer is for one goroutine, and no other code may use its communicator during a call.
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

// defaultBatch is the default of Config.Batch.
const defaultBatch = 32

// ErrConfig is the error of an invalid Config.
var ErrConfig = errors.New("invalid configuration")

// Config configures a training. It must be the same on all ranks.
type Config struct {
	// Batch is the number of samples of a step, on all ranks together: 32 by default. The
	// last step of an epoch may have fewer.
	Batch int
	// Decay is the weight decay: each parameter p adds Decay × p²/2 to the loss that is minimized.
	Decay float64
	// Seed determines the order of the samples.
	Seed uint64
	// Root is the rank with the initial weights.
	Root int
	// Compressor returns the compressor of a layer, by its number; nil for uncompressed
	// gradients. It is called once for each layer.
	Compressor func(layer int) compress.Compressor
	// Reduce, if it is not nil, sums the gradient of a layer over all ranks, in place of
	// nexar.AllReduceBuckets: for instance in the memory of GPUs. It must give all ranks the same bits.
	// Compressor must be nil.
	Reduce func(ctx context.Context, layer int, gradient []float32) error
}

// A Score is the result of a network on a set.
type Score struct {
	Loss     float64 // the mean over all samples
	Accuracy float64 // fraction of correct classifications, from 0 to 1
}

// A Trainer trains one network, on one rank.
type Trainer struct {
	comm        *nexar.Comm
	net         *mlp.Network
	cfg         Config
	order       *rand.Rand            // of the samples, the same on all ranks
	compressors []compress.Compressor // of the layers; nil without compression
	reducing    []*nexar.Handle       // of the layers
}

// New returns a Trainer for a network, which must have the same layers on all ranks. All ranks get the
// weights of Config.Root.
func New(ctx context.Context, c *nexar.Comm, net *mlp.Network, cfg Config) (*Trainer, error) {
	switch {
	case cfg.Batch < 0:
		return nil, fmt.Errorf("%w: Batch is %d, must not be negative", ErrConfig, cfg.Batch)
	case !(cfg.Decay >= 0):
		return nil, fmt.Errorf("%w: Decay is %v, must be finite and not negative", ErrConfig, cfg.Decay)
	case cfg.Reduce != nil && cfg.Compressor != nil:
		return nil, fmt.Errorf("%w: Reduce and Compressor are both set, want one of them", ErrConfig)
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

// Falling returns the learning rate of an epoch, counted from 0: it falls linearly from rate in the
// first epoch to 0 after the last.
func Falling(rate float64, epoch, epochs int) float64 {
	return rate * float64(epochs-epoch) / float64(epochs)
}

// Epoch trains the network on each sample of a set once, in a new random order. Each step subtracts
// rate times the gradient from the weights. All ranks must pass the same set. The Score counts each
// sample before its step.
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

// Step trains the network on the samples of a set with the given indices. With an error the weights
// are unchanged.
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

	// The loss of a step is the mean over the batch. Shares of ranks differ in size and may
	// be empty, so each rank divides by the size of the batch, and the sum is the mean.
	for i, layer := range t.net.Backward(1 / float32(len(batch))) {
		if t.cfg.Reduce != nil {
			if err := t.cfg.Reduce(ctx, i, layer.Gradient); err != nil {
				return err
			}
			continue
		}
		t.reducing[i] = t.startAllReduce(ctx, i, layer)
	}
	if t.cfg.Reduce != nil {
		return nil
	}
	return nexar.WaitAll(t.reducing...)
}

// startAllReduce starts the sum of the gradient of a layer over all ranks. Weights and biases share a
// bucket; with compression they are one vector.
func (t *Trainer) startAllReduce(ctx context.Context, i int, layer *mlp.Layer) *nexar.Handle {
	if t.compressors == nil {
		return nexar.StartAllReduceBuckets(ctx, t.comm, layer.Tensors(), nexar.Sum)
	}
	return nexar.StartAllReduceCompressed(ctx, t.comm, layer.Gradient, nexar.Sum, t.compressors[i])
}

// share returns the range of this rank in n samples. The numbers of samples of two ranks differ by at
// most one.
func (t *Trainer) share(n int) (from, to int) {
	rank, size := t.comm.Rank(), t.comm.Size()
	return n * rank / size, n * (rank + 1) / size
}

// update subtracts the gradient from the weights. The conversions prevent fused multiplications and
// additions, so that different machines compute the same weights.
func (t *Trainer) update(rate float32) {
	decay := float32(t.cfg.Decay)
	for _, layer := range t.net.Layers {
		for i, g := range layer.Gradient {
			g += float32(decay * layer.Params[i])
			layer.Params[i] -= float32(rate * g)
		}
	}
}

// Test returns the score on a set. All ranks must pass the same set, and divide its samples.
func (t *Trainer) Test(ctx context.Context, set *digits.Set) (Score, error) {
	mine := set.Slice(t.share(set.Len()))
	var seen tally
	seen.add(t.net.Forward(mine.Images, mine.Labels))
	return seen.score(ctx, t.comm, set.Len())
}

// A tally sums the scores of the samples of a rank.
type tally struct {
	loss  float64
	right int
}

func (s *tally) add(loss float64, right int) {
	s.loss += loss
	s.right += right
}

// score returns the score of all n samples of all ranks.
func (s *tally) score(ctx context.Context, c *nexar.Comm, n int) (Score, error) {
	sums := []float64{s.loss, float64(s.right)}
	if err := nexar.AllReduce(ctx, c, sums, nexar.Sum); err != nil {
		return Score{}, err
	}
	return Score{Loss: sums[0] / float64(n), Accuracy: sums[1] / float64(n)}, nil
}

//race:none it starts no goroutine

package sgd

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/mlp"
	"github.com/nexar-go/nexar/nexartest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A trial is a training with its settings.
type trial struct {
	ranks   int
	epochs  int
	cluster nexartest.Cluster
	pin     []string
	cfg     Config

	train, test *digits.Set
}

// An outcome is the result of a trial.
type outcome struct {
	scores []Score // of each epoch
	train  Score   // at the end
	test   Score
	digest uint64
}

func (o outcome) String() string {
	return fmt.Sprintf("training loss %.5f and accuracy %.4f, test loss %.5f and accuracy %.4f", o.train.Loss, o.train.Accuracy, o.test.Loss, o.test.Accuracy)
}

// load returns the data set, or only its first n training samples.
func load(t *testing.T, n int) (train, test *digits.Set) {
	t.Helper()
	set, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	train, test = set.Split(1, 0.2)
	return train.Slice(0, min(n, train.Len())), test
}

// run trains on the ranks of the trial, with different initial weights, and checks that all have the
// same outcome.
func (tr trial) run(t *testing.T) outcome {
	t.Helper()
	var mu sync.Mutex
	var first *outcome
	tr.cluster.Run(t, tr.ranks, func(t *testing.T, c *nexar.Comm) {
		if err := c.SetAlgorithms(tr.pin...); err != nil {
			t.Fatal(err)
		}
		o := tr.rank(t, c)
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = &o
		}
		if o.digest != first.digest || !slices.Equal(o.scores, first.scores) || o.train != first.train || o.test != first.test {
			t.Errorf("rank %d has outcome %+v, another rank %+v", c.Rank(), o, *first)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return *first
}

// rank trains on one rank.
func (tr trial) rank(t *testing.T, c *nexar.Comm) (o outcome) {
	ctx := t.Context()
	net := mlp.New(uint64(100+c.Rank()), digits.Pixels, 32, digits.Classes)
	trainer, err := New(ctx, c, net, tr.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range tr.epochs {
		score, err := trainer.Epoch(ctx, tr.train, Falling(0.2, epoch, tr.epochs))
		if err != nil {
			t.Fatal(err)
		}
		o.scores = append(o.scores, score)
	}
	var errs [3]error
	o.train, errs[0] = trainer.Test(ctx, tr.train)
	o.test, errs[1] = trainer.Test(ctx, tr.test)
	o.digest, errs[2] = trainer.Digest(ctx)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return o
}

// near reports whether two losses are equal up to rounding.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Max(math.Abs(a), math.Abs(b)) }

// TestSameCurve: the result does not depend on the number of ranks, also if the batch is not a multiple
// of it.
func TestSameCurve(t *testing.T) {
	for _, test := range []struct {
		digits, batch, epochs int
		ranks                 []int
	}{
		{400, 32, 4, []int{2, 3, 4}},
		{100, 7, 3, []int{3, 5}}, // the last batch has 2 samples, fewer than ranks
		{50, 2, 3, []int{3}},     // one of 3 ranks has no samples
	} {
		t.Run(fmt.Sprintf("batch=%d", test.batch), func(t *testing.T) {
			tr := trial{ranks: 1, epochs: test.epochs, cfg: Config{Batch: test.batch, Decay: 1e-3, Seed: 1}}
			tr.train, tr.test = load(t, test.digits)
			want := tr.run(t)
			if last := want.scores[test.epochs-1].Loss; !(last < 0.7*want.scores[0].Loss) {
				t.Errorf("initial loss %v, final loss %v, want a decrease", want.scores[0].Loss, last)
			}
			for _, tr.ranks = range test.ranks {
				got := tr.run(t)
				for i := range want.scores {
					if !near(got.scores[i].Loss, want.scores[i].Loss) {
						t.Errorf("epoch %d: loss %v with %d ranks, %v with one", i, got.scores[i].Loss, tr.ranks, want.scores[i].Loss)
					}
				}
				if !near(got.test.Loss, want.test.Loss) {
					t.Errorf("test set: loss %v with %d ranks, %v with one", got.test.Loss, tr.ranks, want.test.Loss)
				}
			}
		})
	}
}

// TestDeterministic: with Deterministic, the weights have the same bits for all algorithms. Without
// Deterministic they differ, so the first check can fail.
func TestDeterministic(t *testing.T) {
	digestsOf := func(deterministic bool) map[uint64]string {
		digests := make(map[uint64]string)
		for _, pin := range []string{"", "all_reduce=ring", "all_reduce=ring/2", "all_reduce=recursive-doubling"} {
			tr := trial{ranks: 4, epochs: 1, cfg: Config{Seed: 1}}
			tr.cluster.Config.Deterministic = deterministic
			if pin != "" {
				tr.pin = []string{pin}
			}
			tr.train, tr.test = load(t, 300)
			digests[tr.run(t).digest] = pin
		}
		return digests
	}
	if got := digestsOf(true); len(got) != 1 {
		t.Errorf("different weights with Deterministic: %v", got)
	}
	if got := digestsOf(false); len(got) < 2 {
		t.Errorf("same weights for all algorithms without Deterministic, so the check above proves nothing: %v", got)
	}
}

// TestCompressed: training with compression lowers the loss. The test of the program compares complete
// trainings.
func TestCompressed(t *testing.T) {
	tr := trial{ranks: 3, epochs: 8, cfg: Config{Batch: 12, Decay: 1e-3, Seed: 1}}
	tr.train, tr.test = load(t, 400)
	want := tr.run(t)
	t.Logf("none: %v", want)
	for name, within := range map[string]float64{"topk": 1.5, "randomk": 3, "quantize8": 1.01, "cast16": 1.01} {
		t.Run(name, func(t *testing.T) {
			var err error
			if tr.cfg.Compressor, err = CompressorOf(name, 1); err != nil {
				t.Fatal(err)
			}
			got := tr.run(t)
			t.Logf("%v", got)
			if got.digest == want.digest {
				t.Error("same weights as without compression")
			}
			if got.train.Loss > within*want.train.Loss {
				t.Errorf("got %v, without compression %v", got, want)
			}
		})
	}
}

// TestErrorFeedbackIsNeeded: training with 1% of the gradients does not converge without ErrorFeedback.
func TestErrorFeedbackIsNeeded(t *testing.T) {
	tr := trial{ranks: 2, epochs: 5, cfg: Config{Seed: 1}}
	tr.train, tr.test = load(t, 500)
	want := tr.run(t)
	tr.cfg.Compressor = func(int) compress.Compressor { return &compress.TopK{Ratio: 0.01} }
	if got := tr.run(t); got.train.Loss < 1.5*want.train.Loss {
		t.Errorf("loss %v without ErrorFeedback, %v without compression", got.train.Loss, want.train.Loss)
	}
}

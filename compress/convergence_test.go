package compress

import (
	"math/rand/v2"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// A problem is a least-squares problem distributed over ranks. Each rank has a target, and the
// solution is their mean. In a few elements, the loud ones, the targets differ widely, and the
// gradients of the ranks cancel.
type problem struct {
	curvature []float32
	targets   [][]float32 // of the ranks
}

func newProblem() *problem {
	const ranks, n, loud = 4, 300, 6
	r := rand.New(rand.NewPCG(7, 8))
	p := &problem{curvature: make([]float32, n), targets: make([][]float32, ranks)}
	for rank := range p.targets {
		p.targets[rank] = make([]float32, n)
	}
	for i := range n {
		p.curvature[i] = 0.5 + r.Float32()
		mean := float32(r.NormFloat64())
		for rank, target := range p.targets {
			target[i] = mean + float32(r.NormFloat64())*0.1
			if i < loud {
				target[i] += float32(20 - 40*(rank%2))
			}
		}
	}
	return p
}

// gradient stores the gradient of the loss of a rank at x in g.
func (p *problem) gradient(g, x []float32, rank int) {
	for i, v := range x {
		g[i] = p.curvature[i] * (v - p.targets[rank][i])
	}
}

// excess returns the loss of all ranks at x above the minimum.
func (p *problem) excess(x []float32) (sum float64) {
	for i, v := range x {
		mean := float64(0)
		for _, target := range p.targets {
			mean += float64(target[i]) / float64(len(p.targets))
		}
		d := float64(v) - mean
		sum += float64(p.curvature[i]) / 2 * d * d
	}
	return sum
}

// descend runs gradient descent from 0 for a number of steps, with a compressor for each rank.
// It returns the excess before and after.
func (p *problem) descend(t *testing.T, steps int, newCompressor func() Compressor) (before, after float64) {
	t.Helper()
	n := len(p.curvature)
	x, g, sum := make([]float32, n), make([]float32, n), make([]float32, n)
	compressors := make([]Compressor, len(p.targets))
	for rank := range compressors {
		compressors[rank] = newCompressor()
	}
	before = p.excess(x)
	var encoded []byte
	for step := range steps {
		clear(sum)
		for rank, c := range compressors {
			p.gradient(g, x, rank)
			var err error
			if encoded, err = c.Append(encoded[:0], g); err != nil {
				t.Fatal(err)
			}
			if err := c.AddTo(sum, encoded); err != nil {
				t.Fatal(err)
			}
		}
		rate := 0.02 / (1 + 5*float32(step)/float32(steps))
		for i, v := range sum {
			x[i] -= rate * v / float32(len(compressors))
		}
	}
	return before, p.excess(x)
}

// TestConvergence: with 1% of each gradient, descent converges with error feedback. Without it
// only the loud elements are ever sent.
func TestConvergence(t *testing.T) {
	require.NoRace(t, "it uses one goroutine")
	p := newProblem()
	for name, test := range map[string]struct {
		compressor  func() Compressor
		least, most float64 // bounds of the remaining excess, as a fraction of the initial one
	}{
		"uncompressed":              {func() Compressor { return None{} }, 0, 1e-9},
		"top-k alone":               {func() Compressor { return &TopK{Ratio: 0.01} }, 0.9, 1.1},
		"top-k, error feedback":     {func() Compressor { return &ErrorFeedback{Compressor: &TopK{Ratio: 0.01}} }, 0, 1e-3},
		"random-k alone":            {func() Compressor { return &RandomK{Ratio: 0.01} }, 0.3, 1},
		"random-k, error feedback":  {func() Compressor { return &ErrorFeedback{Compressor: &RandomK{Ratio: 0.01}} }, 0, 1e-5},
		"random-k, unbiased":        {func() Compressor { return &RandomK{Ratio: 0.01, Unbiased: true} }, 0, 1e-5},
		"quantize-8 alone":          {func() Compressor { return Quantize8{} }, 1e-4, 1e-2},
		"quantize-8 error feedback": {func() Compressor { return &ErrorFeedback{Compressor: Quantize8{}} }, 0, 1e-7},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := p.descend(t, 4000, test.compressor)
			t.Logf("%.3g of the excess remains", after/before)
			if left := after / before; !(left >= test.least && left <= test.most) {
				t.Errorf("%v of the excess remains, want between %v and %v", left, test.least, test.most)
			}
		})
	}
}

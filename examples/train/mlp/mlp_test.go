//race:none it starts no goroutine

package mlp

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// samples returns random samples for a network with these widths.
func samples(seed uint64, n int, widths []int) (inputs []float32, labels []uint8) {
	r := rand.New(rand.NewPCG(seed, 2))
	for range n * widths[0] {
		inputs = append(inputs, float32(r.NormFloat64()))
	}
	for range n {
		labels = append(labels, uint8(r.IntN(widths[len(widths)-1])))
	}
	return inputs, labels
}

// shaken returns a network with random biases: zero biases would hide some errors of gradients.
func shaken(seed uint64, widths []int) *Network {
	n := New(seed, widths...)
	r := rand.New(rand.NewPCG(seed, 3))
	for _, l := range n.Layers {
		for i := range l.biases {
			l.biases[i] = float32(r.NormFloat64()) / 4
		}
	}
	return n
}

// TestGradient: gradients agree with finite differences, for all parameters.
func TestGradient(t *testing.T) {
	const scale, step = 0.5, 1.0 / 256
	for _, widths := range [][]int{{3, 4}, {5, 7, 3}, {6, 8, 5, 4}, {4, 9, 9, 9, 2}} {
		n := shaken(1, widths)
		inputs, labels := samples(1, 6, widths)
		n.Forward(inputs, labels)
		for range n.Backward(scale) {
			continue
		}
		for number, l := range n.Layers {
			want := slices.Clone(l.Gradient)
			largest := 0.0
			for i, p := range l.Params {
				l.Params[i] = p + step
				above, _ := n.Forward(inputs, labels)
				l.Params[i] = p - step
				below, _ := n.Forward(inputs, labels)
				l.Params[i] = p
				want[i] = float32(scale * (above - below) / (2 * step))
				largest = max(largest, math.Abs(float64(want[i])))
			}
			for i, got := range l.Gradient {
				// A difference of float32 has about four digits, and the error of the
				// curvature is of the same order.
				if math.Abs(float64(got-want[i])) > 2e-3*largest {
					t.Errorf("widths %v, layer %d, parameter %d: derivative %v, finite difference %v", widths, number, i, got, want[i])
				}
			}
			if largest == 0 {
				t.Errorf("widths %v, layer %d: all derivatives are 0", widths, number)
			}
		}
	}
}

// TestGradientIsSum: the gradients of parts of a batch add up to that of the batch.
func TestGradientIsSum(t *testing.T) {
	widths := []int{6, 8, 5, 4}
	n := shaken(2, widths)
	inputs, labels := samples(2, 10, widths)
	gradients := func(from, to int) (all []float32) {
		n.Forward(inputs[from*6:to*6], labels[from:to])
		for _, l := range n.Backward(1) {
			all = append(all, l.Gradient...)
		}
		return all
	}
	whole, sum := gradients(0, 10), gradients(0, 3)
	for _, part := range [][]float32{gradients(3, 4), gradients(4, 4), gradients(4, 10)} {
		for i, v := range part {
			sum[i] += v
		}
	}
	for i := range whole {
		if math.Abs(float64(whole[i]-sum[i])) > 1e-5 {
			t.Errorf("derivative %d is %v, sum of the parts %v", i, whole[i], sum[i])
		}
	}
}

// TestForward: the loss of a network of one layer equals the value computed by hand.
func TestForward(t *testing.T) {
	n := New(1, 2, 3)
	copy(n.Layers[0].Params, []float32{1, 0, 0, 1, -1, -1, 0, 0, 0.5})
	loss, right := n.Forward([]float32{2, 1, 0, 3}, []uint8{0, 0}) // sums 2, 1, -2.5 and 0, 3, -2.5
	first, second := math.Exp(2)+math.Exp(1)+math.Exp(-2.5), math.Exp(0)+math.Exp(3)+math.Exp(-2.5)
	want := math.Log(first) - 2 + math.Log(second) - 0
	if math.Abs(loss-want) > 1e-6 || right != 1 {
		t.Errorf("got a loss of %v and %d right, want %v and 1", loss, right, want)
	}
}

// TestLossIsFinite: the loss of a confident wrong prediction is finite.
func TestLossIsFinite(t *testing.T) {
	n := New(1, 1, 2)
	copy(n.Layers[0].Params, []float32{1000, -1000, 0, 0})
	loss, _ := n.Forward([]float32{1}, []uint8{1})
	if math.IsInf(loss, 0) || math.IsNaN(loss) || loss < 100 {
		t.Errorf("got a loss of %v, want a large one", loss)
	}
}

// TestBackwardOrder: the gradient of a layer is complete when Backward yields it, and does not change while
// the next one is computed.
func TestBackwardOrder(t *testing.T) {
	widths := []int{4, 6, 5, 3}
	n := shaken(3, widths)
	inputs, labels := samples(3, 8, widths)
	n.Forward(inputs, labels)
	var order []int
	given := make([][]float32, len(n.Layers))
	for i, l := range n.Backward(1) {
		order = append(order, i)
		given[i] = slices.Clone(l.Gradient)
		clear(l.Gradient) // an all-reduce changes it as well
	}
	if want := []int{2, 1, 0}; !slices.Equal(order, want) {
		t.Errorf("order of layers %v, want %v", order, want)
	}
	for i, l := range n.Backward(1) {
		if !slices.Equal(l.Gradient, given[i]) {
			t.Errorf("layer %d: second gradient %v, first %v", i, l.Gradient, given[i])
		}
	}
}

func TestNew(t *testing.T) {
	n := New(5, 64, 32, 10)
	if got, want := n.Params(), 65*32+33*10; got != want {
		t.Errorf("got %d parameters, want %d", got, want)
	}
	sum := 0.0
	for _, w := range n.Layers[0].weights {
		sum += float64(w) * float64(w)
	}
	if got, want := sum/(64*32), 2.0/64; math.Abs(got-want) > want/5 {
		t.Errorf("variance of the weights %v, want about %v", got, want)
	}
	if same, other := New(5, 64, 32, 10), New(6, 64, 32, 10); !slices.Equal(same.Layers[1].Params, n.Layers[1].Params) ||
		slices.Equal(other.Layers[1].Params, n.Layers[1].Params) {
		t.Error("weights do not depend on the seed only")
	}
}

func BenchmarkStep(b *testing.B) {
	widths := []int{64, 64, 10}
	n := New(1, widths...)
	inputs, labels := samples(1, 64, widths)
	b.ReportAllocs()
	for b.Loop() {
		n.Forward(inputs, labels)
		for range n.Backward(1) {
			continue
		}
	}
}

// Package mlp is a multilayer perceptron in plain Go: dense layers with ReLUs between them, a
// softmax at the end, and cross-entropy as the loss.
//
// A training step calls Forward and then ranges over Backward, which yields the layers from the last
// to the first: the gradient of a layer is averaged over all ranks while that of the layer below is
// computed.
//
//	loss, right := net.Forward(images, labels)
//	for i, layer := range net.Backward(1 / float32(batch)) {
//		handles[i] = nexar.StartAllReduceBuckets(ctx, comm, layer.Tensors(), nexar.Sum)
//	}
//
// Forward and Backward use buffers of the Network, which is for one goroutine. The caller owns the
// Gradient of a yielded layer until the next Backward. Slices of wrong lengths panic.
package mlp

import (
	"iter"
	"math"
	"math/rand/v2"
	"slices"
)

// A Network is a sequence of layers; the output of each is the input of the next.
type Network struct {
	Layers []*Layer

	labels []uint8 // of the last Forward
}

// New returns a network with random weights. The widths are the numbers of inputs, of outputs of each
// layer but the last, and of classes. Weights have a normal distribution with variance 2 / inputs (He
// et al., "Delving Deep into Rectifiers", ICCV 2015), and biases are 0.
func New(seed uint64, widths ...int) *Network {
	r := rand.New(rand.NewPCG(seed, 1))
	n := new(Network)
	for i, in := range widths[:len(widths)-1] {
		l := newLayer(in, widths[i+1])
		deviation := math.Sqrt(2 / float64(in))
		for j := range l.weights {
			l.weights[j] = float32(r.NormFloat64() * deviation)
		}
		n.Layers = append(n.Layers, l)
	}
	return n
}

// Params returns the number of parameters of all layers.
func (n *Network) Params() (sum int) {
	for _, l := range n.Layers {
		sum += len(l.Params)
	}
	return sum
}

// Forward classifies samples. inputs has the inputs of the first layer for each sample, and labels its
// class. Forward returns the sum of the losses and the number of samples that are classified
// correctly. It keeps both slices for Backward, until the next Forward.
func (n *Network) Forward(inputs []float32, labels []uint8) (loss float64, right int) {
	n.labels = labels
	values := inputs
	last := len(n.Layers) - 1
	for i, l := range n.Layers {
		values = l.forward(values, len(labels))
		if i < last {
			relu(values)
		}
	}
	classes := n.Layers[last].Out
	for i, label := range labels {
		of := values[i*classes:][:classes]
		if argmax(of) == int(label) {
			right++
		}
		softmax(of)
		loss -= math.Log(max(float64(of[label]), math.SmallestNonzeroFloat32))
	}
	return loss, right
}

// Backward computes the gradient of scale times the loss of the last Forward, from the last
// layer to the first. It yields each layer and its number when its Gradient is complete. Parameters
// must not change before the loop has ended, since lower layers are computed from them.
func (n *Network) Backward(scale float32) iter.Seq2[int, *Layer] {
	return func(yield func(int, *Layer) bool) {
		top := n.Layers[len(n.Layers)-1]
		top.lossErrors(n.labels, scale)
		for i, l := range slices.Backward(n.Layers) {
			l.accumulate(len(n.labels))
			if !yield(i, l) || i == 0 {
				return
			}
			l.propagate(n.Layers[i-1], len(n.labels))
		}
	}
}

func relu(values []float32) {
	for i, v := range values {
		values[i] = max(v, 0)
	}
}

// softmax replaces the outputs of one sample with probabilities.
func softmax(values []float32) {
	high := slices.Max(values)
	sum := 0.0
	for _, v := range values {
		sum += math.Exp(float64(v - high))
	}
	for i, v := range values {
		values[i] = float32(math.Exp(float64(v-high)) / sum)
	}
}

// argmax returns the index of the largest value.
func argmax(values []float32) (at int) {
	for i, v := range values {
		if v > values[at] {
			at = i
		}
	}
	return at
}

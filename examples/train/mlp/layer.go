package mlp

import "slices"

// A Layer is dense: each output is a weighted sum of all inputs, plus a bias.
type Layer struct {
	In, Out int

	// Params are the weights, In for each output, followed by the biases. Gradient has the same
	// shape. All parameters are one vector, so that one operation can send them.
	Params, Gradient []float32

	weights, biases []float32 // parts of Params

	// Vectors of all samples of the last Forward, concatenated.
	inputs  []float32 // In for each
	outputs []float32 // Out for each: after the ReLU or the softmax, if that comes next
	errors  []float32 // Out for each: derivatives of the loss with respect to the sums
}

func newLayer(in, out int) *Layer {
	l := &Layer{In: in, Out: out, Params: make([]float32, (in+1)*out), Gradient: make([]float32, (in+1)*out)}
	l.weights, l.biases = l.Params[:in*out], l.Params[in*out:]
	return l
}

// Tensors returns the parts of Gradient for the weights and the biases.
func (l *Layer) Tensors() [][]float32 {
	return [][]float32{l.Gradient[:l.In*l.Out], l.Gradient[l.In*l.Out:]}
}

// forward computes the outputs of samples.
func (l *Layer) forward(inputs []float32, samples int) []float32 {
	l.inputs = inputs[:samples*l.In]
	l.outputs = resize(l.outputs, samples*l.Out)
	for s := range samples {
		input := l.inputs[s*l.In:][:l.In]
		output := l.outputs[s*l.Out:][:l.Out]
		for o := range output {
			sum := l.biases[o]
			for i, w := range l.weights[o*l.In:][:l.In] {
				sum += w * input[i]
			}
			output[o] = sum
		}
	}
	return l.outputs
}

// lossErrors sets the errors of the last layer. Its outputs are probabilities; the derivative of
// cross-entropy after softmax is their difference from the labels.
func (l *Layer) lossErrors(labels []uint8, scale float32) {
	l.errors = resize(l.errors, len(labels)*l.Out)
	for s, label := range labels {
		of := l.errors[s*l.Out:][:l.Out]
		for o, p := range l.outputs[s*l.Out:][:l.Out] {
			of[o] = scale * p
		}
		of[label] -= scale
	}
}

// accumulate computes the gradient from the errors and the inputs.
func (l *Layer) accumulate(samples int) {
	clear(l.Gradient)
	weights, biases := l.Gradient[:l.In*l.Out], l.Gradient[l.In*l.Out:]
	for s := range samples {
		input := l.inputs[s*l.In:][:l.In]
		for o, e := range l.errors[s*l.Out:][:l.Out] {
			if e == 0 {
				continue // about half of the ReLUs pass no gradient
			}
			biases[o] += e
			row := weights[o*l.In:][:l.In]
			for i, v := range input {
				row[i] += e * v
			}
		}
	}
}

// propagate computes the errors of the layer below, through the ReLU between the layers.
func (l *Layer) propagate(below *Layer, samples int) {
	below.errors = resize(below.errors, samples*l.In)
	clear(below.errors)
	for s := range samples {
		to := below.errors[s*l.In:][:l.In]
		for o, e := range l.errors[s*l.Out:][:l.Out] {
			for i, w := range l.weights[o*l.In:][:l.In] {
				to[i] += e * w
			}
		}
		for i, v := range l.inputs[s*l.In:][:l.In] {
			if v <= 0 {
				to[i] = 0
			}
		}
	}
}

// resize returns a slice of n elements with undefined contents.
func resize(s []float32, n int) []float32 {
	return slices.Grow(s[:0], n)[:n]
}

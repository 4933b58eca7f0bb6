package compress

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/kernel"
)

// ErrorFeedback keeps what a Compressor has lost of a vector, the residual, and
// adds it to the next one: so everything arrives, some of it later (Seide et
// al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
// Distributed Training of Speech DNNs", Interspeech 2014). With it any
// Compressor that loses only a part of each vector makes SGD converge as fast
// as without compression, but for terms that vanish (Karimireddy et al., "Error
// Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019).
//
// An ErrorFeedback is for one tensor, on one rank, and for one goroutine. It
// takes as much memory as the tensor. The residual is the difference between
// the vector plus the residual before it and what the encoding stands for. It
// is exact for all Compressors of this package but Quantize8, for which it may
// be rounded. Where the difference is not finite the residual becomes 0: an
// infinity or a NaN is sent as the Compressor does, or lost, and leaves nothing
// behind.
//
// If an all-reduce fails after Append, what was encoded is not in the residual
// any more, as if it had arrived.
type ErrorFeedback struct {
	// Compressor encodes the vectors. The default is a TopK that keeps 1%. A
	// RandomK that is Unbiased, or another ErrorFeedback, is an ErrConfig: with
	// either of them residuals would grow without limit.
	Compressor Compressor

	residual []float32 // nil before the first vector
	topK     TopK      // the default
}

// Append appends the encoding of src and the residual to dst, and keeps what it
// lost as the new residual. src does not change.
//
// A vector of another length than the one before is an ErrLength and changes
// nothing; see Reset. Errors of the Compressor are returned as they are, and
// the residual is then forgotten.
func (e *ErrorFeedback) Append(dst []byte, src []float32) ([]byte, error) {
	c, err := e.compressor()
	if err != nil {
		return dst, err
	}
	if e.residual == nil {
		e.residual = make([]float32, len(src))
	}
	if len(src) != len(e.residual) {
		return dst, fmt.Errorf("compress: error feedback: %w: %d elements, and %d before", ErrLength, len(src), len(e.residual))
	}
	// What is to be sent takes the place of the residual.
	sum := kernel.Reducer(kernel.Float32, kernel.Sum)
	sum(memory(e.residual), memory(e.residual), memory(src))
	encoded, err := c.Append(dst, e.residual)
	if err == nil {
		err = subtract(e.residual, c, encoded[len(dst):])
	}
	if err != nil {
		e.Reset()
		return dst, err
	}
	return encoded, nil
}

// subtract takes what encoded stands for from v. What is then not finite
// becomes 0.
func subtract(v []float32, c Compressor, encoded []byte) error {
	// A Compressor can only add. But the negative of the difference with the
	// opposite sign is the same number.
	for i, f := range v {
		v[i] = -f
	}
	if err := c.AddTo(v, encoded); err != nil {
		return err
	}
	for i, f := range v {
		if magnitude(f) >= infinity32 {
			f = 0
		}
		v[i] = -f
	}
	return nil
}

// compressor is the Compressor to use.
func (e *ErrorFeedback) compressor() (Compressor, error) {
	switch c := e.Compressor.(type) {
	case nil:
		return &e.topK, nil
	case *RandomK:
		if c.Unbiased {
			return nil, fmt.Errorf("compress: error feedback: %w: its Compressor is a RandomK that is Unbiased", ErrConfig)
		}
	case *ErrorFeedback:
		return nil, fmt.Errorf("compress: error feedback: %w: its Compressor is an ErrorFeedback itself", ErrConfig)
	}
	return e.Compressor, nil
}

// AddTo adds the vector that encoded stands for to dst, as the Compressor does.
// It has nothing to do with the residual.
func (e *ErrorFeedback) AddTo(dst []float32, encoded []byte) error {
	c, err := e.compressor()
	if err != nil {
		return err
	}
	return c.AddTo(dst, encoded)
}

// MaxBytes is that of the Compressor.
func (e *ErrorFeedback) MaxBytes(n int) int {
	c, err := e.compressor()
	if err != nil {
		return 0
	}
	return c.MaxBytes(n)
}

// String is that of the Compressor, whose encodings it has; it is empty if that
// has none.
func (e *ErrorFeedback) String() string {
	c, _ := e.compressor()
	if s, ok := c.(fmt.Stringer); ok {
		return s.String()
	}
	return ""
}

// Reset forgets the residual. The next vector may be of any length.
func (e *ErrorFeedback) Reset() { e.residual = nil }

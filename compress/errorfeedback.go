package compress

import (
	"fmt"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/kernel"
)

// ErrorFeedback adds the compression error of each vector, the residual, to the next vector,
// so that all of a gradient is sent eventually (Seide et al., "1-Bit Stochastic Gradient
// Descent and its Application to Data-Parallel Distributed Training of Speech DNNs",
// Interspeech 2014). With it SGD converges at the rate of uncompressed SGD, up to
// lower-order terms, for every compressor that loses only a fraction of each vector
// (Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes",
// ICML 2019).
//
// An ErrorFeedback is for one tensor, on one rank, and for one goroutine. Its residual takes
// as much memory as the tensor. The residual is the sum of the vector and the residual before
// it, minus the decoded vector. It is exact for all compressors of this package except
// Quantize8, for which it may be rounded. A difference that is not finite becomes 0: the
// Compressor sends or drops an infinity or a NaN, and no trace of it remains.
//
// If an all-reduce fails after Append, the encoded part is missing from the residual, as if it
// had been sent.
type ErrorFeedback struct {
	// Compressor encodes the vectors. The default is a TopK that keeps 1%. An Unbiased
	// RandomK or another ErrorFeedback is an ErrConfig, since the residual would grow
	// without bound.
	Compressor Compressor

	residual   []float32 // nil before the first float32 vector
	residual64 []float64 // nil before the first float64 vector
	topK       TopK      // the default
}

// Append appends the encoding of src plus the residual to dst, and keeps the compression error
// as the new residual. src is unchanged.
//
// A vector of another length than the one before is an [ErrLength], and a float32 vector after
// a float64 vector an [ErrType]; both change nothing (see Reset). Append returns errors of the
// Compressor unchanged, and then clears the residual.
func (e *ErrorFeedback) Append(dst []byte, src []float32) ([]byte, error) {
	c, err := e.compressor()
	if err == nil && e.residual64 != nil {
		err = fmt.Errorf("compress: error feedback: %w: got float32, want float64 as before: call Reset first", ErrType)
	}
	if err != nil {
		return dst, err
	}
	return appendFeedback(e, &e.residual, dst, src, c, Compressor.Append, Compressor.AddTo)
}

func (e *ErrorFeedback) append64(dst []byte, src []float64) ([]byte, error) {
	c, err := e.typed()
	if err == nil && e.residual != nil {
		err = fmt.Errorf("compress: error feedback: %w: got float64, want float32 as before: call Reset first", ErrType)
	}
	if err != nil {
		return dst, err
	}
	return appendFeedback(e, &e.residual64, dst, src, c, append64, addTo64)
}

func append64(c TypedCompressor, dst []byte, src []float64) ([]byte, error) {
	return c.AppendTyped(dst, device.Float64, memory(src))
}

func addTo64(c TypedCompressor, dst []float64, encoded []byte) error {
	return c.AddTyped(memory(dst), device.Float64, encoded)
}

// appendFeedback is Append for a residual and a compressor of vectors of type T.
func appendFeedback[T float, C Compressor](
	e *ErrorFeedback, residual *[]T, dst []byte, src []T, c C,
	appendTo func(C, []byte, []T) ([]byte, error), addTo func(C, []T, []byte) error,
) ([]byte, error) {
	if *residual == nil {
		*residual = make([]T, len(src))
	}
	r := *residual
	if len(src) != len(r) {
		return dst, fmt.Errorf("compress: error feedback: %w: got %d elements, want %d as before: call Reset first", ErrLength, len(src), len(r))
	}
	sum := kernel.Reducer(typeOf[T](), kernel.Sum)
	sum(memory(r), memory(r), memory(src))
	encoded, err := appendTo(c, dst, r)
	if err == nil {
		// The compressor can only add, so this adds to -r and negates the result.
		negate(r)
		err = addTo(c, r, encoded[len(dst):])
		negateFinite(r)
	}
	if err != nil {
		e.Reset()
		return dst, err
	}
	return encoded, nil
}

func negate[T float](v []T) {
	for i, f := range v {
		v[i] = -f
	}
}

// negateFinite negates the finite elements of v, and sets the others to -0.
func negateFinite[T float](v []T) {
	for i, f := range v {
		if magnitude(f) >= infinity[T]() {
			f = 0
		}
		v[i] = -f
	}
}

// compressor returns the compressor in use, or an ErrConfig.
func (e *ErrorFeedback) compressor() (Compressor, error) {
	switch c := e.Compressor.(type) {
	case nil:
		return &e.topK, nil
	case *RandomK:
		if c.Unbiased {
			return nil, fmt.Errorf("compress: error feedback: %w: Compressor is an Unbiased RandomK", ErrConfig)
		}
	case *ErrorFeedback:
		return nil, fmt.Errorf("compress: error feedback: %w: Compressor is another ErrorFeedback", ErrConfig)
	}
	return e.Compressor, nil
}

// typed returns the compressor in use if it allows sums of float64.
func (e *ErrorFeedback) typed() (TypedCompressor, error) {
	c, err := e.compressor()
	if err != nil {
		return nil, err
	}
	if typed, ok := c.(TypedCompressor); ok && typed.Allows(device.Float64, device.Sum) {
		return typed, nil
	}
	return nil, fmt.Errorf("compress: error feedback: %w: float64, which %T does not allow", ErrType, c)
}

// AddTo adds an encoded vector to dst by the Compressor. It neither reads nor changes the
// residual.
func (e *ErrorFeedback) AddTo(dst []float32, encoded []byte) error {
	c, err := e.compressor()
	if err != nil {
		return err
	}
	return c.AddTo(dst, encoded)
}

// MaxBytes returns MaxBytes of the Compressor.
func (e *ErrorFeedback) MaxBytes(n int) int {
	c, err := e.compressor()
	if err != nil {
		return 0
	}
	return c.MaxBytes(n)
}

// Allows implements [TypedCompressor]. It allows sums of float32, and sums of float64 if the
// Compressor is a TypedCompressor that allows them.
func (e *ErrorFeedback) Allows(t device.Type, op device.Op) bool {
	_, err := e.typed()
	return allowsFloat(t, op) && (t == device.Float32 || err == nil)
}

// AppendTyped implements [TypedCompressor]. It has a residual as Append does.
func (e *ErrorFeedback) AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error) {
	switch t {
	case device.Float32:
		return e.Append(dst, vector[float32](src))
	case device.Float64:
		return e.append64(dst, vector[float64](src))
	}
	return dst, typeError("error feedback", t)
}

// DecodeTyped implements [TypedCompressor], by the Compressor.
func (e *ErrorFeedback) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	c, err := e.typed()
	if err != nil {
		return err
	}
	return c.DecodeTyped(dst, t, encoded)
}

// AddTyped implements [TypedCompressor], by the Compressor.
func (e *ErrorFeedback) AddTyped(dst []byte, t device.Type, encoded []byte) error {
	c, err := e.typed()
	if err != nil {
		return err
	}
	return c.AddTyped(dst, t, encoded)
}

// MaxTypedBytes returns MaxTypedBytes of the Compressor, or 0 if it is not a TypedCompressor.
func (e *ErrorFeedback) MaxTypedBytes(t device.Type, n int) int {
	c, err := e.typed()
	if err != nil {
		return 0
	}
	return c.MaxTypedBytes(t, n)
}

// String returns the text of the Compressor, or an empty string if it has none.
func (e *ErrorFeedback) String() string {
	c, _ := e.compressor()
	if s, ok := c.(fmt.Stringer); ok {
		return s.String()
	}
	return ""
}

// Reset clears the residual. The next vector may have any length.
func (e *ErrorFeedback) Reset() { e.residual, e.residual64 = nil, nil }

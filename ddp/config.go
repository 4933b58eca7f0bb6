package ddp

import (
	"errors"
	"fmt"
	"math"

	"github.com/nexar-go/nexar/compress"
)

// Config configures a [Model]. It must be the same on all ranks.
type Config struct {
	// BucketBytes is the number of bytes of gradients that are reduced together: 4 MiB by default. Longer gradients have buckets of their own.
	BucketBytes int
	// Format is the format of gradients on their way; [Exact] by default.
	Format Format
	// Compressor, if not nil, returns the compressor of a parameter, given its index. It must keep the rest for later steps, as
	// [compress.ErrorFeedback] does; see [compress.TopK]. Every rank gets the encodings of all ranks, so it pays off
	// if encodings are short. Format must be Exact, and parameters float32 or float64.
	Compressor func(param int) compress.Compressor
	// MaxNorm, if not 0, scales the gradients so that their global norm, the square root of the sum of the squares of all elements, is at most MaxNorm.
	MaxNorm float64
	// NonFinite is the policy for gradients with infinite or NaN elements; [Fail] by default.
	NonFinite Policy
	// Root is the rank that gives its parameters to all.
	Root int
}

// A Policy decides about gradients with infinite or NaN elements.
type Policy uint8

// The policies.
const (
	// Fail: Finish returns a [NonFiniteError] on all ranks.
	Fail Policy = iota
	// Skip: Finish returns a Result that is Skipped, and all gradients are 0. The program makes no update, and a loss scaler halves its scale.
	Skip
	// Pass: the elements are reduced like others, and are NaN or infinite on all ranks.
	Pass
)

// A Format is the format of gradients between ranks.
type Format uint8

// The formats. All but Exact round twice. Each rank adds a part of the vector: the others send it their elements of that part, rounded, and it adds them in
// float32, in the order of ranks. It rounds the sum and sends it to all. So the error does not grow with the number of ranks in a chain, and all ranks have
// the same bits. Each rank adds its rounding errors to its elements of the next step (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014).
//
// Gradients in these formats are divided by the scale of their block of 256 elements, the largest magnitude in it, except in BF16, which has
// the range of float32.
const (
	Exact Format = iota // that of the parameters, without rounding
	F16                 // 2 bytes an element; relative error of an element at most 2⁻¹¹ of the largest in its block, each time
	BF16                // 2 bytes an element; relative error at most 2⁻⁸, each time
	FP8                 // 1 byte an element, [nexar.Float8E4M3]; relative error at most 2⁻⁴, and at most 2⁻¹⁸ of the largest in its block where that is more, each time
	Int8                // 1 byte an element; error at most 1/254 of the largest magnitude in its block, each time
)

// bucketBytes is the default of Config.BucketBytes.
const bucketBytes = 4 << 20

// ErrConfig says that a field of a Config has an invalid value.
var ErrConfig = errors.New("ddp: invalid configuration")

// complete returns the configuration with its defaults.
func (cfg Config) complete(size int) (Config, error) {
	switch {
	case cfg.BucketBytes < 0:
		return cfg, fmt.Errorf("%w: BucketBytes is %d, must not be negative", ErrConfig, cfg.BucketBytes)
	case cfg.Format > Int8:
		return cfg, fmt.Errorf("%w: Format is %d, want Exact, F16, BF16, FP8 or Int8", ErrConfig, cfg.Format)
	case cfg.NonFinite > Pass:
		return cfg, fmt.Errorf("%w: NonFinite is %d, want Fail, Skip or Pass", ErrConfig, cfg.NonFinite)
	case cfg.Format != Exact && cfg.Compressor != nil:
		return cfg, fmt.Errorf("%w: Format and Compressor are both set, want one of them", ErrConfig)
	case !(cfg.MaxNorm >= 0) || math.IsInf(cfg.MaxNorm, 0):
		return cfg, fmt.Errorf("%w: MaxNorm is %v, must be finite and not negative", ErrConfig, cfg.MaxNorm)
	case cfg.Root < 0 || cfg.Root >= size:
		return cfg, fmt.Errorf("%w: Root is %d, want a rank below %d", ErrConfig, cfg.Root, size)
	case cfg.BucketBytes == 0:
		cfg.BucketBytes = bucketBytes
	}
	return cfg, nil
}

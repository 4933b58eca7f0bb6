package sgd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nexar-go/nexar/compress"
)

// NoCompression is the name of uncompressed gradients.
const NoCompression = "none"

// Compressions returns the names for [CompressorOf]: topk and randomk keep 1% of the elements of a
// gradient, quantize8 and cast16 keep 8 and 16 bits of each element.
func Compressions() []string {
	return []string{NoCompression, "topk", "randomk", "quantize8", "cast16"}
}

// CompressorOf returns the Config.Compressor of a name. It adds the compression error of a gradient to
// the next one ([compress.ErrorFeedback]); without that, training with 1% of the elements would not
// converge. For an unknown name it returns [ErrConfig].
func CompressorOf(name string, seed uint64) (func(layer int) compress.Compressor, error) {
	if !slices.Contains(Compressions(), name) {
		return nil, fmt.Errorf("%w: compression %q is not one of %s", ErrConfig, name, strings.Join(Compressions(), ", "))
	}
	if name == NoCompression {
		return nil, nil
	}
	return func(layer int) compress.Compressor {
		return &compress.ErrorFeedback{Compressor: lossy(name, seed+uint64(layer))}
	}, nil
}

// lossy returns a compressor for one layer, with its own seed.
func lossy(name string, seed uint64) compress.Compressor {
	const share = 0.01
	switch name {
	case "topk":
		return &compress.TopK{Ratio: share}
	case "randomk":
		return &compress.RandomK{Ratio: share, Seed: seed}
	case "quantize8":
		return compress.Quantize8{}
	default:
		return compress.Cast16{}
	}
}

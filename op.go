package nexar

import "github.com/nexar-go/nexar/internal/kernel"

// An Op combines the elements of vectors.
type Op uint8

const (
	// Sum adds. Integers wrap around; Float16 and BFloat16 are rounded after
	// every addition.
	Sum = Op(kernel.Sum)
	// Prod multiplies.
	Prod = Op(kernel.Prod)
	// Min takes the smaller one, as Go's min does: NaN wins, and -0 < +0.
	Min = Op(kernel.Min)
	// Max takes the larger one, as Go's max does: NaN wins, and -0 < +0.
	Max = Op(kernel.Max)
	// Avg is Sum divided by the number of ranks whose vectors it is of.
	// Integers are truncated toward zero.
	Avg = Op(kernel.Avg)
	// BitAnd, BitOr and BitXor combine the bits of integers.
	BitAnd = Op(kernel.BitAnd)
	BitOr  = Op(kernel.BitOr)
	BitXor = Op(kernel.BitXor)
)

// String is the name of the op: "sum".
func (o Op) String() string { return kernel.Op(o).String() }

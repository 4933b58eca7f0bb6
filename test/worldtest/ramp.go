package worldtest

// Ramp returns element i of the vector of a rank. Sums over all ranks are exact.
func Ramp(rank, i int) float32 { return float32((i*7+rank*1_000_003)%100_003 + 1) }

// FillRamp fills x with the vector of a rank.
//
//go:norace
func FillRamp(x []float32, rank int) {
	for i := range x {
		x[i] = Ramp(rank, i)
	}
}

// CheckRamps returns the number of elements of x that differ from the sum of the vectors of
// all ranks, and the index of the first.
//
//go:norace
func CheckRamps(x []float32, ranks int) (wrong, first int) {
	for i := len(x) - 1; i >= 0; i-- {
		var want float32
		for rank := range ranks {
			want += Ramp(rank, i)
		}
		if x[i] != want {
			wrong, first = wrong+1, i
		}
	}
	return wrong, first
}

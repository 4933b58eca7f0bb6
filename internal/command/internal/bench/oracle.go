package bench

// period is the number of elements after which the pattern repeats. It is a prime, so that
// no block, segment or page of an algorithm has this length.
const period = 65521

// stride is the distance in the pattern between the first elements of consecutive ranks.
const stride = 7919

// An oracle knows the contribution of every rank, and all sums of contributions. Elements
// are from 1 to 255: never 0, which means "not written", and small enough that a float32
// holds the sum over 65,793 ranks exactly.
type oracle struct {
	pattern []float32
	sums    map[[2]int][]float32 // one period of the sum, by its ranks [from, to)
}

func newOracle() *oracle {
	o := &oracle{pattern: make([]float32, period), sums: make(map[[2]int][]float32)}
	state := uint32(1)
	for i := range o.pattern {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator
		o.pattern[i] = float32(1 + (state>>16)%255)
	}
	return o
}

// A piece is count elements of a periodic vector, beginning with element at.
type piece struct {
	table []float32 // one period
	at    int
	count int
}

// of returns count elements of the contribution of a rank, beginning with element at.
func (o *oracle) of(rank, at, count int) piece {
	return piece{o.pattern, (at + rank*stride) % period, count}
}

// sum returns count elements, beginning with element at, of the sum of the contributions
// of ranks [from, to).
func (o *oracle) sum(from, to, at, count int) piece {
	key := [2]int{from, to}
	table := o.sums[key]
	if table == nil {
		table = make([]float32, period)
		for rank := from; rank < to; rank++ {
			for i := range table {
				table[i] += o.pattern[(i+rank*stride)%period]
			}
		}
		o.sums[key] = table
	}
	return piece{table, at % period, count}
}

// total returns the number of elements of all pieces.
func total(pieces []piece) int {
	n := 0
	for _, p := range pieces {
		n += p.count
	}
	return n
}

// fill writes the pieces, one after the other, to dst, which has their total length.
func fill(dst []float32, pieces []piece) {
	for _, p := range pieces {
		for p.count > 0 {
			n := copy(dst[:p.count], p.table[p.at:])
			dst = dst[n:]
			p.count -= n
			p.at = 0
		}
	}
}

// wrong counts the elements of got that differ from those of the pieces.
func wrong(got []float32, pieces []piece) int {
	bad := 0
	for _, p := range pieces {
		for p.count > 0 {
			table := p.table[p.at:]
			table = table[:min(len(table), p.count)]
			part := got[:len(table)]
			for i, want := range table {
				if part[i] != want {
					bad++
				}
			}
			got = got[len(table):]
			p.count -= len(table)
			p.at = 0
		}
	}
	return bad
}

package overlap

import (
	"math/rand/v2"
	"testing"
)

// TestTwo compares with counting bytes.
func TestTwo(t *testing.T) {
	mem := make([]byte, 12)
	for a := range 12 {
		for b := a; b <= 12; b++ {
			for c := range 12 {
				for d := c; d <= 12; d++ {
					both := 0
					for i := range 12 {
						if i >= a && i < b && i >= c && i < d {
							both++
						}
					}
					if got := Two(mem[a:b], mem[c:d]); got != (both > 0) {
						t.Fatalf("[%d:%d] and [%d:%d]: %v", a, b, c, d, got)
					}
				}
			}
		}
	}
}

// TestFirst compares with looking at all pairs.
func TestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	mem := make([]byte, 100)
	for range 5000 {
		list := make([][]byte, rng.IntN(8))
		for i := range list {
			from := rng.IntN(100)
			list[i] = mem[from:min(100, from+rng.IntN(20))]
		}
		want := false
		for i := range list {
			for j := range i {
				want = want || Two(list[i], list[j])
			}
		}
		i, j, found := First(list)
		if found != want || found && (i >= j || !Two(list[i], list[j])) {
			t.Fatalf("%d slices: %d and %d, %v, want %v", len(list), i, j, found, want)
		}
	}
}

// TestFlights: reading in the same place is fine, everything else is not, until
// the other has left.
func TestFlights(t *testing.T) {
	mem := make([]byte, 100)
	for name, test := range map[string]struct {
		a, b    Flight
		clashes bool
	}{
		"two read":                {Flight{Read: mem[:10]}, Flight{Read: mem[5:15]}, false},
		"one reads, one writes":   {Flight{Read: mem[:10]}, Flight{Write: mem[9:15]}, true},
		"one writes, one reads":   {Flight{Write: mem[:10]}, Flight{Read: mem[9:15]}, true},
		"two write":               {Flight{Write: mem[:10]}, Flight{Write: mem[9:15]}, true},
		"side by side":            {Flight{Write: mem[:10]}, Flight{Write: mem[10:15]}, false},
		"its own memory in place": {Flight{Write: mem[:10], Read: mem[:5]}, Flight{Write: mem[20:30]}, false},
	} {
		var f Flights
		test.a.Name = "first"
		number, other := f.Enter(test.a)
		if number == 0 || other != nil {
			t.Fatalf("%s: the first clashes", name)
		}
		second, other := f.Enter(test.b)
		if (other != nil) != test.clashes || test.clashes && (other.Name != "first" || second != 0) {
			t.Errorf("%s: number %d, clashes with %v", name, second, other)
		}
		f.Leave(number)
		f.Leave(second)
		if _, other := f.Enter(test.b); other != nil {
			t.Errorf("%s: clashes with what has left", name)
		}
	}
}

// TestManyFlights: beyond some number operations are let through.
func TestManyFlights(t *testing.T) {
	var f Flights
	mem := make([]byte, 2*flightsMax)
	for i := range flightsMax {
		if n, other := f.Enter(Flight{Write: mem[i : i+1]}); n == 0 || other != nil {
			t.Fatalf("%d: number %d, %v", i, n, other)
		}
	}
	n, other := f.Enter(Flight{Write: mem})
	if n != 0 || other != nil {
		t.Errorf("number %d, %v", n, other)
	}
	f.Leave(n)
}

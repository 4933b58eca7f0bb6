//race:none it starts no goroutine

package overlap

import (
	"math/rand/v2"
	"testing"
)

// TestTwo compares Two with a count of shared bytes.
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

// TestFirst compares First with a comparison of all pairs.
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

// some returns up to n random slices of mem, many of them short.
func some(rng *rand.Rand, mem []byte, n int) [][]byte {
	list := make([][]byte, rng.IntN(n+1))
	for i := range list {
		from := rng.IntN(len(mem))
		list[i] = mem[from:min(len(mem), from+rng.IntN(1+rng.IntN(12)))]
	}
	return list
}

// TestApart: Apart returns all slices in order, and agrees with First.
func TestApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	mem, yes := make([]byte, 200), 0
	for range 5000 {
		list := some(rng, mem, 9)
		sorted, apart := Apart(list)
		if _, _, found := First(list); apart == found {
			t.Fatalf("%d slices: apart is %v, and that some share memory, too", len(list), apart)
		}
		bytes, last := 0, uintptr(0)
		for _, b := range sorted {
			if len(b) == 0 || start(b) < last {
				t.Fatalf("%d slices: one of %d bytes is out of order", len(list), len(b))
			}
			bytes, last = bytes+len(b), start(b)
		}
		for _, b := range list {
			bytes -= len(b)
		}
		if bytes != 0 {
			t.Fatalf("%d slices: %d bytes too many", len(list), bytes)
		}
		if apart && len(sorted) > 2 {
			yes++
		}
	}
	if yes < 100 {
		t.Errorf("%d lists were apart, too few", yes)
	}
}

// TestFlightsOfMany compares Enter with a comparison of all pairs of slices.
func TestFlightsOfMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	mem := make([]byte, 400)
	draw := func() (x Flight) {
		part := func() []byte {
			if list := some(rng, mem, 1); len(list) > 0 {
				return list[0]
			}
			return nil
		}
		for apart := false; !apart; {
			x.More, apart = Apart(some(rng, mem, 9))
		}
		return Flight{Write: part(), Read: part(), More: x.More}
	}
	in := func(a, b Flight) bool { // a writes memory that b uses
		for _, w := range append([][]byte{a.Write}, a.More...) {
			for _, u := range append([][]byte{b.Write, b.Read}, b.More...) {
				if Two(w, u) {
					return true
				}
			}
		}
		return false
	}
	var seen [2]int
	for range 20_000 {
		var f Flights
		a, b := draw(), draw()
		f.Enter(a)
		_, other := f.Enter(b)
		want := in(a, b) || in(b, a)
		if (other != nil) != want {
			t.Fatalf("clashes is %v, want %v: %d slices beside %d", other != nil, want, len(a.More), len(b.More))
		}
		if want {
			seen[1]++
		} else {
			seen[0]++
		}
	}
	if seen[0] < 1000 || seen[1] < 1000 {
		t.Errorf("%d pairs without a clash and %d with one, too few", seen[0], seen[1])
	}
}

// BenchmarkEnter enters an operation beside one on 1,000 slices: one on a single slice, and one on
// 1,000 slices.
func BenchmarkEnter(b *testing.B) {
	mem := make([]byte, 200_000)
	list := func(from int) (more [][]byte) {
		for i := range 1000 {
			at := from + 200*i
			more = append(more, mem[at:at+100])
		}
		return more
	}
	for name, x := range map[string]Flight{"one": {Write: mem[100:200]}, "many": {More: list(100)}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var f Flights
			f.Enter(Flight{More: list(0)})
			for b.Loop() {
				number, other := f.Enter(x)
				if other != nil {
					b.Fatal("they share memory")
				}
				f.Leave(number)
			}
		})
	}
}

// TestFlights: two operations may read the same memory. Otherwise they clash, until one has left.
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
		"one of many writes":      {Flight{More: [][]byte{mem[:2], mem[4:6], mem[8:10]}}, Flight{Read: mem[5:7]}, true},
		"between many":            {Flight{More: [][]byte{mem[:2], mem[4:6], mem[8:10]}}, Flight{Write: mem[6:8]}, false},
		"many and many":           {Flight{More: [][]byte{mem[:2], mem[4:6]}}, Flight{More: [][]byte{mem[2:4], mem[5:6]}}, true},
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
			t.Errorf("%s: clashes with an operation that has left", name)
		}
	}
}

// TestManyFlights: beyond flightsMax, operations are not compared.
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

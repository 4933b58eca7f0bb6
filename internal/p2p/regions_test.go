package p2p

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// regionsIn cuts b into regions of these lengths, which add up to the length of b.
func regionsIn(b []byte, lengths []int) *Regions {
	r := new(Regions)
	for i, n := range lengths {
		if i == 0 {
			r.First = b[:n:n]
		} else {
			r.More = append(r.More, b[:n:n])
		}
		b = b[n:]
	}
	return r
}

// joined returns the contents of regions.
func joined(r *Regions) []byte { return slices.Concat(append([][]byte{r.First}, r.More...)...) }

func sum(lengths []int) (n int) {
	for _, l := range lengths {
		n += l
	}
	return n
}

// TestRegions: regions of all lengths are contiguous, cut returns their first n bytes, and fill
// writes only these.
func TestRegions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 6).Draw(r, "lengths")
		all := payload(sum(lengths), 7)
		regions := regionsIn(all, lengths)
		if got := regions.Len(); got != len(all) {
			r.Fatalf("they have %d bytes, want %d", got, len(all))
		}
		n := rapid.IntRange(0, len(all)).Draw(r, "n")
		var first Regions
		first.First, first.More = regions.cut(n)
		if got := joined(&first); !bytes.Equal(got, all[:n]) {
			r.Fatalf("the first %d bytes of %v are %v", n, all, got)
		}
		if got := joined(regions); !bytes.Equal(got, all) {
			r.Fatalf("%v are %v after a cut", all, got)
		}
		want := slices.Concat(payload(n, 99), all[n:])
		first.fill(payload(n, 99))
		if !bytes.Equal(all, want) {
			r.Fatalf("filled with %d bytes they are %v, want %v", n, all, want)
		}
	})
}

// payload returns n bytes that depend on seed.
func payload(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + seed)
	}
	return b
}

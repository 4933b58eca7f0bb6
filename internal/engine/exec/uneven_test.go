package exec

import (
	"math/rand/v2"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// lengths are n lengths of blocks, wildly different ones, and where the blocks
// begin.
func lengths(rng *rand.Rand, n int) (starts []int, longest int) {
	starts = []int{0}
	for range n {
		l := 0
		if rng.IntN(3) > 0 {
			l = rng.IntN(1 << rng.IntN(12))
		}
		starts, longest = append(starts, starts[len(starts)-1]+l), max(longest, l)
	}
	return starts, longest
}

// TestUnevenPartition: blocks of any lengths, in any number of channels, cover
// every byte of both buffers once.
func TestUnevenPartition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		chunks, channels := 1+rng.IntN(9), 1+rng.IntN(4)
		u := &Uneven{}
		var most int
		u.Starts, u.Longest = lengths(rng, chunks)
		u.Inputs, most = lengths(rng, chunks)
		u.Longest = max(u.Longest, most)
		s := Vectors{Layout: Layout{Elem: 4, Blocks: true, Uneven: u}, Chunks: chunks, Channels: channels}
		for _, buf := range []plan.Buf{plan.Data, plan.Input} {
			starts, first := u.of(buf), rng.IntN(chunks)
			mem := make([]byte, (starts[chunks]-starts[first])*4)
			s.bufs[buf] = window{mem, first}
			for c := range channels {
				for i := first; i < chunks; i++ {
					sp := plan.Span{Buf: buf, Lo: i, Hi: i + 1}
					b := s.Bytes(sp, c)
					mark(b)
					if len(b) != s.Length(sp, c) || len(b) > s.Unit(chunks, channels) {
						t.Fatalf("block %d has %d bytes, its length is %d, and none has more than %d", i, len(b), s.Length(sp, c), s.Unit(chunks, channels))
					}
				}
			}
			for i, n := range mem {
				if n != 1 {
					t.Fatalf("byte %d is in %d blocks", i, n)
				}
			}
			if sp := (plan.Span{Buf: buf, Lo: first, Hi: chunks}); channels == 1 && (len(s.Bytes(sp, 0)) != len(mem) || s.Length(sp, 0) != len(mem)) {
				t.Fatalf("all blocks together have %d bytes, of %d", len(s.Bytes(sp, 0)), len(mem))
			}
		}
	}
}

// TestUnevenTemp: chunks of Temp are as long as the blocks that they stand for,
// and do not overlap.
func TestUnevenTemp(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		chunks, channels := 1+rng.IntN(6), 1+rng.IntN(3)
		u := &Uneven{}
		u.Starts, u.Longest = lengths(rng, chunks)
		s := Vectors{Layout: Layout{Elem: 2, Blocks: true, Uneven: u}, Chunks: chunks, Channels: channels}
		lo := rng.IntN(3)
		hi := lo + 2*chunks + 1
		mem := takeTemp(t, &s, lo, hi)
		for c := range channels {
			for i := lo; i < hi; i++ {
				b := s.Bytes(plan.Span{Buf: plan.Temp, Lo: i, Hi: i + 1}, c)
				if want := s.Length(plan.Span{Lo: i % chunks, Hi: i%chunks + 1}, c); len(b) != want {
					t.Fatalf("chunk %d has %d bytes, that of Data %d", i, len(b), want)
				}
				mark(b)
			}
		}
		for i, n := range mem {
			if n > 1 {
				t.Fatalf("byte %d is in %d chunks", i, n)
			}
		}
	}
}

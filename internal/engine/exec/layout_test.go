package exec

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/plan"
)

// TestChannelsAndChunksPartition: for every length the chunks of all channels
// cover each byte of the vector exactly once, in order.
func TestChannelsAndChunksPartition(t *testing.T) {
	const elem = 4
	for count := range 201 {
		for chunks := 1; chunks <= 9; chunks++ {
			for channels := 1; channels <= 5; channels++ {
				s := Vectors{Layout: Layout{Elem: elem, Count: count}, Chunks: chunks, Channels: channels}
				s.bufs[plan.Data].mem = make([]byte, count*elem)
				if err := covers(&s, chunks); err != nil {
					t.Fatalf("%d elements, %d chunks, %d channels: %v", count, chunks, channels, err)
				}
			}
		}
	}
}

// TestBlocksPartition: the same for chunks that are blocks of the caller.
func TestBlocksPartition(t *testing.T) {
	const elem = 2
	for count := range 60 {
		for chunks := 1; chunks <= 9; chunks++ {
			for channels := 1; channels <= 5; channels++ {
				s := Vectors{Layout: Layout{Elem: elem, Count: count, Blocks: true}, Chunks: chunks, Channels: channels}
				s.bufs[plan.Data].mem = make([]byte, count*chunks*elem)
				seen := s.bufs[plan.Data].mem
				for c := range channels {
					for i := range chunks {
						mark(s.Bytes(plan.Span{Lo: i, Hi: i + 1}, c))
						if got, want := len(s.Bytes(plan.Span{Lo: i, Hi: i + 1}, c)), s.Length(plan.Span{Lo: i, Hi: i + 1}, c); got != want {
							t.Fatalf("chunk %d has %d bytes, and its length is %d", i, got, want)
						}
					}
				}
				for i, n := range seen {
					if n != 1 {
						t.Fatalf("%d elements, %d blocks, %d channels: byte %d is in %d chunks", count, chunks, channels, i, n)
					}
				}
			}
		}
	}
}

func mark(b []byte) {
	for i := range b {
		b[i]++
	}
}

// covers marks every chunk and looks for bytes that are not marked once. It
// checks that spans of several chunks are those chunks, and lengths those of
// the memory.
func covers(s *Vectors, chunks int) error {
	mem := s.bufs[plan.Data].mem
	for c := range s.Channels {
		sum := 0
		for i := range chunks {
			b := s.Bytes(plan.Span{Lo: i, Hi: i + 1}, c)
			sum += len(b)
			mark(b)
		}
		whole := plan.Span{Lo: 0, Hi: chunks}
		if got := len(s.Bytes(whole, c)); got != sum || s.Length(whole, c) != sum {
			return fmt.Errorf("channel %d: %d bytes, a length of %d, and %d in chunks", c, got, s.Length(whole, c), sum)
		}
		for i := range chunks {
			sp := plan.Span{Lo: i, Hi: min(chunks, i+2)}
			if len(s.Bytes(sp, c)) != s.Length(sp, c) {
				return fmt.Errorf("channel %d: %v has %d bytes, and its length is %d", c, sp, len(s.Bytes(sp, c)), s.Length(sp, c))
			}
		}
	}
	for i, n := range mem {
		if n != 1 {
			return fmt.Errorf("byte %d is in %d chunks", i, n)
		}
	}
	return nil
}

// takeTemp gets the memory for chunks of Temp in every channel, and clears it.
func takeTemp(t *testing.T, v *Vectors, lo, hi int) []byte {
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v.schedule = &Schedule{Pool: pool}
	v.TakeTemp(lo, hi, false)
	mem := v.bufs[plan.Temp].mem
	clear(mem)
	return mem
}

// TestTempChunks: chunks of Temp are as long as those of Data, lie in the
// memory that is got for them, and do not overlap, also where the plan uses
// only those from some number on.
func TestTempChunks(t *testing.T) {
	for count := range 50 {
		for chunks := 1; chunks <= 5; chunks++ {
			for channels := 1; channels <= 4; channels++ {
				for _, blocks := range []bool{false, true} {
					for lo := range 3 {
						hi := lo + 2*chunks + 1
						s := Vectors{Layout: Layout{Elem: 4, Count: count, Blocks: blocks}, Chunks: chunks, Channels: channels}
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
			}
		}
	}
}

// TestWindow: a rank that has a single block of a vector finds it by its number.
func TestWindow(t *testing.T) {
	s := Vectors{Layout: Layout{Elem: 4, Count: 10, Blocks: true}, Chunks: 5, Channels: 2}
	s.bufs[plan.Input] = window{make([]byte, 40), 3}
	mark(s.Bytes(plan.Span{Buf: plan.Input, Lo: 3, Hi: 4}, 0))
	mark(s.Bytes(plan.Span{Buf: plan.Input, Lo: 3, Hi: 4}, 1))
	for i, n := range s.bufs[plan.Input].mem {
		if n != 1 {
			t.Fatalf("byte %d is in %d chunks", i, n)
		}
	}
}

// TestUnitIsTheLongestChunk: no chunk of any piece is longer than unit says,
// so that it has room in a cell in shared memory.
func TestUnitIsTheLongestChunk(t *testing.T) {
	counts := []int{0, 1, 2, 63, 64, 65, 1000, partLong - 1, partLong, 3*partLong - 1, 3 * partLong, 100_003, 1 << 20}
	for _, count := range counts {
		for _, blocks := range []bool{false, true} {
			for chunks := 1; chunks <= 9; chunks++ {
				for _, pieces := range []int{1, 2, 3, 7, 64, 1001} {
					l := Layout{Elem: 4, Count: count, Blocks: blocks}
					s := Vectors{Layout: l, Chunks: chunks, Channels: pieces}
					unit := l.Unit(chunks, pieces)
					for piece := range pieces {
						for c := range chunks {
							if n := s.Length(plan.Span{Lo: c, Hi: c + 1}, piece); n > unit {
								t.Fatalf("%d elements, blocks %v: chunk %d of %d has %d bytes in piece %d of %d, more than %d",
									count, blocks, c, chunks, n, piece, pieces, unit)
							}
						}
					}
				}
			}
		}
	}
}

// TestLongPartsAreAligned: parts that are long begin with a cache line if the
// whole does.
func TestLongPartsAreAligned(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64} {
		for _, count := range []int{n * partLong, n*partLong + 1, n * 100_003} {
			for i := range n {
				if at := part(count, i, n); at%partAlign != 0 {
					t.Errorf("part %d of %d of %d elements begins at %d", i, n, count, at)
				}
			}
			if end := part(count, n, n); end != count {
				t.Errorf("%d parts of %d elements end at %d", n, count, end)
			}
		}
	}
}

// TestEqualChunks: chunks of equal length are where the rules for all chunks place them.
func TestEqualChunks(t *testing.T) {
	layouts := []struct {
		Layout
		chunks, first int
	}{
		{Layout{Elem: 4, Count: 10, Blocks: true}, 5, 0},
		{Layout{Elem: 2, Count: 7, Blocks: true}, 3, 2},
		{Layout{Elem: 8, Count: 3}, 1, 0},
	}
	for _, l := range layouts {
		w := Work{Schedule: &Schedule{Layout: l.Layout, Channels: 1}, Data: make([]byte, l.chunks*l.Count*l.Elem), DataFirst: l.first}
		var equal Vectors
		equal.Set(&w, l.chunks)
		equal.bufs[plan.Temp] = window{make([]byte, 3*l.Count*l.Elem), 1}
		if !equal.equal {
			t.Fatalf("%+v: the chunks have no equal length", l)
		}
		general := equal
		general.equal = false
		check := func(sp plan.Span) {
			got, want := equal.Bytes(sp, 0), general.Bytes(sp, 0)
			if len(got) != len(want) || len(got) != equal.Length(sp, 0) || &got[0] != &want[0] {
				t.Errorf("%+v, span %v: %d bytes, want %d", l, sp, len(got), len(want))
			}
		}
		for i := range l.chunks {
			check(plan.Span{Buf: plan.Data, Lo: l.first + i, Hi: l.first + i + 1})
		}
		for i := range 3 {
			check(plan.Span{Buf: plan.Temp, Lo: 1 + i, Hi: 2 + i})
		}
	}
}

package engine

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestChannelsAndChunksPartition: for every length the chunks of all channels
// cover each byte of the vector exactly once, in order.
func TestChannelsAndChunksPartition(t *testing.T) {
	const elem = 4
	for count := range 201 {
		for chunks := 1; chunks <= 9; chunks++ {
			for channels := 1; channels <= 5; channels++ {
				s := slicer{Layout: Layout{Elem: elem, Count: count}, chunks: chunks, channels: channels}
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
				s := slicer{Layout: Layout{Elem: elem, Count: count, Blocks: true}, chunks: chunks, channels: channels}
				s.bufs[plan.Data].mem = make([]byte, count*chunks*elem)
				seen := s.bufs[plan.Data].mem
				for c := range channels {
					for i := range chunks {
						mark(s.bytes(plan.Span{Lo: i, Hi: i + 1}, c))
						if got, want := len(s.bytes(plan.Span{Lo: i, Hi: i + 1}, c)), s.length(plan.Span{Lo: i, Hi: i + 1}, c); got != want {
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
func covers(s *slicer, chunks int) error {
	mem := s.bufs[plan.Data].mem
	for c := range s.channels {
		sum := 0
		for i := range chunks {
			b := s.bytes(plan.Span{Lo: i, Hi: i + 1}, c)
			sum += len(b)
			mark(b)
		}
		whole := plan.Span{Lo: 0, Hi: chunks}
		if got := len(s.bytes(whole, c)); got != sum || s.length(whole, c) != sum {
			return fmt.Errorf("channel %d: %d bytes, a length of %d, and %d in chunks", c, got, s.length(whole, c), sum)
		}
		for i := range chunks {
			sp := plan.Span{Lo: i, Hi: min(chunks, i+2)}
			if len(s.bytes(sp, c)) != s.length(sp, c) {
				return fmt.Errorf("channel %d: %v has %d bytes, and its length is %d", c, sp, len(s.bytes(sp, c)), s.length(sp, c))
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
						s := slicer{Layout: Layout{Elem: 4, Count: count, Blocks: blocks}, chunks: chunks, channels: channels}
						s.tempSize = s.tempBytes(lo, hi)
						mem := make([]byte, s.tempSize*channels)
						s.bufs[plan.Temp] = window{mem, lo}
						for c := range channels {
							for i := lo; i < hi; i++ {
								b := s.bytes(plan.Span{Buf: plan.Temp, Lo: i, Hi: i + 1}, c)
								if want := s.length(plan.Span{Lo: i % chunks, Hi: i%chunks + 1}, c); len(b) != want {
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
	s := slicer{Layout: Layout{Elem: 4, Count: 10, Blocks: true}, chunks: 5, channels: 2}
	s.bufs[plan.Input] = window{make([]byte, 40), 3}
	mark(s.bytes(plan.Span{Buf: plan.Input, Lo: 3, Hi: 4}, 0))
	mark(s.bytes(plan.Span{Buf: plan.Input, Lo: 3, Hi: 4}, 1))
	for i, n := range s.bufs[plan.Input].mem {
		if n != 1 {
			t.Fatalf("byte %d is in %d chunks", i, n)
		}
	}
}

package engine

import "github.com/nexar-go/nexar/internal/plan"

// Uneven are the lengths of blocks that are not alike, in elements. It is not
// changed as long as a call uses it.
type Uneven struct {
	// Starts are where the blocks of Data begin, and where the last one ends:
	// they are one more than there are blocks.
	Starts []int
	// Inputs are the same for Input, if its blocks are others; nil says that
	// they are as long as those of Data.
	Inputs []int
	// Longest is the length of the longest block on any rank.
	Longest int
}

// of are the places of the blocks of a buffer.
func (u *Uneven) of(b plan.Buf) []int {
	if b == plan.Input && u.Inputs != nil {
		return u.Inputs
	}
	return u.Starts
}

// unevenBytes is Bytes.
func (s *slicer) unevenBytes(w *window, sp plan.Span, channel int) []byte {
	if sp.Buf == plan.Temp {
		base := -s.unevenTemp(w.first)
		if !s.oneTemp {
			base += channel * s.tempSize
		}
		at := base + s.unevenTemp(sp.Lo)
		return w.mem[at : at+s.unevenLength(sp, channel)]
	}
	starts := s.Uneven.of(sp.Buf)
	from, _ := s.unevenPart(starts, sp.Lo, channel)
	_, to := s.unevenPart(starts, sp.Hi-1, channel)
	base := starts[w.first]
	return w.mem[(from-base)*s.Elem : (to-base)*s.Elem]
}

// unevenPart is where the part of a block lies that a channel has.
func (s *slicer) unevenPart(starts []int, i, channel int) (from, to int) {
	n := starts[i+1] - starts[i]
	return starts[i] + part(n, channel, s.channels), starts[i] + part(n, channel+1, s.channels)
}

// unevenTemp is where chunk i lies in Temp. Several channels use single chunks
// alone, each of which has room for the longest.
func (s *slicer) unevenTemp(i int) int {
	if s.channels > 1 {
		return i * longest(s.Uneven.Longest, s.channels) * s.Elem
	}
	starts := s.Uneven.Starts
	return (i/s.chunks*starts[s.chunks] + starts[i%s.chunks]) * s.Elem
}

// unevenLength is Length.
func (s *slicer) unevenLength(sp plan.Span, channel int) int {
	switch {
	case sp.Buf == plan.Temp && s.channels == 1:
		return s.unevenTemp(sp.Hi) - s.unevenTemp(sp.Lo)
	case sp.Buf == plan.Temp:
		sp.Lo, sp.Hi = sp.Lo%s.chunks, sp.Lo%s.chunks+1
	}
	starts := s.Uneven.of(sp.Buf)
	from, _ := s.unevenPart(starts, sp.Lo, channel)
	_, to := s.unevenPart(starts, sp.Hi-1, channel)
	return (to - from) * s.Elem
}

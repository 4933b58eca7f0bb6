package exec

import "github.com/nexar-go/nexar/internal/plan"

// Uneven has the lengths of blocks that differ, in elements. It must not be changed
// while a call uses it.
type Uneven struct {
	// Starts has the start of each block of Data, and the end of the last one.
	Starts []int
	// Inputs is the same for Input; nil means that its blocks are as long as those
	// of Data.
	Inputs []int
	// Longest is the length of the longest block on any rank.
	Longest int
}

// of returns the starts of the blocks of a buffer.
func (u *Uneven) of(b plan.Buf) []int {
	if b == plan.Input && u.Inputs != nil {
		return u.Inputs
	}
	return u.Starts
}

func (v *Vectors) unevenBytes(w *window, sp plan.Span, channel int) []byte {
	if sp.Buf == plan.Temp {
		base := -v.unevenTemp(w.first)
		if !v.oneTemp {
			base += channel * v.tempSize
		}
		at := base + v.unevenTemp(sp.Lo)
		return w.mem[at : at+v.unevenLength(sp, channel)]
	}
	starts := v.Uneven.of(sp.Buf)
	from, _ := v.unevenPart(starts, sp.Lo, channel)
	_, to := v.unevenPart(starts, sp.Hi-1, channel)
	base := starts[w.first]
	return w.mem[(from-base)*v.Elem : (to-base)*v.Elem]
}

// unevenPart returns the start and the end of a channel's part of block i.
func (v *Vectors) unevenPart(starts []int, i, channel int) (from, to int) {
	n := starts[i+1] - starts[i]
	return starts[i] + part(n, channel, v.Channels), starts[i] + part(n, channel+1, v.Channels)
}

// unevenTemp returns the start of chunk i of Temp. Plans that run in several channels
// use single chunks only, and each has room for the longest.
func (v *Vectors) unevenTemp(i int) int {
	if v.Channels > 1 {
		return i * longest(v.Uneven.Longest, v.Channels) * v.Elem
	}
	starts := v.Uneven.Starts
	return (i/v.Chunks*starts[v.Chunks] + starts[i%v.Chunks]) * v.Elem
}

func (v *Vectors) unevenLength(sp plan.Span, channel int) int {
	switch {
	case sp.Buf == plan.Temp && v.Channels == 1:
		return v.unevenTemp(sp.Hi) - v.unevenTemp(sp.Lo)
	case sp.Buf == plan.Temp:
		sp.Lo, sp.Hi = sp.Lo%v.Chunks, sp.Lo%v.Chunks+1
	}
	starts := v.Uneven.of(sp.Buf)
	from, _ := v.unevenPart(starts, sp.Lo, channel)
	_, to := v.unevenPart(starts, sp.Hi-1, channel)
	return (to - from) * v.Elem
}

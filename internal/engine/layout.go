package engine

import (
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/shmcoll"
)

// A Layout says where the chunks of a plan lie in the vectors of a call. Every
// channel has a slice of its own of each of them.
type Layout struct {
	// Elem is the size of an element.
	Elem int
	// Count is the number of elements that the chunks share: those of the
	// whole vector, or of each block.
	Count int
	// Blocks says that the chunks are blocks of Count elements each, one
	// after the other. Otherwise they divide a vector of Count elements.
	Blocks bool
	// Uneven, if not nil, says how long blocks are that are not alike, in
	// place of Count.
	Uneven *Uneven
}

// partAlign is on which elements long parts begin, so that they begin with a
// cache line, whatever the elements are, if the whole does. Parts are long from
// partLong elements on.
const (
	partAlign = 64
	partLong  = 16 * partAlign
)

// part is the place of the i-th of n nearly equal parts of a whole of count
// elements.
func part(count, i, n int) int {
	q, r := count/n, count%n
	at := i*q + i*r/n
	if q >= partLong && i < n {
		at &^= partAlign - 1
	}
	return at
}

// longest is the most elements that one of n parts has, of a whole of count
// elements or fewer.
func longest(count, n int) int {
	most := (count + n - 1) / n
	if count/n >= partLong {
		most += partAlign - 1
	}
	return most
}

// A window is a buffer of a call. Buffers of collectives that give each rank
// a block hold only that block on most ranks.
type window struct {
	mem   []byte
	first int // the chunk at the start of mem
}

// A slicer finds the chunks of one call in its buffers.
type slicer struct {
	Layout
	chunks   int
	channels int
	bufs     [3]window // by plan.Buf; Temp is that of all channels
	tempSize int       // of one channel
	oneTemp  bool      // channels do not run side by side: one Temp is for all
}

// take begins with the buffers of a call.
func (s *slicer) take(w *Work) {
	s.Layout, s.channels, s.oneTemp = w.Layout, w.Channels, false
	data, input, temp := &s.bufs[plan.Data], &s.bufs[plan.Input], &s.bufs[plan.Temp]
	data.mem, data.first = w.Data, w.DataFirst
	input.mem, input.first = w.Input, w.InputFirst
	temp.mem, temp.first = nil, 0
	s.tempSize = 0
}

// Bytes is the memory of a span in a channel.
func (s *slicer) Bytes(sp plan.Span, channel int) []byte {
	w := &s.bufs[sp.Buf]
	if s.Uneven != nil {
		return s.unevenBytes(w, sp, channel)
	}
	if s.chunks*s.channels == 1 && sp.Buf != plan.Temp {
		return w.mem[:s.Count*s.Elem]
	}
	if sp.Buf == plan.Temp {
		base := -s.tempAt(w.first, channel)
		if !s.oneTemp {
			base += channel * s.tempSize
		}
		return w.mem[base+s.tempAt(sp.Lo, channel) : base+s.tempAt(sp.Hi, channel)]
	}
	if !s.Blocks {
		lo, hi := part(s.Count, channel, s.channels), part(s.Count, channel+1, s.channels)
		a, b := part(hi-lo, sp.Lo, s.chunks), part(hi-lo, sp.Hi, s.chunks)
		return w.mem[(lo+a)*s.Elem : (lo+b)*s.Elem]
	}
	lo, hi := part(s.Count, channel, s.channels), part(s.Count, channel+1, s.channels)
	from, to := (sp.Lo-w.first)*s.Count+lo, (sp.Hi-1-w.first)*s.Count+hi
	return w.mem[from*s.Elem : to*s.Elem]
}

// tempAt is the place of chunk i of Temp in a channel: chunk i is as long as
// chunk i mod chunks of Data, and they lie close together.
func (s *slicer) tempAt(i, channel int) int {
	if s.Uneven != nil {
		return s.unevenTemp(i)
	}
	if s.chunks*s.channels == 1 {
		return i * s.Count * s.Elem
	}
	lo, hi := part(s.Count, channel, s.channels), part(s.Count, channel+1, s.channels)
	if s.Blocks {
		return i * (hi - lo) * s.Elem
	}
	return (i/s.chunks*(hi-lo) + part(hi-lo, i%s.chunks, s.chunks)) * s.Elem
}

// tempBytes is how much a channel needs of Temp at the most, for its chunks
// lo ≤ i < hi.
func (s *slicer) tempBytes(lo, hi int) int {
	size := 0
	for c := range s.channels {
		size = max(size, s.tempAt(hi, c)-s.tempAt(lo, c))
	}
	return size
}

// Length is the size of a span in a channel.
func (s *slicer) Length(sp plan.Span, channel int) int {
	if s.Uneven != nil {
		return s.unevenLength(sp, channel)
	}
	if s.chunks*s.channels == 1 {
		return (sp.Hi - sp.Lo) * s.Count * s.Elem
	}
	if s.Blocks {
		lo, hi := part(s.Count, channel, s.channels), part(s.Count, channel+1, s.channels)
		return (sp.Hi - sp.Lo) * (hi - lo) * s.Elem
	}
	return s.tempAt(sp.Hi, channel) - s.tempAt(sp.Lo, channel)
}

// unit is the length in bytes of the longest chunk in any of so many pieces.
func (l Layout) unit(chunks, pieces int) int {
	if l.Uneven != nil {
		return longest(l.Uneven.Longest, pieces) * l.Elem
	}
	n := longest(l.Count, pieces)
	if !l.Blocks {
		n = longest(n, chunks)
	}
	return n * l.Elem
}

// Pieces is into how many pieces a vector has to be cut so that those that a
// program puts on a board fit into room.
func (l Layout) Pieces(p *shmcoll.Program, room int) int {
	pieces := 1
	for {
		w := shmcoll.Work{Program: p, Unit: l.unit(p.Chunks, pieces)}
		need := w.Room()
		if need <= room {
			return pieces
		}
		pieces = max(pieces+1, pieces*need/room)
	}
}

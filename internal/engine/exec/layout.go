package exec

import (
	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Layout describes the position of the chunks of a plan in the vectors of a call. Every
// channel has a slice of its own of each chunk.
type Layout struct {
	// Elem is the size of an element.
	Elem int
	// Count is the number of elements that the chunks share: those of the
	// whole vector, or of each block.
	Count int
	// Blocks says that the chunks are blocks of Count elements each, one
	// after the other. Otherwise they divide a vector of Count elements.
	Blocks bool
	// Uneven, if not nil, has the lengths of blocks that differ, in place of Count.
	Uneven *Uneven
}

// Parts of at least partLong elements begin at a multiple of partAlign elements, so that they
// begin with a cache line if the whole does.
const (
	partAlign = 64
	partLong  = 16 * partAlign
)

// part returns the start of the i-th of n nearly equal parts of count elements.
func part(count, i, n int) int {
	q, r := count/n, count%n
	at := i*q + i*r/n
	if q >= partLong && i < n {
		at &^= partAlign - 1
	}
	return at
}

// longest returns the largest number of elements of one of n parts, of a whole
// of count elements or fewer.
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
	first int // the number of the chunk at the start of mem
}

// Vectors finds the chunks of one call in its buffers.
type Vectors struct {
	Layout
	Chunks   int // of the plan
	Channels int
	bufs     [3]window // by plan.Buf; Temp is that of all channels
	pool     *bufpool.Pool
	temp     *bufpool.Buffer
	tempSize int  // of one channel
	oneTemp  bool // all channels use the same Temp, one after the other
}

// Set sets the buffers of a call, whose plan cuts the vector into chunks.
func (v *Vectors) Set(w *Work, chunks int) {
	v.Layout, v.Chunks, v.Channels, v.pool, v.oneTemp = w.Layout, chunks, w.Channels, w.Pool, false
	data, input, temp := &v.bufs[plan.Data], &v.bufs[plan.Input], &v.bufs[plan.Temp]
	data.mem, data.first = w.Data, w.DataFirst
	input.mem, input.first = w.Input, w.InputFirst
	temp.mem, temp.first = nil, 0
	v.tempSize = 0
}

// TakeTemp gets the memory for the chunks lo ≤ i < hi of Temp: for each channel, or
// once for all of them.
func (v *Vectors) TakeTemp(lo, hi int, once bool) {
	v.oneTemp = once
	if hi <= lo {
		return
	}
	v.tempSize = v.tempBytes(lo, hi)
	v.bufs[plan.Temp] = window{nil, lo}
	if v.tempSize == 0 { // as in a barrier
		return
	}
	size := v.tempSize
	if !once {
		size *= v.Channels
	}
	v.temp = v.pool.Get(size)
	v.bufs[plan.Temp].mem = v.temp.B
}

// Release gives the memory for Temp back and forgets the buffers.
func (v *Vectors) Release() {
	if v.temp != nil {
		v.pool.Put(v.temp)
		v.temp = nil
	}
	v.bufs = [3]window{}
}

// Size returns the length of the longer vector.
func (v *Vectors) Size() int64 {
	return int64(max(len(v.bufs[plan.Data].mem), len(v.bufs[plan.Input].mem)))
}

// Bytes returns the memory of a span in a channel.
func (v *Vectors) Bytes(sp plan.Span, channel int) []byte {
	w := &v.bufs[sp.Buf]
	if v.Uneven != nil {
		return v.unevenBytes(w, sp, channel)
	}
	if v.Chunks*v.Channels == 1 && sp.Buf != plan.Temp {
		return w.mem[:v.Count*v.Elem]
	}
	if sp.Buf == plan.Temp {
		base := -v.tempAt(w.first, channel)
		if !v.oneTemp {
			base += channel * v.tempSize
		}
		return w.mem[base+v.tempAt(sp.Lo, channel) : base+v.tempAt(sp.Hi, channel)]
	}
	lo, hi := part(v.Count, channel, v.Channels), part(v.Count, channel+1, v.Channels)
	if !v.Blocks {
		a, b := part(hi-lo, sp.Lo, v.Chunks), part(hi-lo, sp.Hi, v.Chunks)
		return w.mem[(lo+a)*v.Elem : (lo+b)*v.Elem]
	}
	from, to := (sp.Lo-w.first)*v.Count+lo, (sp.Hi-1-w.first)*v.Count+hi
	return w.mem[from*v.Elem : to*v.Elem]
}

// tempAt returns the start of chunk i of Temp in a channel. Chunk i is as long as
// chunk i mod Chunks of Data, and there are no gaps.
func (v *Vectors) tempAt(i, channel int) int {
	if v.Uneven != nil {
		return v.unevenTemp(i)
	}
	if v.Chunks*v.Channels == 1 {
		return i * v.Count * v.Elem
	}
	lo, hi := part(v.Count, channel, v.Channels), part(v.Count, channel+1, v.Channels)
	if v.Blocks {
		return i * (hi - lo) * v.Elem
	}
	return (i/v.Chunks*(hi-lo) + part(hi-lo, i%v.Chunks, v.Chunks)) * v.Elem
}

// tempBytes returns the largest size of the chunks lo ≤ i < hi of Temp in a channel.
func (v *Vectors) tempBytes(lo, hi int) int {
	size := 0
	for c := range v.Channels {
		size = max(size, v.tempAt(hi, c)-v.tempAt(lo, c))
	}
	return size
}

// Length returns the size of a span in a channel.
func (v *Vectors) Length(sp plan.Span, channel int) int {
	if v.Uneven != nil {
		return v.unevenLength(sp, channel)
	}
	if v.Chunks*v.Channels == 1 {
		return (sp.Hi - sp.Lo) * v.Count * v.Elem
	}
	if v.Blocks {
		lo, hi := part(v.Count, channel, v.Channels), part(v.Count, channel+1, v.Channels)
		return (sp.Hi - sp.Lo) * (hi - lo) * v.Elem
	}
	return v.tempAt(sp.Hi, channel) - v.tempAt(sp.Lo, channel)
}

// Unit returns the length in bytes of the longest chunk when the vector is cut into
// so many pieces.
func (l Layout) Unit(chunks, pieces int) int {
	if l.Uneven != nil {
		return longest(l.Uneven.Longest, pieces) * l.Elem
	}
	n := longest(l.Count, pieces)
	if !l.Blocks {
		n = longest(n, chunks)
	}
	return n * l.Elem
}

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

// part returns the start of the i-th of n nearly equal parts of count elements. Most calls have one
// part, and need no division.
func part(count, i, n int) int {
	if n == 1 {
		return i * count
	}
	return partOf(count, i, n)
}

func partOf(count, i, n int) int {
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
	schedule *Schedule // which has these
	bufs     [3]window // by plan.Buf; Temp is that of all channels
	temp     *bufpool.Buffer
	tempSize int  // of one channel
	oneTemp  bool // all channels use the same Temp, one after the other
	equal    bool // there is one channel, and every chunk has Count elements, also of Temp
}

// Set sets the buffers of a call whose plan cuts the vector into chunks. TakeTemp is called next. Most calls have the schedule of
// the one before.
func (v *Vectors) Set(w *Work, chunks int) {
	if v.schedule != w.Schedule {
		v.schedule, v.Layout, v.Chunks, v.Channels = w.Schedule, w.Layout, chunks, w.Channels
		v.equal = v.Channels == 1 && v.Uneven == nil && (v.Blocks || chunks == 1)
	}
	data, input := &v.bufs[plan.Data], &v.bufs[plan.Input]
	data.mem, data.first = w.Data, w.DataFirst
	input.mem, input.first = w.Input, w.InputFirst
}

// TakeTemp gets the memory for the chunks lo ≤ i < hi of Temp: for each channel, or
// once for all of them.
func (v *Vectors) TakeTemp(lo, hi int, once bool) {
	if hi > lo {
		v.takeTemp(lo, hi, once)
	}
}

func (v *Vectors) takeTemp(lo, hi int, once bool) {
	if size := v.SizeTemp(lo, hi, once); size > 0 {
		v.temp = v.schedule.Pool.Get(size)
		v.LendTemp(v.temp.B)
	}
}

// SizeTemp is TakeTemp without the memory. It returns the length of the memory, which LendTemp sets unless it is 0.
func (v *Vectors) SizeTemp(lo, hi int, once bool) (size int) {
	v.oneTemp, v.tempSize = once, 0
	if hi <= lo {
		return 0
	}
	for c := range v.Channels {
		v.tempSize = max(v.tempSize, v.tempAt(hi, c)-v.tempAt(lo, c))
	}
	v.bufs[plan.Temp] = window{nil, lo}
	if once {
		return v.tempSize
	}
	return v.tempSize * v.Channels
}

// LendTemp sets the memory of Temp, which remains with the caller.
func (v *Vectors) LendTemp(mem []byte) { v.bufs[plan.Temp].mem = mem }

// Release gives the memory for Temp back and forgets the buffers.
func (v *Vectors) Release() {
	if v.temp != nil {
		v.schedule.Pool.Put(v.temp)
		v.temp, v.bufs[plan.Temp].mem = nil, nil
	}
	v.bufs[plan.Data].mem, v.bufs[plan.Input].mem = nil, nil
}

// Size returns the length of the longer vector.
func (v *Vectors) Size() int64 {
	return int64(max(len(v.bufs[plan.Data].mem), len(v.bufs[plan.Input].mem)))
}

// Bytes returns the memory of a span in a channel.
func (v *Vectors) Bytes(sp plan.Span, channel int) []byte {
	w := &v.bufs[sp.Buf]
	if v.equal {
		size := v.Count * v.Elem
		return w.mem[(sp.Lo-w.first)*size : (sp.Hi-w.first)*size]
	}
	if sp.Buf == plan.Temp {
		from := v.tempAt(sp.Lo, channel) - v.tempAt(w.first, channel)
		if !v.oneTemp {
			from += channel * v.tempSize
		}
		return w.mem[from : from+v.Length(sp, channel)]
	}
	base := v.start(sp.Buf, w.first)
	from, _ := v.chunk(sp.Buf, sp.Lo, channel)
	_, to := v.chunk(sp.Buf, sp.Hi-1, channel)
	return w.mem[(from-base)*v.Elem : (to-base)*v.Elem]
}

// start returns the start of a block of a buffer, in elements. Chunks that divide a vector are in
// one block.
func (v *Vectors) start(b plan.Buf, block int) int {
	switch {
	case v.Uneven != nil:
		return v.Uneven.of(b)[block]
	case v.Blocks:
		return block * v.Count
	}
	return 0
}

// chunk returns the start and the end of a channel's slice of a chunk of a buffer, in elements.
func (v *Vectors) chunk(b plan.Buf, i, channel int) (from, to int) {
	if v.Uneven == nil && !v.Blocks {
		lo, hi := part(v.Count, channel, v.Channels), part(v.Count, channel+1, v.Channels)
		return lo + part(hi-lo, i, v.Chunks), lo + part(hi-lo, i+1, v.Chunks)
	}
	at := v.start(b, i)
	n := v.start(b, i+1) - at
	return at + part(n, channel, v.Channels), at + part(n, channel+1, v.Channels)
}

// tempAt returns the start of chunk i of Temp in a channel, in bytes. Chunk i is as long as chunk i
// mod Chunks of Data, and there are no gaps, except between parts of blocks that differ: each
// has room for the longest.
func (v *Vectors) tempAt(i, channel int) int {
	switch {
	case v.equal:
		return i * v.Count * v.Elem
	case v.Uneven != nil && v.Channels > 1:
		return i * longest(v.Uneven.Longest, v.Channels) * v.Elem
	case v.Uneven != nil:
		starts := v.Uneven.Starts
		return (i/v.Chunks*starts[v.Chunks] + starts[i%v.Chunks]) * v.Elem
	}
	n := part(v.Count, channel+1, v.Channels) - part(v.Count, channel, v.Channels)
	if v.Blocks {
		return i * n * v.Elem
	}
	return (i/v.Chunks*n + part(n, i%v.Chunks, v.Chunks)) * v.Elem
}

// Length returns the size of a span in a channel, in bytes.
func (v *Vectors) Length(sp plan.Span, channel int) int {
	if !v.equal {
		return v.length(sp, channel)
	}
	return (sp.Hi - sp.Lo) * v.Count * v.Elem
}

func (v *Vectors) length(sp plan.Span, channel int) int {
	if v.Uneven == nil || sp.Buf == plan.Temp && v.Channels == 1 {
		return v.tempAt(sp.Hi, channel) - v.tempAt(sp.Lo, channel)
	}
	if sp.Buf == plan.Temp { // Programs that run in several channels use single chunks.
		sp.Lo, sp.Hi = sp.Lo%v.Chunks, sp.Lo%v.Chunks+1
	}
	from, _ := v.chunk(sp.Buf, sp.Lo, channel)
	_, to := v.chunk(sp.Buf, sp.Hi-1, channel)
	return (to - from) * v.Elem
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

package ddp

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/nexar-go/nexar"
)

// blockLen is the number of elements that share a scale.
const blockLen = 256

// rounded reduces gradients in a shorter format: by an all-to-all, after which each rank has all vectors of its part and adds them, and an
// all-gather of the sums.
type rounded[T Float] struct {
	comm    *nexar.Comm
	format  Format
	buckets []roundedBucket

	// Memory for one bucket after another.
	own, sum, one []float32
	sent, got     []byte
}

// A roundedBucket keeps rounding errors for the next step.
type roundedBucket struct {
	rest    []float32 // of the gradients of this rank
	restSum []float32 // of the sum that this rank computes
}

func (r *rounded[T]) planned(buckets [][]int) { r.buckets = make([]roundedBucket, len(buckets)) }

func (r *rounded[T]) reduce(ctx context.Context, _ *step[T], b bucket[T], weight float64, _ bool) error {
	n := 0
	for _, g := range b.grads {
		n += len(g)
	}
	size := r.comm.Size()
	part := (n + size*blockLen - 1) / (size * blockLen) * blockLen // elements of a rank
	rest := &r.buckets[b.number]
	if rest.rest == nil {
		rest.rest, rest.restSum = make([]float32, part*size), make([]float32, part)
	}
	own := room(&r.own, part*size)
	clear(own[n:])
	for at, k := 0, 0; k < len(b.grads); k++ {
		widen(own[at:], b.grads[k], weight)
		at += len(b.grads[k])
	}
	encoded := r.format.bytes(part)
	sent, got := room(&r.sent, encoded*size), room(&r.got, encoded*size)
	for rank := range size {
		at := rank * part
		r.format.encode(sent[rank*encoded:][:encoded], own[at:][:part], rest.rest[at:][:part])
	}
	if err := nexar.AllToAll(ctx, r.comm, got, sent); err != nil {
		return err
	}
	sum, one := room(&r.sum, part), room(&r.one, part)
	clear(sum)
	for rank := range size {
		r.format.decode(one, got[rank*encoded:][:encoded])
		for i, x := range one {
			sum[i] += x
		}
	}
	block := got[r.comm.Rank()*encoded:][:encoded]
	r.format.encode(block, sum, rest.restSum)
	if err := nexar.AllGather(ctx, r.comm, got, block); err != nil {
		return err
	}
	for rank := range size {
		r.format.decode(own[rank*part:][:part], got[rank*encoded:][:encoded])
	}
	for at, k := 0, 0; k < len(b.grads); k++ {
		narrow(b.grads[k], own[at:])
		at += len(b.grads[k])
	}
	return nil
}

// room returns the first n elements of a buffer, which grows.
func room[E any](buffer *[]E, n int) []E {
	if cap(*buffer) < n {
		*buffer = make([]E, n)
	}
	return (*buffer)[:n]
}

// bytes returns the length of the encoding of n elements, a multiple of blockLen.
func (f Format) bytes(n int) int {
	const scaleBytes = 4
	switch f {
	case BF16:
		return 2 * n
	case F16:
		return 2*n + n/blockLen*scaleBytes
	default:
		return n + n/blockLen*scaleBytes
	}
}

// encode encodes v plus rest, and sets rest to the rounding errors. v changes.
func (f Format) encode(dst []byte, v, rest []float32) {
	for ; len(v) > 0; v, rest = v[blockLen:], rest[blockLen:] {
		x, left := v[:blockLen], rest[:blockLen]
		for i := range x {
			x[i] += left[i]
		}
		n := f.bytes(blockLen)
		f.encodeBlock(dst[:n], x)
		f.decode(left, dst[:n])
		for i := range x {
			left[i] = x[i] - left[i]
			if left[i]-left[i] != 0 { // infinite or NaN: the gradient is lost in any case
				left[i] = 0
			}
		}
		dst = dst[n:]
	}
}

func (f Format) encodeBlock(dst []byte, x []float32) {
	if f == BF16 {
		for i, v := range x {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(nexar.ToBFloat16(v)))
		}
		return
	}
	unit := f.unit(x)
	binary.LittleEndian.PutUint32(dst, math.Float32bits(unit))
	dst = dst[4:]
	inverse := 1 / float64(unit)
	if unit == 0 {
		inverse = 0
	}
	for i, v := range x {
		scaled := float64(v) * inverse
		switch f {
		case F16:
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(nexar.ToFloat16(float32(scaled))))
		case FP8:
			dst[i] = byte(nexar.ToFloat8E4M3(float32(scaled)))
		default:
			dst[i] = byte(int8(math.RoundToEven(max(-int8Max, min(int8Max, scaled)))))
		}
	}
}

// The largest numbers of formats of 8 bits.
const (
	int8Max = 127
	fp8Max  = 448
)

// unit returns the number that 1 stands for in the encoding of a block; NaN if an element is infinite or NaN.
func (f Format) unit(x []float32) float32 {
	var most float32
	for _, v := range x {
		most = max(most, v, -v) // NaN if v is
	}
	if most-most != 0 {
		return float32(math.NaN())
	}
	switch f {
	case Int8:
		return float32(float64(most) / int8Max)
	case FP8:
		return float32(float64(most) / fp8Max)
	}
	return most
}

// decode decodes blocks into dst.
func (f Format) decode(dst []float32, src []byte) {
	for n := f.bytes(blockLen); len(dst) > 0; dst, src = dst[blockLen:], src[n:] {
		f.decodeBlock(dst[:blockLen], src[:n])
	}
}

func (f Format) decodeBlock(dst []float32, src []byte) {
	if f == BF16 {
		for i := range dst {
			dst[i] = nexar.BFloat16(binary.LittleEndian.Uint16(src[2*i:])).Float32()
		}
		return
	}
	unit := math.Float32frombits(binary.LittleEndian.Uint32(src))
	src = src[4:]
	for i := range dst {
		switch f {
		case F16:
			dst[i] = nexar.Float16(binary.LittleEndian.Uint16(src[2*i:])).Float32() * unit
		case FP8:
			dst[i] = nexar.Float8E4M3(src[i]).Float32() * unit
		default:
			dst[i] = float32(int8(src[i])) * unit
		}
	}
}

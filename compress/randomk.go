package compress

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// RandomK keeps elements that are chosen at random, again for each vector, but
// by all ranks alike: so only the values travel, and the sum of all ranks has no
// more elements than each vector (Stich, Cordonnier and Jaggi, "Sparsified SGD
// with Memory", NeurIPS 2018). The zero value keeps 1%.
//
// It either leaves values as they are, and then wants an ErrorFeedback for what
// it leaves out, or is Unbiased, and then must not have one.
//
// Which elements are chosen depends on Seed, Step, the length of the vector and
// how many are kept. Ranks that have these in common choose alike. Nothing
// breaks where they do not, as the encoding says by what it was chosen.
//
// The values that are kept do not change, unless they are scaled. An element
// that is not chosen is not seen, even if it is infinite or NaN: whoever
// searches for these has to do it before.
//
// A RandomK is for one tensor and one goroutine.
type RandomK struct {
	// Seed is that of all choices. It is the same on all ranks, and should
	// differ between tensors.
	Seed uint64
	// Step is the number of the next choice. Each Append that does not fail
	// adds one, for vectors without elements, too. Who begins again from a
	// checkpoint sets it to what it was.
	Step uint64
	// Ratio is the share of elements to keep, above 0 and at most 1. The
	// number is rounded to the nearest, but is at least one. The default is
	// 0.01, unless K is given.
	Ratio float64
	// K is the number of elements to keep. A vector that is not longer is kept
	// whole. Only one of Ratio and K may be given.
	K int
	// Unbiased says to multiply values by n/k, if k of n elements are kept, so
	// that on average over all choices a vector is what it was (Wangni et al.,
	// "Gradient Sparsification for Communication-Efficient Distributed
	// Optimization", NeurIPS 2018). The variance grows by the same factor. A
	// product that is too large for a float32 becomes infinite.
	Unbiased bool
}

// After the header come seed, step, how many elements were kept, and their
// values in the order in which they were chosen.
const (
	stepOffset    = 8
	randomKOffset = 16
	randomKFixed  = 24
)

// Append appends the encoding of src to dst, and adds one to Step. It fails only
// if Ratio or K cannot be right, which is an ErrConfig.
func (r *RandomK) Append(dst []byte, src []float32) ([]byte, error) {
	k, err := kindRandomK.kept(r.K, r.Ratio, len(src))
	if err != nil {
		return dst, err
	}
	dst = slices.Grow(dst, r.MaxBytes(len(src)))
	dst = appendHeader(dst, kindRandomK, 0, len(src))
	dst = binary.LittleEndian.AppendUint64(dst, r.Seed)
	dst = binary.LittleEndian.AppendUint64(dst, r.Step)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(k))
	draw := newDraw(r.Seed, r.Step, k, len(src))
	scale := float64(len(src)) / float64(k)
	for range k {
		v := src[draw.next()]
		if r.Unbiased {
			v = float32(float64(v) * scale)
		}
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	r.Step++
	return dst, nil
}

// AddTo adds the vector that encoded stands for to dst, which is of the same
// length. It does not change Step. What a RandomK has not made is a *FormatError
// and leaves dst as it was.
func (*RandomK) AddTo(dst []float32, encoded []byte) error {
	body, err := cutPlainHeader(encoded, kindRandomK, len(dst))
	if err != nil {
		return err
	}
	if len(body) < randomKFixed {
		return kindRandomK.malformed(len(encoded), "it ends before the number of elements that were kept")
	}
	seed, step := binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[stepOffset:])
	count, values := binary.LittleEndian.Uint64(body[randomKOffset:]), body[randomKFixed:]
	if count > uint64(len(dst)) || count == 0 && len(dst) > 0 {
		return kindRandomK.malformed(headerBytes+randomKOffset, "%d elements of %d were kept", count, len(dst))
	}
	k := int(count)
	if err := kindRandomK.checkBytes(body, randomKFixed+4*k); err != nil {
		return err
	}
	draw := newDraw(seed, step, k, len(dst))
	for ; len(values) > 0; values = values[4:] {
		i := draw.next()
		dst[i] = add(dst[i], math.Float32frombits(binary.LittleEndian.Uint32(values)))
	}
	return nil
}

// MaxBytes is how many bytes Append adds for n elements: 40, and 4 for each that
// is kept.
func (r *RandomK) MaxBytes(n int) int {
	k, _ := kindRandomK.kept(r.K, r.Ratio, n)
	return headerBytes + randomKFixed + 4*k
}

// A draw is k different indices below n, at random. It divides the n indices, as
// if they lay on a circle and beginning at a random one, into k neighbourhoods of
// n/k each, rounded up or down, and draws one index from each.
//
// So every index is drawn with the probability k/n, by which the papers prove
// what they say of random choices. Indices that lie close together are drawn
// together less often than by chance. What is gained is that the draw needs no
// memory, and goes through the vector in one direction.
type draw struct {
	key  uint64 // of the random numbers
	used uint64 // how many of them

	first    int // the random index at which the first neighbourhood begins
	begin, n int // where the next neighbourhood begins, counted from first
	size     int // of neighbourhoods, rounded down
	rest, k  int // rest of k neighbourhoods are larger by one
	carry    int
}

func newDraw(seed, step uint64, k, n int) draw {
	if k == 0 {
		return draw{}
	}
	d := draw{key: mix(mix(seed+goldenRatio) + step), n: n, size: n / k, rest: n % k, k: k}
	d.first = d.below(n)
	return d
}

// next is the next index. It is called k times.
func (d *draw) next() int {
	size := d.size
	d.carry += d.rest
	if d.carry >= d.k {
		d.carry -= d.k
		size++
	}
	i := d.begin + d.below(size)
	d.begin += size
	if left := d.n - d.first; i >= left {
		return i - left
	}
	return d.first + i
}

// below is a random number below n. The bias of n/2^64 does not matter, and
// there is nothing to try again (Lemire, "Fast Random Integer Generation in an
// Interval", ACM TOMACS 29(1), 2019).
func (d *draw) below(n int) int {
	d.used++
	high, _ := bits.Mul64(mix(d.key+d.used*goldenRatio), uint64(n))
	return int(high)
}

// goldenRatio and mix are those of SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014).
const goldenRatio = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// String is the kind of the encodings: "random-k".
func (*RandomK) String() string { return kindRandomK.String() }

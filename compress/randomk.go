package compress

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/nexar-go/nexar/device"
)

// RandomK keeps random elements, a new choice for each vector but the same on all ranks, so
// that only values are sent and the sum of all ranks has no more elements than each vector
// (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018). The zero value
// keeps 1%.
//
// A RandomK needs an [ErrorFeedback] for the elements that it omits, unless it is Unbiased,
// and then must not have one.
//
// The choice depends on Seed, Step, the length of the vector and the number of kept elements.
// Ranks with equal values choose the same elements. Different values are not an error, since
// the encoding contains them, but more elements of the sum are then nonzero.
//
// Kept values are unchanged unless they are scaled. An element that is not chosen is dropped
// even if it is infinite or NaN; a program that checks for these must do so before.
//
// A RandomK is for one tensor and one goroutine.
type RandomK struct {
	// Seed determines all choices. It must be the same on all ranks, and should differ
	// between tensors.
	Seed uint64
	// Step is the number of the next choice. Each successful Append increments it, also for
	// empty vectors. A program that resumes from a checkpoint restores it.
	Step uint64
	// Ratio is the fraction of elements to keep, above 0 and at most 1. The number of
	// elements is rounded to the nearest integer, and is at least one. The default is 0.01
	// unless K is set.
	Ratio float64
	// K is the number of elements to keep. Shorter vectors are kept completely. At most one
	// of Ratio and K may be set.
	K int
	// Unbiased multiplies values by n/k, if k of n elements are kept, so that the expected
	// value of the decoded vector is the vector (Wangni et al., "Gradient Sparsification for
	// Communication-Efficient Distributed Optimization", NeurIPS 2018). The variance grows
	// by the same factor. A product that overflows becomes infinite.
	Unbiased bool
}

// The header is followed by Seed, Step, the number of kept elements, and their values in the
// order of the draw.
const (
	stepOffset    = 8
	randomKOffset = 16
	randomKFixed  = 24
)

// Append appends the encoding of src to dst and increments Step. An invalid Ratio or K is an
// [ErrConfig]; there are no other errors.
func (r *RandomK) Append(dst []byte, src []float32) ([]byte, error) {
	return appendRandomK(r, dst, src)
}

func (r *RandomK) append64(dst []byte, src []float64) ([]byte, error) {
	return appendRandomK(r, dst, src)
}

func appendRandomK[T float](r *RandomK, dst []byte, src []T) ([]byte, error) {
	k, err := kindRandomK.kept(r.K, r.Ratio, len(src))
	if err != nil {
		return dst, err
	}
	size := sizeOf[T]()
	dst = slices.Grow(dst, headerBytes+randomKFixed+size*k)
	dst = header{kind: kindRandomK, typ: typeOf[T](), n: len(src)}.append(dst)
	dst = binary.LittleEndian.AppendUint64(dst, r.Seed)
	dst = binary.LittleEndian.AppendUint64(dst, r.Step)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(k))
	draw := newDraw(r.Seed, r.Step, k, len(src))
	scale := float64(len(src)) / float64(k)
	at := len(dst)
	dst = dst[:at+size*k]
	for ; at < len(dst); at += size {
		v := src[draw.next()]
		if r.Unbiased {
			v = T(float64(v) * scale)
		}
		putFloat(dst[at:], v)
	}
	r.Step++
	return dst, nil
}

// AddTo adds an encoded vector, of the length of dst, to dst. It does not change Step. An
// invalid encoding is a [*FormatError] and leaves dst unchanged.
func (*RandomK) AddTo(dst []float32, encoded []byte) error {
	return decodeRandomK(addMode, dst, encoded)
}

func decodeRandomK[T float](m mode, dst []T, encoded []byte) error {
	body, err := header{kind: kindRandomK, typ: typeOf[T](), n: len(dst)}.cutPlain(encoded)
	if err != nil {
		return err
	}
	if len(body) < randomKFixed {
		return kindRandomK.malformed(len(encoded), "truncated before the number of kept elements")
	}
	seed, step := binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[stepOffset:])
	count, values := binary.LittleEndian.Uint64(body[randomKOffset:]), body[randomKFixed:]
	if count > uint64(len(dst)) || count == 0 && len(dst) > 0 {
		return kindRandomK.malformed(headerBytes+randomKOffset, "%d of %d elements were kept", count, len(dst))
	}
	k, size := int(count), sizeOf[T]()
	if err := kindRandomK.checkBytes(body, randomKFixed+size*k); err != nil {
		return err
	}
	begin(m, dst)
	draw := newDraw(seed, step, k, len(dst))
	for ; len(values) > 0; values = values[size:] {
		i := draw.next()
		dst[i] = add(dst[i], getFloat[T](values))
	}
	return nil
}

// MaxBytes returns the number of bytes that Append adds for n elements: 40, and 4 for each
// kept element.
func (r *RandomK) MaxBytes(n int) int { return r.MaxTypedBytes(device.Float32, n) }

// Allows implements [TypedCompressor]. It allows sums of float32 and float64.
func (*RandomK) Allows(t device.Type, op device.Op) bool { return allowsFloat(t, op) }

// AppendTyped implements [TypedCompressor]. Like Append, it increments Step.
func (r *RandomK) AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error) {
	return kindRandomK.appendTyped(dst, t, src, r.Append, r.append64)
}

// DecodeTyped implements [TypedCompressor].
func (*RandomK) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindRandomK.decodeTyped(storeMode, dst, t, encoded, decodeRandomK[float32], decodeRandomK[float64])
}

// AddTyped implements [TypedCompressor].
func (*RandomK) AddTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindRandomK.decodeTyped(addMode, dst, t, encoded, decodeRandomK[float32], decodeRandomK[float64])
}

// MaxTypedBytes implements [TypedCompressor]: 40 bytes, and the size of each kept element.
func (r *RandomK) MaxTypedBytes(t device.Type, n int) int {
	k, _ := kindRandomK.kept(r.K, r.Ratio, n)
	return headerBytes + randomKFixed + t.Size()*k
}

// A draw yields k distinct random indices below n. It divides the indices, as a circle that
// begins at a random index, into k neighborhoods of n/k indices each, rounded up or down, and
// draws one index from each.
//
// Every index is drawn with probability k/n, as the proofs for random choices require. Indices
// that are close together are drawn together less often than in independent draws. In return
// a draw needs no memory and passes through the vector in one direction.
type draw struct {
	key  uint64 // of the random numbers
	used uint64 // number of random numbers so far

	first    int // random index where the first neighborhood begins
	begin, n int // begin of the next neighborhood, relative to first
	size     int // of neighborhoods, rounded down
	rest, k  int // rest of k neighborhoods are larger by one
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

// next returns the next index. It may be called k times.
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

// below returns a random number below n, without rejection: the bias is n/2^64 (Lemire, "Fast
// Random Integer Generation in an Interval", ACM TOMACS 29(1), 2019).
func (d *draw) below(n int) int {
	d.used++
	high, _ := bits.Mul64(mix(d.key+d.used*goldenRatio), uint64(n))
	return int(high)
}

// goldenRatio and mix are the constants and finalizer of SplitMix64 (Steele, Lea and Flood,
// "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
const goldenRatio = 0x9e3779b97f4a7c15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// String returns the kind of the encodings: "random-k".
func (*RandomK) String() string { return kindRandomK.String() }

package devicetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/nexar-go/nexar/device"
)

func types() (list []device.Type) {
	for t := device.Int8; t <= device.Float8E5M2; t++ {
		if !t.Complex() {
			list = append(list, t)
		}
	}
	return list
}

func ops() []device.Op {
	return []device.Op{device.Sum, device.Prod, device.Min, device.Max, device.BitAnd, device.BitOr, device.BitXor}
}

// testReducer: all ops on all types have the bits of an independent computation, contiguous and
// in rows, and are done in order.
func testReducer(x *check) {
	s := x.stream().(device.Reducer)
	for _, t := range types() {
		for _, op := range ops() {
			if !op.Defined(t) {
				continue
			}
			what := fmt.Sprintf("%v of %v", op, t)
			a, b := x.operands(t)
			x.reduces(s, t, op, a, b, what)
			x.reduces(s, t, op, b, a, what+", operands swapped")
			x.reducesRows(s, t, op, what)
		}
	}
	x.reducesComplex(s)
}

// reducesComplex checks the rounding of the parts of complex numbers.
func (x *check) reducesComplex(s device.Reducer) {
	x.Helper()
	a, b := []complex128{1 + 2i, -3.5i, 0x1p1000}, []complex128{1e-8 - 4i, 5, 0x1p1000 - 1i}
	sums, products := make([]complex128, len(a)), make([]complex128, len(a))
	for i := range a {
		sums[i] = a[i] + b[i]
		re1, re2 := float64(real(a[i])*real(b[i])), float64(imag(a[i])*imag(b[i]))
		im1, im2 := float64(real(a[i])*imag(b[i])), float64(imag(a[i])*real(b[i]))
		products[i] = complex(re1-re2, im1+im2)
	}
	narrow := func(list []complex128) (b []byte) {
		for _, v := range list[:2] {
			b, _ = binary.Append(b, binary.NativeEndian, complex64(v))
		}
		return b
	}
	wide := func(list []complex128) []byte {
		b, _ := binary.Append(nil, binary.NativeEndian, list)
		return b
	}
	for _, test := range []struct {
		t            device.Type
		op           device.Op
		a, b, result []byte
	}{
		{device.Complex128, device.Sum, wide(a), wide(b), wide(sums)},
		{device.Complex128, device.Prod, wide(a), wide(b), wide(products)},
		{device.Complex64, device.Sum, narrow(a), narrow([]complex128{4, 0.5i}), narrow([]complex128{5 + 2i, -3i})},
		{device.Complex64, device.Prod, narrow(a), narrow([]complex128{4, 0.5i}), narrow([]complex128{4 + 8i, 1.75})},
	} {
		dst, src := device.Whole(x.alloc(len(test.a))), device.Whole(x.alloc(len(test.b)))
		x.copyIn(dst, test.a)
		x.copyIn(src, test.b)
		what := fmt.Sprintf("%v of %v", test.op, test.t)
		x.must(s.Reduce(dst, src, test.t, test.op), what)
		x.wait(s)
		x.want(dst.Buffer, test.result, what)
		x.must(errors.Join(dst.Buffer.Free(), src.Buffer.Free()), "free")
	}
}

// reduces checks one pair of vectors, at offsets that are odd multiples of the element size.
func (x *check) reduces(s device.Reducer, t device.Type, op device.Op, a, b []byte, what string) {
	x.Helper()
	size := t.Size()
	dst := device.Region{Buffer: x.alloc(len(a) + 4*size), Offset: size, Bytes: len(a)}
	src := device.Region{Buffer: x.alloc(len(b) + 4*size), Offset: 3 * size, Bytes: len(b)}
	around := x.random(len(a) + 4*size)
	copy(around[dst.Offset:], a)
	x.copyIn(device.Whole(dst.Buffer), around)
	x.copyIn(src, b)

	x.must(s.Reduce(dst, src, t, op), what)
	x.wait(s)
	copy(around[dst.Offset:], reduced(t, op, a, b))
	x.want(dst.Buffer, around, what)
	got := make([]byte, len(b))
	x.must(x.d.CopyOut(x.ctx, got, src), "copy out")
	x.same(got, b, "src of "+what)
	x.must(errors.Join(dst.Buffer.Free(), src.Buffer.Free()), "free")
}

// reducesRows checks rows of one buffer, queued between two copies.
func (x *check) reducesRows(s device.Reducer, t device.Type, op device.Op, what string) {
	x.Helper()
	size := t.Size()
	a, b := x.operands(t)
	a, b = a[:12*size], b[:12*size]
	rows := device.Region{Buffer: x.alloc(100 * size), Offset: 2 * size, Bytes: 3 * size, Rows: 4, Stride: 10 * size}
	beside := rows
	beside.Offset += 5 * size
	in, out := x.staged(append(append([]byte(nil), a...), b...)), x.stage(len(a))
	x.must(s.ReceiveInto(in, 0, rows, beside), "receive into")
	x.must(s.Reduce(rows, beside, t, op), what)
	x.must(s.StageSend(out, 0, rows), "stage send")
	x.same(x.bytes(out), reduced(t, op, a, b), what+" in rows")
	x.must(errors.Join(rows.Buffer.Free(), in.Free(), out.Free()), "free")
}

// operands returns two vectors with all pairs of special elements of a type, and several hundred
// random ones.
func (x *check) operands(t device.Type) (a, b []byte) {
	put := func(p []byte, bits uint64) []byte {
		switch t.Size() {
		case 1:
			return append(p, byte(bits))
		case 2:
			return binary.NativeEndian.AppendUint16(p, uint16(bits))
		case 4:
			return binary.NativeEndian.AppendUint32(p, uint32(bits))
		}
		return binary.NativeEndian.AppendUint64(p, bits)
	}
	for _, first := range special(t) {
		for _, second := range special(t) {
			a, b = put(a, first), put(b, second)
		}
	}
	for range 301 {
		first, second := x.rng.Uint64(), x.rng.Uint64()
		a, b = put(a, first), put(b, second)
		// Numbers of similar magnitude: their sums need rounding.
		a, b = put(a, first), put(b, first^second>>40)
	}
	return a, b
}

// special returns the bits of elements at the limits of a type and around zero.
func special(t device.Type) []uint64 {
	switch t {
	case device.Float64:
		return floatBits(11, 52)
	case device.Float32:
		return floatBits(8, 23)
	case device.Float16:
		return floatBits(5, 10)
	case device.BFloat16:
		return floatBits(8, 7)
	}
	if t.Float() { // of 8 bits: zero, the limits of the subnormals of both types, numbers around 1, the largest ones, infinity and NaNs
		var list []uint64
		for _, bits := range []uint64{0, 1, 3, 4, 5, 7, 8, 9, 0x38, 0x39, 0x3c, 0x3d, 0x58, 0x7a, 0x7b, 0x7c, 0x7d, 0x7e, 0x7f} {
			list = append(list, bits, bits|0x80)
		}
		return list
	}
	top := uint64(1) << (8*t.Size() - 1)
	return []uint64{0, 1, 2, 3, math.MaxUint64, math.MaxUint64 - 1, top, top - 1, top + 1, 0x55}
}

// floatBits returns zero, the limits of the subnormals, numbers around 1, the largest number,
// infinity and two NaNs, each with both signs.
func floatBits(exponent, mantissa int) []uint64 {
	one := uint64(1)<<(exponent-1) - 1
	all := uint64(1)<<exponent - 1
	var list []uint64
	for _, bits := range []uint64{
		0, 1, 1<<mantissa - 1, 1 << mantissa,
		one << mantissa, one<<mantissa + 1, (one + 1) << mantissa, (one+uint64(mantissa)+1)<<mantissa + 1,
		all<<mantissa - 1, all << mantissa, all<<mantissa + 1, all<<mantissa + 1<<(mantissa-1) + 5,
	} {
		list = append(list, bits, bits|1<<(exponent+mantissa))
	}
	return list
}

// testReducerMisuse: invalid arguments of Reduce are errors without an effect.
func testReducerMisuse(x *check) {
	s := x.stream().(device.Reducer)
	a, data := x.filled(96)
	b, _ := x.filled(96)
	for _, t := range []device.Type{0, device.Float32, device.BFloat16, device.Complex64, device.Float8E5M2 + 1, 255} {
		for _, op := range []device.Op{0, device.Sum, device.Max + 1, device.BitAnd, device.BitOr, device.BitXor, device.BitXor + 1, 255} {
			if op.Defined(t) {
				continue
			}
			err := s.Reduce(device.Whole(a), device.Whole(b), t, op)
			x.wantError(err, device.ErrInvalidOp, fmt.Sprintf("op %d of type %d", op, t))
			x.namesDevice(err, "Reduce")
		}
	}
	region := func(b device.Buffer, offset, bytes, rows, stride int) device.Region {
		return device.Region{Buffer: b, Offset: offset, Bytes: bytes, Rows: rows, Stride: stride}
	}
	good := region(b, 0, 8, 2, 16)
	for what, r := range map[string]device.Region{
		"an odd offset": region(a, 2, 8, 2, 16), "an odd length": region(a, 0, 6, 2, 16),
		"an odd stride": region(a, 0, 8, 2, 18), "outside": region(a, 84, 8, 2, 16),
	} {
		if r.Bytes != good.Bytes {
			good.Bytes = r.Bytes
		}
		for _, err := range []error{s.Reduce(r, good, device.Float32, device.Sum), s.Reduce(good, r, device.Float32, device.Sum)} {
			if e, ok := errors.AsType[*device.RangeError](err); !ok || (e.Multiple == 4) != (what != "outside") {
				x.Errorf("Reduce of %s: got error %#v, want a RangeError", what, err)
			}
		}
		good.Bytes = 8
	}
	if err := s.Reduce(region(a, 0, 8, 0, 0), region(b, 0, 12, 0, 0), device.Float32, device.Sum); !isLengthError(err) {
		x.Errorf("Reduce of two lengths: got error %v, want a LengthError", err)
	}
	x.wantError(s.Reduce(device.Whole(a), device.Whole(a), device.Int8, device.Sum), device.ErrOverlap, "Reduce of a buffer with itself")
	x.want(a, data, "buffer")
	x.works(s)
}

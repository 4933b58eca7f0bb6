package kernel

import "encoding/binary"

// Identity fills dst with the identity of op, an element of type t that changes no other when it is
// combined with it: 0 for Sum, Avg, BitOr and BitXor, 1 for Prod, all bits for BitAnd, the highest value or
// +Inf for Min, the lowest value or -Inf for Max. op must be defined for t.
func Identity(t Type, op Op, dst []byte) {
	size, value := t.Size(), uint64(0)
	part, isComplex := partOf(t)
	if isComplex {
		t = part
	}
	switch op {
	case Prod:
		value = ofFloats(t, 1, 0x3c00, 0x3f80, 0x3f800000, 0x3ff0000000000000)
	case BitAnd:
		value = 1<<64 - 1
	case Min:
		value = ofFloats(t, highest(t), 0x7c00, 0x7f80, 0x7f800000, 0x7ff0000000000000)
	case Max:
		value = ofFloats(t, ^highest(t), 0xfc00, 0xff80, 0xff800000, 0xfff0000000000000)
	}
	clear(dst)
	if value == 0 {
		return
	}
	for ; len(dst) > 0; dst = dst[size:] {
		switch t.Size() {
		case 1:
			dst[0] = byte(value)
		case 2:
			binary.NativeEndian.PutUint16(dst, uint16(value))
		case 4:
			binary.NativeEndian.PutUint32(dst, uint32(value))
		case 8:
			binary.NativeEndian.PutUint64(dst, value)
		}
	}
}

// ofFloats returns the bits of an element of type t: one of the last four if t is a type of floats, else whole.
func ofFloats(t Type, whole, f16, bf16, f32, f64 uint64) uint64 {
	switch t {
	case Float16:
		return f16
	case BFloat16:
		return bf16
	case Float32:
		return f32
	case Float64:
		return f64
	}
	return whole
}

// highest returns the highest integer of type t; its complement is the lowest.
func highest(t Type) uint64 {
	switch t {
	case Int8, Int16, Int32, Int64:
		return 1<<(8*t.Size()-1) - 1
	}
	return 1<<64 - 1
}

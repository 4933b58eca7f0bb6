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
		ones := [...]uint64{Float16: 0x3c00, BFloat16: 0x3f80, Float32: 0x3f800000, Float64: 0x3ff0000000000000, Float8E4M3: 0x38, Float8E5M2: 0x3c}
		value = 1
		if t.Float() {
			value = ones[t]
		}
	case BitAnd:
		value = 1<<64 - 1
	case Min:
		value = highest(t)
	case Max:
		value = ^highest(t)
		if t.Float() {
			value = highest(t) | 1<<(8*t.Size()-1)
		}
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

// highest returns the highest element of type t. The complement of an integer is the lowest one, and the number with the other sign that of floats.
func highest(t Type) uint64 {
	switch t {
	case Int8, Int16, Int32, Int64:
		return 1<<(8*t.Size()-1) - 1
	case Float8E4M3:
		return 0x7e
	case Float8E5M2:
		return 0x7c
	case Float16:
		return 0x7c00
	case BFloat16:
		return 0x7f80
	case Float32:
		return inf32
	case Float64:
		return 0x7ff0000000000000
	}
	return 1<<64 - 1
}

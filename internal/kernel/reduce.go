package kernel

// Reducer returns the function that sets dst to a op b, element by element. It is nil if op is
// not defined for t: floats have no bit operations, and complex elements only sums, products
// and averages. The slices have the same length, a multiple of the size of t; dst may be a or
// b.
//
// Reducer selects between assembly and Go once, so that calls of the function do not.
func Reducer(t Type, op Op) func(dst, a, b []byte) {
	if part, ok := partOf(t); ok {
		return complexReducer(part, op)
	}
	if int(t) >= len(reducers) || int(op) >= len(reducers[t]) {
		return nil
	}
	if f := vectorReducer(t, op); f != nil {
		return f
	}
	return reducers[t][op]
}

// reducers is laid out by the compiler, so lookups do not allocate or run code at start-up,
// unlike closures over t and op. Signed and unsigned integers differ in their order only.
var reducers = [BFloat16 + 1][BitXor + 1]func(dst, a, b []byte){
	Int8: {Sum: sum8, Prod: intProd[int8], Min: intMin[int8], Max: intMax[int8], Avg: sum8,
		BitAnd: bitAnd[int8], BitOr: bitOr[int8], BitXor: bitXor[int8]},
	Int16: {Sum: sum16, Prod: intProd[int16], Min: intMin[int16], Max: intMax[int16], Avg: sum16,
		BitAnd: bitAnd[int16], BitOr: bitOr[int16], BitXor: bitXor[int16]},
	Int32: {Sum: intSum[int32], Prod: intProd[int32], Min: intMin[int32], Max: intMax[int32], Avg: intSum[int32],
		BitAnd: bitAnd[int32], BitOr: bitOr[int32], BitXor: bitXor[int32]},
	Int64: {Sum: intSum[int64], Prod: intProd[int64], Min: intMin[int64], Max: intMax[int64], Avg: intSum[int64],
		BitAnd: bitAnd[int64], BitOr: bitOr[int64], BitXor: bitXor[int64]},
	Uint8: {Sum: sum8, Prod: intProd[int8], Min: intMin[uint8], Max: intMax[uint8], Avg: sum8,
		BitAnd: bitAnd[int8], BitOr: bitOr[int8], BitXor: bitXor[int8]},
	Uint16: {Sum: sum16, Prod: intProd[int16], Min: intMin[uint16], Max: intMax[uint16], Avg: sum16,
		BitAnd: bitAnd[int16], BitOr: bitOr[int16], BitXor: bitXor[int16]},
	Uint32: {Sum: intSum[int32], Prod: intProd[int32], Min: intMin[uint32], Max: intMax[uint32], Avg: intSum[int32],
		BitAnd: bitAnd[int32], BitOr: bitOr[int32], BitXor: bitXor[int32]},
	Uint64: {Sum: intSum[int64], Prod: intProd[int64], Min: intMin[uint64], Max: intMax[uint64], Avg: intSum[int64],
		BitAnd: bitAnd[int64], BitOr: bitOr[int64], BitXor: bitXor[int64]},
	Float32: {Sum: floatSum[float32], Prod: floatProd[float32], Min: floatMin[float32], Max: floatMax[float32],
		Avg: floatSum[float32]},
	Float64: {Sum: floatSum[float64], Prod: floatProd[float64], Min: floatMin[float64], Max: floatMax[float64],
		Avg: floatSum[float64]},
	Float16:  {Sum: f16Sum, Prod: f16Prod, Min: f16Min, Max: f16Max, Avg: f16Sum},
	BFloat16: {Sum: bf16Sum, Prod: bf16Prod, Min: bf16Min, Max: bf16Max, Avg: bf16Sum},
}

// check panics unless the slices can be operands of a reduction of elements of size bytes.
func check(dst, a, b []byte, size int) {
	if len(a) != len(dst) || len(b) != len(dst) {
		panic("kernel: operands of different lengths")
	}
	if len(dst)%size != 0 {
		panic("kernel: length is not a multiple of the element size")
	}
	if overlaps(dst, a) || overlaps(dst, b) {
		panic("kernel: operands overlap partially")
	}
}

// overlaps reports whether dst and src, of the same length, share some but not all bytes.
func overlaps(dst, src []byte) bool {
	p, q, n := address(dst), address(src), uintptr(len(dst))
	return p != q && (p-q < n || q-p < n)
}

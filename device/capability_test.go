//race:none tests of other packages use it with goroutines

package device

import (
	"errors"
	"strings"
	"testing"
)

func TestTypes(t *testing.T) {
	sizes := map[string]int{
		"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
		"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16, "float8_e4m3": 1, "float8_e5m2": 1,
	}
	floats := 0
	for n := range 256 {
		typ := Type(n)
		if want := sizes[typ.String()]; typ.Size() != want {
			t.Errorf("%v has size %d, want %d", typ, typ.Size(), want)
		}
		if typ.Size() > 0 {
			delete(sizes, typ.String())
		}
		if typ.Float() {
			floats++
		}
	}
	if len(sizes) > 0 || floats != 6 {
		t.Errorf("missing types %v; %d floating-point types, want 6", sizes, floats)
	}
}

func TestOps(t *testing.T) {
	type pair struct{ t, op string }
	defined := map[pair]bool{}
	for n := range 256 {
		for m := range 256 {
			if typ, op := Type(n), Op(m); op.Defined(typ) {
				defined[pair{typ.String(), op.String()}] = true
			}
		}
	}
	const want = 8*7 + 6*4 + 2*2 // integers, floats and complex numbers
	if len(defined) != want {
		t.Errorf("%d pairs of type and op are defined, want %d: %v", len(defined), want, defined)
	}
	for p, want := range map[pair]bool{
		{"complex64", "sum"}: true, {"complex128", "max"}: false,
		{"int8", "sum"}: true, {"uint64", "bit_xor"}: true, {"float16", "max"}: true, {"float8_e4m3", "min"}: true,
		{"float32", "bit_and"}: false, {"bfloat16", "bit_or"}: false, {"unknown", "sum"}: false, {"int8", "unknown"}: false,
	} {
		if defined[p] != want {
			t.Errorf("%v: defined %v, want %v", p, defined[p], want)
		}
	}
}

func TestCheckReduce(t *testing.T) {
	d := &named{name: "d"}
	a, b := &sized{d, 96}, &sized{d, 96}
	rows := func(b Buffer, offset, bytes, rows, stride int) Region { return Region{b, offset, bytes, rows, stride} }
	good := rows(b, 8, 8, 2, 16)
	for _, test := range []struct {
		what string
		dst  Region
		typ  Type
		op   Op
		want string
	}{
		{"good", rows(a, 4, 8, 2, 20), Float32, Sum, ""},
		{"one row, odd stride", rows(a, 4, 8, 1, 3), Float32, Sum, "device d: src has 2 rows, want 1"},
		{"single bytes", rows(a, 1, 8, 2, 11), Uint8, BitXor, ""},
		{"unknown type", rows(a, 0, 8, 2, 16), 0, Sum, "device d: invalid op: sum of unknown"},
		{"average", rows(a, 0, 8, 2, 16), Int8, 5, "device d: invalid op: unknown of int8"},
		{"bits of floats", rows(a, 0, 8, 2, 16), Float64, BitAnd, "device d: invalid op: bit_and of float64"},
		{"offset", rows(a, 2, 8, 2, 16), Float32, Sum, "device d: 2 rows of 8 bytes at offset 2 with stride 16 of a buffer: not multiples of the element size 4"},
		{"stride", rows(a, 0, 8, 2, 18), Float32, Sum, "with stride 18 of a buffer: not multiples"},
		{"foreign", rows(&sized{&named{name: "e"}, 96}, 0, 8, 2, 16), Float32, Sum, "device d: the buffer is of device e"},
	} {
		err := CheckReduce(d, test.dst, good, test.typ, test.op)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.what, err, test.want)
		}
	}
	short := Region{Buffer: b, Offset: 8, Bytes: 6}
	if _, ok := errors.AsType[*RangeError](CheckReduce(d, Region{Buffer: a, Bytes: 6}, short, Int32, Min)); !ok {
		t.Error("no RangeError for 6 bytes of int32")
	}
	if err := CheckReduce(d, Region{Buffer: a, Bytes: 6, Stride: 3}, short, Int16, Min); err != nil {
		t.Errorf("odd stride of a single row: %v", err)
	}
}

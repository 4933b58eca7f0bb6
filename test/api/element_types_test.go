package api

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// Named types, and types without a wire type of the same name.
type (
	weight  float32
	counter int64
	index   int
	half    uint16 // an integer or, as in other packages, a float
	short   int16
)

// reducesTo checks the all-reduce of the vectors of two ranks.
func reducesTo[T nexar.Number](t *testing.T, op nexar.Op, a, b, want T) {
	t.Helper()
	comms := worldtest.Local(t, 2, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		x := []T{[]T{a, b}[rank]}
		if err := nexar.AllReduce(t.Context(), c, x, op); err != nil {
			return err
		}
		if x[0] != want {
			t.Errorf("rank %d: %v of %T is %v, want %v", rank, op, a, x[0], want)
		}
		return nil
	})
}

// TestNumberTypes: each type of Number is reduced as its underlying type.
func TestNumberTypes(t *testing.T) {
	reducesTo(t, nexar.Sum, weight(1.5), 2, 3.5)
	reducesTo(t, nexar.Max, counter(1<<40), 2, 1<<40)
	reducesTo(t, nexar.Sum, time.Second, time.Minute, 61*time.Second)
	reducesTo(t, nexar.Prod, complex64(1+2i), 3i, -6+3i)
	reducesTo(t, nexar.Sum, complex128(1+2i), 3i, 1+5i)
	reducesTo(t, nexar.Avg, complex128(1+2i), 3, 2+1i)
	reducesTo(t, nexar.Sum, nexar.Float16(0x3c00), 0x3c00, 0x4000)
	reducesTo(t, nexar.Sum, nexar.ToFloat8E4M3(240), nexar.ToFloat8E4M3(300), nexar.ToFloat8E4M3(448)) // saturates
	reducesTo(t, nexar.Max, nexar.ToFloat8E5M2(-3), nexar.ToFloat8E5M2(0.5), nexar.ToFloat8E5M2(0.5))
	reducesTo(t, nexar.Avg, nexar.ToFloat8E5M2(1), nexar.ToFloat8E5M2(4), nexar.ToFloat8E5M2(2.5))
	reducesTo[int16](t, nexar.Min, -1, 2, -1)
	if unsafe.Sizeof(0) == 8 {
		reducesTo(t, nexar.Min, -1<<40, 7, -1<<40)
		reducesTo[uint](t, nexar.BitOr, 1<<40, 7, 1<<40+7)
		reducesTo(t, nexar.Sum, index(1), 2, 3)
	}
}

// TestNamedTypesMatch: a named type and its underlying type match in collectives and messages;
// int matches int64.
func TestNamedTypesMatch(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		ctx := t.Context()
		if rank == 0 {
			return errors.Join(nexar.AllReduce(ctx, c, []weight{1}, nexar.Sum), nexar.Send(ctx, c, []int{1}, 1, 0))
		}
		if err := nexar.AllReduce(ctx, c, []float32{1}, nexar.Sum); err != nil {
			return err
		}
		_, err := nexar.Recv(ctx, c, []int64{0}, 0, 0)
		return err
	})
}

// TestFloat8Mismatch: an 8-bit type does not match another one, and the error names both.
func TestFloat8Mismatch(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{CollectiveTimeout: time.Minute})
	errs := make([]error, 2)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		if rank == 0 {
			errs[0] = nexar.AllReduce(t.Context(), c, make([]nexar.Float8E4M3, 3), nexar.Sum)
		} else {
			errs[1] = nexar.AllReduce(t.Context(), c, make([]nexar.Float8E5M2, 3), nexar.Sum)
		}
		return nil
	})
	for rank, err := range errs {
		e, ok := errors.AsType[*nexar.MismatchError](err)
		if !ok || !strings.Contains(e.Error(), "float8_e4m3") || !strings.Contains(e.Error(), "float8_e5m2") {
			t.Errorf("rank %d: error %v, want a MismatchError that names both types", rank, err)
		}
	}
}

// TestNamed16BitTypes: reducing a named 16-bit type without an element type is an error, since it
// may be a float or an integer.
func TestNamed16BitTypes(t *testing.T) {
	comms := worldtest.Local(t, 1, nexar.Config{})
	ctx, c := t.Context(), comms[0]
	x := []half{0x3f80}
	for name, err := range map[string]error{
		"all_reduce":     nexar.AllReduce(ctx, c, x, nexar.Sum),
		"reduce":         nexar.Reduce(ctx, c, []short{1}, nexar.Max, 0),
		"scan":           nexar.Scan(ctx, c, x, nexar.Sum),
		"exclusive_scan": nexar.ExclusiveScan(ctx, c, x, nexar.Sum),
		"reduce_scatter": nexar.ReduceScatter(ctx, c, x, []half{1}, nexar.Sum),
		"min_loc":        nexar.MinLoc(ctx, c, x, []int32{0}),
		"buckets":        nexar.AllReduceBuckets(ctx, c, [][]half{x}, nexar.Sum),
		"start":          nexar.StartAllReduce(ctx, c, x, nexar.Sum).Wait(),
	} {
		if !errors.Is(err, nexar.ErrInvalidType) || !strings.Contains(err.Error(), "nexar.View[nexar.BFloat16]") {
			t.Errorf("%s: error %v, want ErrInvalidType and the name View", name, err)
		}
	}
	if err := c.Err(); err != nil {
		t.Errorf("the communicator has ended: %v", err)
	}
	if err := errors.Join(nexar.AllReduce(ctx, c, nexar.View[nexar.BFloat16](x), nexar.Sum), nexar.Broadcast(ctx, c, x, 0)); err != nil {
		t.Error(err)
	}
	both := worldtest.Local(t, 2, nexar.Config{})
	worldtest.OnAll(t, both, func(_ int, c *nexar.Comm) error {
		x := []half{0x3f80} // 1
		err := nexar.AllReduce(ctx, c, nexar.View[nexar.BFloat16](x), nexar.Sum)
		if x[0] != 0x4000 { // 2
			t.Errorf("1 + 1 of bfloat16 has the bits %#x, want 0x4000", uint16(x[0]))
		}
		return err
	})
}

// TestComplexOps: complex numbers have no Min, Max and bit operations.
func TestComplexOps(t *testing.T) {
	c := worldtest.Local(t, 1, nexar.Config{})[0]
	for _, op := range []nexar.Op{nexar.Min, nexar.Max, nexar.BitAnd, nexar.BitXor} {
		if err := nexar.AllReduce(t.Context(), c, []complex64{1}, op); !errors.Is(err, nexar.ErrInvalidOp) {
			t.Errorf("%v of complex64: error %v, want ErrInvalidOp", op, err)
		}
	}
}

// A moments value accumulates mean and variance. The struct has padding.
type moments struct {
	Valid    bool
	N        float64
	Mean, M2 float64
	Last     int8
}

// merge combines moments in order.
func merge(dst, src []moments) {
	for i, b := range src {
		a := &dst[i]
		if !b.Valid {
			continue
		}
		if !a.Valid {
			*a = b
			continue
		}
		n, d := a.N+b.N, b.Mean-a.Mean
		*a = moments{true, n, a.Mean + d*b.N/n, a.M2 + b.M2 + d*d*a.N*b.N/n, b.Last}
	}
}

// TestFuncOfStructs: reductions and scans of structs by a function have the same bits on all
// ranks, including padding.
func TestFuncOfStructs(t *testing.T) {
	const n = 5
	value := func(rank int) []moments {
		x := make([]moments, 300)
		for i := range bytesOf(x) {
			bytesOf(x)[i] = byte(rank) + 1 // garbage in the padding
		}
		for i := range x {
			x[i] = moments{true, 1, float64(rank * i), 0, int8(rank)}
		}
		return x
	}
	want := value(0)
	prefixes := [][]moments{slices.Clone(want)}
	for rank := 1; rank < n; rank++ {
		merge(want, value(rank))
		prefixes = append(prefixes, slices.Clone(want))
	}
	for _, algorithm := range []string{"all_reduce=ring", "all_reduce=direct", ""} {
		comms := worldtest.Local(t, n, nexar.Config{Algorithms: slices.DeleteFunc([]string{algorithm}, func(s string) bool { return s == "" })})
		all := make([][]moments, n)
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			all[rank] = value(rank)
			scan, exclusive, root := value(rank), value(rank), value(rank)
			err := errors.Join(
				nexar.AllReduceFunc(t.Context(), c, all[rank], merge),
				nexar.ScanFunc(t.Context(), c, scan, merge),
				nexar.StartExclusiveScanFunc(t.Context(), c, exclusive, merge).Wait(),
				nexar.ReduceFunc(t.Context(), c, root, merge, 1),
			)
			if !slices.Equal(scan, prefixes[rank]) || rank > 0 && !slices.Equal(exclusive, prefixes[rank-1]) {
				t.Errorf("rank %d: wrong prefixes", rank)
			}
			if rank == 1 && !slices.Equal(root, want) {
				t.Error("wrong result of ReduceFunc")
			}
			return err
		})
		for rank := range n {
			if !slices.Equal(all[rank], want) {
				t.Errorf("%s: wrong result on rank %d", algorithm, rank)
			}
			if !slices.Equal(bytesOf(all[rank]), bytesOf(all[0])) {
				t.Errorf("%s: padding differs between ranks %d and 0", algorithm, rank)
			}
		}
	}
}

// TestFuncOfStructsMismatch: structs of equal size and different layouts do not match.
func TestFuncOfStructsMismatch(t *testing.T) {
	type a struct{ X, Y int32 }
	type b struct{ X, Y float32 }
	comms := worldtest.Local(t, 2, nexar.Config{CollectiveTimeout: time.Minute})
	errs := make([]error, 2)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		if rank == 0 {
			errs[0] = nexar.AllReduceFunc(t.Context(), c, make([]a, 3), func(dst, src []a) {})
		} else {
			errs[1] = nexar.AllReduceFunc(t.Context(), c, make([]b, 3), func(dst, src []b) {})
		}
		return nil
	})
	for rank, err := range errs {
		e, ok := errors.AsType[*nexar.MismatchError](err)
		if !ok || !strings.Contains(e.Error(), "all_reduce_func #1 (3 × structs, a function)") || !strings.Contains(e.Error(), "layouts of their structs differ") {
			t.Errorf("rank %d: error %v, want a MismatchError about the layouts", rank, err)
		}
	}
}

// TestFuncOfPointers: types with pointers are an error.
func TestFuncOfPointers(t *testing.T) {
	c := worldtest.Local(t, 1, nexar.Config{})[0]
	if err := nexar.AllReduceFunc(t.Context(), c, []string{""}, func(dst, src []string) {}); !errors.Is(err, nexar.ErrInvalidType) {
		t.Errorf("error %v, want ErrInvalidType", err)
	}
}

// bytesOf returns the memory of a vector.
func bytesOf(x []moments) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

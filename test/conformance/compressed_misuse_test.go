package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A customCompressor is compress.None with some methods replaced by functions.
type customCompressor struct {
	compress.None
	append   func(dst []byte, src []float32) ([]byte, error)
	addTo    func(dst []float32, encoded []byte) error
	maxBytes func(n int) int
}

func (o *customCompressor) Append(dst []byte, src []float32) ([]byte, error) {
	if o.append != nil {
		return o.append(dst, src)
	}
	return o.None.Append(dst, src)
}

func (o *customCompressor) AddTo(dst []float32, encoded []byte) error {
	if o.addTo != nil {
		return o.addTo(dst, encoded)
	}
	return o.None.AddTo(dst, encoded)
}

func (o *customCompressor) MaxBytes(n int) int {
	if o.maxBytes != nil {
		return o.maxBytes(n)
	}
	return o.None.MaxBytes(n)
}

var errCustom = errors.New("custom")

// TestInvalidCompressed: an invalid argument is an error at once, on this rank alone.
func TestInvalidCompressed(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	c, ctx := comms[0], t.Context()
	floats := []float32{1, 2, 3}
	for _, test := range []struct {
		name string
		err  error
		text string
	}{
		{"no compressor", nexar.AllReduceCompressed(ctx, c, floats, nexar.Sum, nil), "the compressor is nil"},
		{"max", nexar.AllReduceCompressed(ctx, c, floats, nexar.Max, &compress.TopK{}), "max of float32 is not allowed by the compressor top-k"},
		{"prod", nexar.StartAllReduceCompressed(ctx, c, floats, nexar.Prod, compress.Cast16{}).Wait(), "prod of float32 is not allowed by the compressor cast-16"},
		{"integers", nexar.AllReduceCompressed(ctx, c, []int32{1}, nexar.Sum, compress.Cast16{}), "sum of int32 is not allowed by the compressor cast-16"},
		{"no op", nexar.AllReduceCompressed(ctx, c, make([]nexar.BFloat16, 2), 0, compress.None{}), "of bfloat16 is not allowed"},
	} {
		if !errors.Is(test.err, nexar.ErrInvalidOp) || !strings.HasPrefix(test.err.Error(), "nexar: all_reduce_compressed: ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want ErrInvalidOp and the text %q", test.name, test.err, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestCompressedFails: if one rank fails or makes a different call, all ranks get an
// error that names it, data is unchanged, no memory is kept, and the communicator goes
// on.
func TestCompressedFails(t *testing.T) {
	const ranks, odd, count = 3, 1, 3000
	garbage := func(dst []byte, src []float32) ([]byte, error) { return append(dst, "garbage"...), nil }
	for _, test := range []struct {
		name string
		call func(ctx context.Context, c *nexar.Comm, data []float32) error // made by the culprit
		want error                                                          // on all ranks, or nil for any
		own  error                                                          // on the culprit
		text string                                                         // on the others
	}{
		{"length", func(ctx context.Context, c *nexar.Comm, data []float32) error {
			return nexar.AllReduceCompressed(ctx, c, data[1:], nexar.Sum, compress.None{})
		}, nexar.ErrInvalidLength, nil, "its vector has 2999 elements, and that of rank 0 has 3000"},
		{"op", func(ctx context.Context, c *nexar.Comm, data []float32) error {
			return nexar.AllReduceCompressed(ctx, c, data, nexar.Avg, compress.None{})
		}, nexar.ErrInvalidOp, nil, "its op is avg, and that of rank 0 is sum"},
		{"type", func(ctx context.Context, c *nexar.Comm, data []float32) error {
			return nexar.AllReduceCompressed(ctx, c, make([]nexar.Float16, count), nexar.Sum, compress.None{})
		}, nexar.ErrInvalidType, nil, "its vector is of float16, and that of rank 0 of float32"},
		{"error", customCall(&customCompressor{append: func(dst []byte, _ []float32) ([]byte, error) { return dst, errCustom }}),
			nil, errCustom, "its vector could not be compressed there"},
		{"configuration", customCall(&compress.TopK{K: -1}), nil, compress.ErrConfig, "its vector could not be compressed there"},
		{"garbage", customCall(&customCompressor{append: garbage}), compress.ErrFormat, nil, "malformed encoding"},
		{"nothing", customCall(&customCompressor{append: func([]byte, []float32) ([]byte, error) { return nil, nil }}), compress.ErrFormat, nil, "malformed encoding"},
		{"more than it says", customCall(&customCompressor{maxBytes: func(n int) int { return 12_015 }}),
			nexar.ErrTooLarge, nil, "its encoding has 12016 bytes, and MaxBytes allows 12015"},
		{"far too many bytes", customCall(&customCompressor{append: func(dst []byte, _ []float32) ([]byte, error) { return append(dst, make([]byte, 1<<20)...), nil }}),
			nexar.ErrTooLarge, nil, "its encoding has 1048576 bytes"},
		{"over the limit", customCall(&customCompressor{maxBytes: func(int) int { return 1 << 40 }, append: unwanted}),
			nexar.ErrTooLarge, nil, "its encoding would exceed the limit of that rank"},
		{"negative", customCall(&customCompressor{maxBytes: func(int) int { return -1 }, append: unwanted}),
			nexar.ErrTooLarge, nil, "its encoding would exceed the limit of that rank"},
	} {
		for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
			t.Run(test.name+"/"+m.Name, func(t *testing.T) {
				t.Parallel()
				w := m.World(t, ranks, nexar.Config{})
				comms := w.Comms
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					data := slices.Repeat([]float32{float32(rank + 1)}, count)
					before, call, text := slices.Clone(data), customCall(compress.None{}), test.text
					if rank == odd {
						call = test.call
					}
					err := call(ctx, c, data)
					e, ok := errors.AsType[*nexar.CompressError](err)
					if !ok || e.Rank != odd || !strings.HasPrefix(err.Error(), "nexar: all_reduce_compressed: rank 1: ") {
						return fmt.Errorf("%w, want a CompressError that names rank 1", err)
					}
					if rank == odd && test.own != nil {
						text = test.own.Error()
					}
					if test.want != nil && !errors.Is(err, test.want) || rank == odd && test.own != nil && !errors.Is(err, test.own) {
						return fmt.Errorf("%w, want %w, or %w on the rank itself", err, test.want, test.own)
					}
					if !strings.Contains(err.Error(), text) && !(rank == odd && errors.Is(err, nexar.ErrTooLarge)) {
						return fmt.Errorf("%w, want the text %q", err, text)
					}
					if !slices.Equal(data, before) {
						return errors.New("data has changed")
					}
					return allBack(w, rank)
				})
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// allBack returns an error if a buffer of the pool of a rank is in use.
func allBack(w *worldtest.World, rank int) error {
	if n := w.PoolInUse(rank); n > 0 {
		return fmt.Errorf("%d buffers were not put back", n)
	}
	return nil
}

// customCall returns a call with a compressor.
func customCall(comp compress.Compressor) func(ctx context.Context, c *nexar.Comm, data []float32) error {
	return func(ctx context.Context, c *nexar.Comm, data []float32) error {
		return nexar.AllReduceCompressed(ctx, c, data, nexar.Sum, comp)
	}
}

func unwanted([]byte, []float32) ([]byte, error) { panic("a vector was compressed that is too large") }

// TestDifferentCompressors: if the ranks have compressors of different kinds, all get the
// same error, which names the ranks and their compressors. Fields may differ, and some
// ranks may use feedback.
func TestDifferentCompressors(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	feedback := &compress.ErrorFeedback{Compressor: compress.Cast16{}}
	for _, test := range []struct {
		zero, other compress.Compressor // of ranks 0 and 1, and of rank 2
		text        string
	}{
		{compress.None{}, compress.Cast16{}, `its compressor is "cast-16", and that of rank 0 is "none"`},
		{&compress.TopK{}, &compress.RandomK{}, `its compressor is "random-k", and that of rank 0 is "top-k"`},
		{feedback, compress.Quantize8{}, `its compressor is "quantize-8", and that of rank 0 is "cast-16"`},
		{feedback, compress.Cast16{Format: compress.Float16}, ""},
	} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			comp, data := test.zero, []float32{1, 2}
			switch rank {
			case 1:
				comp = cloned(comp)
			case 2:
				comp = test.other
			}
			err := nexar.AllReduceCompressed(t.Context(), c, data, nexar.Sum, comp)
			if test.text == "" && err == nil {
				return nil
			}
			e, ok := errors.AsType[*nexar.CompressError](err)
			if !ok || e.Rank != 2 || !errors.Is(err, nexar.ErrInvalidOp) || !strings.HasSuffix(err.Error(), test.text) || data[0] != 1 {
				return fmt.Errorf("got %v, error %w, want one that says that %s", data, err, test.text)
			}
			return nil
		})
	}
	worldtest.CheckWorks(t, comms)
}

// cloned is a compressor of another type with the same Kind.
func cloned(comp compress.Compressor) compress.Compressor {
	switch comp := comp.(type) {
	case *compress.TopK:
		return &compress.TopK{K: 1}
	case *compress.ErrorFeedback:
		return &compress.ErrorFeedback{Compressor: comp.Compressor}
	}
	return comp
}

// silent is a compressor without a Kind.
type silent struct{ compress.Compressor }

// TestDifferentSilentCompressors: a rank with another compressor fails to decode, and its
// vector cannot be decoded by the others.
func TestDifferentSilentCompressors(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		comp, blamed, data := compress.Compressor(compress.None{}), 1, []float32{1, 2}
		if rank == 1 {
			comp, blamed = silent{compress.Cast16{}}, 0
		}
		err := nexar.AllReduceCompressed(t.Context(), c, data, nexar.Sum, comp)
		if e, ok := errors.AsType[*nexar.CompressError](err); !ok || e.Rank != blamed || !errors.Is(err, compress.ErrFormat) || data[0] != 1 {
			return fmt.Errorf("got %v, error %w, want one that names rank %d", data, err, blamed)
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}

// TestCompressorPanics: the call panics on the rank of the compressor, and the other
// ranks do not wait for it.
func TestCompressorPanics(t *testing.T) {
	const ranks, odd = 3, 2
	for _, test := range []struct {
		name string
		comp compress.Compressor
		told bool // the other ranks get an error
	}{
		{"append", &customCompressor{append: func([]byte, []float32) ([]byte, error) { panic(errCustom) }}, true},
		{"max bytes", &customCompressor{maxBytes: func(int) int { panic(errCustom) }}, true},
		{"add to", &customCompressor{addTo: func([]float32, []byte) error { panic(errCustom) }}, false},
	} {
		for _, begin := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/begun=%v", test.name, begin), func(t *testing.T) {
				w := worldtest.Mem().World(t, ranks, nexar.Config{})
				comms := w.Comms
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					comp, data := compress.Compressor(compress.None{}), []float32{1, 2}
					if rank == odd {
						comp = test.comp
					}
					call := func() error { return nexar.AllReduceCompressed(ctx, c, data, nexar.Sum, comp) }
					if begin {
						call = func() error { return nexar.StartAllReduceCompressed(ctx, c, data, nexar.Sum, comp).Wait() }
					}
					p, err := recovered(call)
					e, told := errors.AsType[*nexar.CompressError](err)
					switch {
					case rank == odd && (p == nil || !strings.Contains(fmt.Sprint(p), errCustom.Error())):
						return fmt.Errorf("panicked with %v, want %v (error %w)", p, errCustom, err)
					case rank != odd && (p != nil || told != test.told):
						return fmt.Errorf("got %w, panicked with %v", err, p)
					case told && (e.Rank != odd || !strings.Contains(err.Error(), "rank 2: its compressor has panicked")):
						return fmt.Errorf("%w, want that rank 2 has panicked", err)
					}
					if changed := data[0] != 1; changed != (rank != odd && !test.told) {
						return fmt.Errorf("data is %v", data)
					}
					if err := allBack(w, rank); err != nil {
						return err
					}
					// The vector must be usable again.
					return nexar.StartAllReduce(ctx, c, data, nexar.Sum).Wait()
				})
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// recovered returns the value that f panics with, or its error.
func recovered(f func() error) (p any, err error) {
	defer func() { p = recover() }()
	return nil, f()
}

// TestCompressorGoexit: no rank waits for the call of a compressor that ends its
// goroutine.
func TestCompressorGoexit(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		if rank == 0 {
			ended := make(chan bool)
			go func() {
				defer close(ended)
				nexar.AllReduceCompressed(ctx, c, []float32{1}, nexar.Sum, &customCompressor{append: func(dst []byte, _ []float32) ([]byte, error) {
					runtime.Goexit()
					return dst, nil
				}})
			}()
			<-ended
			return nil
		}
		err := nexar.AllReduceCompressed(ctx, c, []float32{1}, nexar.Sum, compress.None{})
		if !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), "its compressor has ended the goroutine") {
			return fmt.Errorf("%w, want ErrRevoked and why", err)
		}
		return nil
	})
}

// TestStartedCompressorGoexit: the vector can be used again, and Wait reports an
// incomplete sum as an error.
func TestStartedCompressorGoexit(t *testing.T) {
	w := worldtest.Mem().World(t, 1, nexar.Config{})
	comms := w.Comms
	child, err := comms[0].Dup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	data := []float32{1, 2}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		nexar.StartAllReduceCompressed(t.Context(), child, data, nexar.Sum, &customCompressor{append: func(dst []byte, _ []float32) ([]byte, error) {
			runtime.Goexit()
			return dst, nil
		}})
	}()
	<-ended
	// The communicator has been revoked, but the vector no longer counts as in use.
	if err := nexar.StartAllReduce(t.Context(), child, data, nexar.Sum).Wait(); errors.Is(err, nexar.ErrOverlap) {
		t.Errorf("the vector after an encoding that did not end: %v", err)
	}
	err = nexar.StartAllReduceCompressed(t.Context(), comms[0], data, nexar.Sum, &customCompressor{addTo: func([]float32, []byte) error {
		runtime.Goexit()
		return nil
	}}).Wait()
	if e, ok := errors.AsType[*nexar.CompressError](err); !ok || e.Rank != 0 || !worldtest.HasText(err, "its compressor has ended the goroutine") || data[0] != 1 {
		t.Errorf("incomplete sum: %v, error %v, want a CompressError of rank 0", data, err)
	}
	if err := allBack(w, 0); err != nil {
		t.Error(err)
	}
	if err := nexar.StartAllReduce(t.Context(), comms[0], data, nexar.Sum).Wait(); err != nil {
		t.Errorf("an all-reduce after it: %v", err)
	}
}

// TestCompressedMax: the call uses no more memory than its limit; without a limit, as
// much as it needs.
func TestCompressedMax(t *testing.T) {
	const ranks, count = 4, 1000
	need := ranks * compress.None{}.MaxBytes(count)
	for _, test := range []struct {
		setting string
		limit   int
		want    error
	}{
		{"", need, nil},
		{"", need - 1, nexar.ErrTooLarge},
		{"", -1, nil},
		{"0", 0, nil},
		{fmt.Sprint(need - 1), 0, nexar.ErrTooLarge},
		{fmt.Sprint(need), 0, nil},
		{"1", need, nil}, // The setting of the program counts.
	} {
		t.Run(fmt.Sprintf("%d, and %q in the environment", test.limit, test.setting), func(t *testing.T) {
			t.Setenv("NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", test.setting)
			comms := worldtest.Mem().Cluster(t, ranks, nexar.Config{CompressedMaxBytes: test.limit})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				err := nexar.AllReduceCompressed(t.Context(), c, make([]float32, count), nexar.Sum, compress.None{})
				if !errors.Is(err, test.want) {
					return fmt.Errorf("%w, want %w", err, test.want)
				}
				if err != nil && rank == 0 && !strings.HasSuffix(err.Error(), fmt.Sprintf(
					"too large: 4 encodings of up to %d bytes, for a limit of %d bytes in all (NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES)", need/ranks, need-1)) {
					return fmt.Errorf("%w, want the numbers", err)
				}
				return nil
			})
			worldtest.CheckWorks(t, comms)
		})
	}
}

// TestTooLargeTakesNoMemory: a vector beyond the limit is refused before its copy or room
// for encodings is allocated.
func TestTooLargeTakesNoMemory(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{CompressedMaxBytes: 1 << 20})
	data := make([][]nexar.BFloat16, 2)
	for rank := range data {
		data[rank] = make([]nexar.BFloat16, 64<<20)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		err := nexar.AllReduceCompressed(t.Context(), c, data[rank], nexar.Sum, &customCompressor{append: unwanted})
		if !errors.Is(err, nexar.ErrTooLarge) {
			return fmt.Errorf("%w, want ErrTooLarge", err)
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes were allocated, for a limit of 1 MiB", grown)
	}
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		err := nexar.AllReduceCompressed(t.Context(), c, data[rank][:10], nexar.Sum, &customCompressor{maxBytes: func(int) int { return math.MaxInt }, append: unwanted})
		if !errors.Is(err, nexar.ErrTooLarge) {
			return fmt.Errorf("%w, want ErrTooLarge", err)
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}

// TestMaxBytesBeyondAll: without a configured limit, a MaxBytes of a compressor that exceeds the
// limit of a call, or is negative, is an error.
func TestMaxBytesBeyondAll(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{CompressedMaxBytes: -1})
	for most, text := range map[int]string{
		math.MaxInt: "2 encodings of up to 9223372036854775807 bytes, for a limit of 549755813887 bytes in all",
		1 << 39:     "2 encodings of up to 549755813888 bytes, for a limit of 549755813887 bytes in all",
		-7:          "MaxBytes of 10 elements is -7",
	} {
		worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
			err := nexar.AllReduceCompressed(t.Context(), c, make([]float32, 10), nexar.Sum, &customCompressor{maxBytes: func(int) int { return most }, append: unwanted})
			if !errors.Is(err, nexar.ErrTooLarge) || c.Rank() == 0 && !strings.Contains(err.Error(), text) {
				return fmt.Errorf("%w, want ErrTooLarge and the text %q", err, text)
			}
			return nil
		})
	}
	worldtest.CheckWorks(t, comms)
}

// TestCompressedInFlight: the operation owns the vector until it has ended.
func TestCompressedInFlight(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 1, nexar.Config{})
	c, data := comms[0], make([]float32, 10)
	within := make(chan error, 1)
	comp := &customCompressor{append: func(dst []byte, src []float32) ([]byte, error) {
		within <- nexar.StartAllReduce(t.Context(), c, data[5:], nexar.Sum).Wait()
		return compress.None{}.Append(dst, src)
	}}
	if err := nexar.StartAllReduceCompressed(t.Context(), c, data, nexar.Sum, comp).Wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-within; !errors.Is(err, nexar.ErrOverlap) || !strings.Contains(err.Error(), "all_reduce_compressed, which is in progress") {
		t.Errorf("an all-reduce of the same vector: %v, want ErrOverlap", err)
	}
	if err := nexar.StartAllReduce(t.Context(), c, data, nexar.Sum).Wait(); err != nil {
		t.Errorf("an all-reduce after it: %v", err)
	}
}

// TestMismatchOfCompressed: a compressed all-reduce and another call are a mismatch.
func TestMismatchOfCompressed(t *testing.T) {
	compressed := call{"all_reduce_compressed #2", func(ctx context.Context, c *nexar.Comm) error {
		return nexar.AllReduceCompressed(ctx, c, make([]float32, 10), nexar.Sum, compress.None{})
	}}
	for _, other := range []call{allReduceOf[float32](10, nexar.Sum), allToAllVCall, allGatherOf(3), barrierCall} {
		for odd := range 2 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", compressed.text, odd, other.text), func(t *testing.T) {
				t.Parallel()
				mismatch(t, worldtest.Mem(), 3, odd, compressed, other)
			})
		}
	}
}

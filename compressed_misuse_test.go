package nexar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/internal/overlap"
)

// An oddCompressor is None, but for what it does in its own way.
type oddCompressor struct {
	compress.None
	append   func(dst []byte, src []float32) ([]byte, error)
	addTo    func(dst []float32, encoded []byte) error
	maxBytes func(n int) int
}

func (o *oddCompressor) Append(dst []byte, src []float32) ([]byte, error) {
	if o.append != nil {
		return o.append(dst, src)
	}
	return o.None.Append(dst, src)
}

func (o *oddCompressor) AddTo(dst []float32, encoded []byte) error {
	if o.addTo != nil {
		return o.addTo(dst, encoded)
	}
	return o.None.AddTo(dst, encoded)
}

func (o *oddCompressor) MaxBytes(n int) int {
	if o.maxBytes != nil {
		return o.maxBytes(n)
	}
	return o.None.MaxBytes(n)
}

var errOdd = errors.New("odd")

// TestInvalidCompressed: a wrong argument is an error at once and on this rank
// alone.
func TestInvalidCompressed(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	c, ctx := comms[0], t.Context()
	floats := []float32{1, 2, 3}
	for _, test := range []struct {
		name string
		err  error
		text string
	}{
		{"no compressor", AllReduceCompressed(ctx, c, floats, Sum, nil), "the compressor is nil"},
		{"max", AllReduceCompressed(ctx, c, floats, Max, compress.None{}), "max of compressed vectors, which is neither sum nor avg"},
		{"prod", StartAllReduceCompressed(ctx, c, floats, Prod, compress.None{}).Wait(), "prod of compressed vectors"},
		{"no op", AllReduceCompressed(ctx, c, make([]BFloat16, 2), 0, compress.None{}), "of compressed vectors"},
	} {
		if !errors.Is(test.err, ErrInvalidOp) || !strings.HasPrefix(test.err.Error(), "nexar: all_reduce_compressed: ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want ErrInvalidOp and the text %q", test.name, test.err, test.text)
		}
	}
	stillWorks(t, comms)
}

// TestCompressedFails: whatever one rank does that the others cannot go along
// with, all get an error that names it, data is as it was, nothing is kept, and
// the communicator goes on.
func TestCompressedFails(t *testing.T) {
	const ranks, odd, count = 3, 1, 3000
	garbage := func(dst []byte, src []float32) ([]byte, error) { return append(dst, "what is this?"...), nil }
	for _, test := range []struct {
		name string
		call func(ctx context.Context, c *Comm, data []float32) error // of the odd rank
		want error                                                    // on all ranks, if there is any in particular
		own  error                                                    // on the odd rank
		text string                                                   // on the others
	}{
		{"length", func(ctx context.Context, c *Comm, data []float32) error {
			return AllReduceCompressed(ctx, c, data[1:], Sum, compress.None{})
		}, ErrInvalidLength, nil, "its vector has 2999 elements, and that of rank 0 has 3000"},
		{"op", func(ctx context.Context, c *Comm, data []float32) error {
			return AllReduceCompressed(ctx, c, data, Avg, compress.None{})
		}, ErrInvalidOp, nil, "it asks for avg, and rank 0 for sum"},
		{"type", func(ctx context.Context, c *Comm, data []float32) error {
			return AllReduceCompressed(ctx, c, make([]Float16, count), Sum, compress.None{})
		}, ErrInvalidType, nil, "its vector is of float16, and that of rank 0 of float32"},
		{"error", odder(&oddCompressor{append: func(dst []byte, _ []float32) ([]byte, error) { return dst, errOdd }}),
			nil, errOdd, "its vector could not be compressed there"},
		{"configuration", odder(&compress.TopK{K: -1}), nil, compress.ErrConfig, "its vector could not be compressed there"},
		{"garbage", odder(&oddCompressor{append: garbage}), compress.ErrFormat, nil, "malformed encoding"},
		{"nothing", odder(&oddCompressor{append: func([]byte, []float32) ([]byte, error) { return nil, nil }}), compress.ErrFormat, nil, "malformed encoding"},
		{"more than it says", odder(&oddCompressor{maxBytes: func(n int) int { return 12_015 }}),
			ErrTooLarge, nil, "its encoding has 12016 bytes, and MaxBytes allows 12015"},
		{"many more", odder(&oddCompressor{append: func(dst []byte, _ []float32) ([]byte, error) { return append(dst, make([]byte, 1<<20)...), nil }}),
			ErrTooLarge, nil, "its encoding has 1048576 bytes"},
		{"over the limit", odder(&oddCompressor{maxBytes: func(int) int { return 1 << 40 }, append: unwanted}),
			ErrTooLarge, nil, "its encoding would be more than the limit there allows"},
		{"negative", odder(&oddCompressor{maxBytes: func(int) int { return -1 }, append: unwanted}),
			ErrTooLarge, nil, "its encoding would be more than the limit there allows"},
	} {
		for _, m := range []medium{overMem, overLinks, overQUIC} {
			t.Run(test.name+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				comms := m.cluster(t, ranks, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				onAll(t, comms, func(rank int, c *Comm) error {
					data := slices.Repeat([]float32{float32(rank + 1)}, count)
					before, call, text := slices.Clone(data), odder(compress.None{}), test.text
					if rank == odd {
						call = test.call
					}
					err := call(ctx, c, data)
					e, ok := errors.AsType[*CompressError](err)
					if !ok || e.Rank != odd || !strings.HasPrefix(err.Error(), "nexar: all_reduce_compressed: rank 1: ") {
						return fmt.Errorf("%w, want a CompressError that names rank 1", err)
					}
					if rank == odd && test.own != nil {
						text = test.own.Error()
					}
					if test.want != nil && !errors.Is(err, test.want) || rank == odd && test.own != nil && !errors.Is(err, test.own) {
						return fmt.Errorf("%w, want %w, or %w on the rank itself", err, test.want, test.own)
					}
					if !strings.Contains(err.Error(), text) && !(rank == odd && errors.Is(err, ErrTooLarge)) {
						return fmt.Errorf("%w, want the text %q", err, text)
					}
					if !slices.Equal(data, before) {
						return errors.New("data has changed")
					}
					return allBack(c)
				})
				stillWorks(t, comms)
			})
		}
	}
}

// allBack finds buffers that were not put back.
func allBack(c *Comm) error {
	if n := lent(c); n > 0 {
		return fmt.Errorf("%d buffers were not put back", n)
	}
	return nil
}

// odder is a call with a compressor.
func odder(comp compress.Compressor) func(ctx context.Context, c *Comm, data []float32) error {
	return func(ctx context.Context, c *Comm, data []float32) error {
		return AllReduceCompressed(ctx, c, data, Sum, comp)
	}
}

func unwanted([]byte, []float32) ([]byte, error) { panic("a vector was compressed that is too large") }

// TestCompressorsThatDiffer: all ranks get the same error, which says who has
// which compressor. Fields may differ, and so may whether there is feedback.
func TestCompressorsThatDiffer(t *testing.T) {
	comms := overMem.cluster(t, 3, Config{})
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
		onAll(t, comms, func(rank int, c *Comm) error {
			comp, data := test.zero, []float32{1, 2}
			switch rank {
			case 1:
				comp = cloned(comp)
			case 2:
				comp = test.other
			}
			err := AllReduceCompressed(t.Context(), c, data, Sum, comp)
			if test.text == "" && err == nil {
				return nil
			}
			e, ok := errors.AsType[*CompressError](err)
			if !ok || e.Rank != 2 || !errors.Is(err, ErrInvalidOp) || !strings.HasSuffix(err.Error(), test.text) || data[0] != 1 {
				return fmt.Errorf("got %v, error %w, want one that says that %s", data, err, test.text)
			}
			return nil
		})
	}
	stillWorks(t, comms)
}

// cloned is another compressor of the same kind.
func cloned(comp compress.Compressor) compress.Compressor {
	switch comp := comp.(type) {
	case *compress.TopK:
		return &compress.TopK{K: 1}
	case *compress.ErrorFeedback:
		return &compress.ErrorFeedback{Compressor: comp.Compressor}
	}
	return comp
}

// A silent compressor does not say of what kind it is.
type silent struct{ compress.Compressor }

// TestSilentCompressorsThatDiffer: a rank cannot read what the others send, nor
// they what it does.
func TestSilentCompressorsThatDiffer(t *testing.T) {
	comms := overMem.cluster(t, 3, Config{})
	onAll(t, comms, func(rank int, c *Comm) error {
		comp, blamed, data := compress.Compressor(compress.None{}), 1, []float32{1, 2}
		if rank == 1 {
			comp, blamed = silent{compress.Cast16{}}, 0
		}
		err := AllReduceCompressed(t.Context(), c, data, Sum, comp)
		if e, ok := errors.AsType[*CompressError](err); !ok || e.Rank != blamed || !errors.Is(err, compress.ErrFormat) || data[0] != 1 {
			return fmt.Errorf("got %v, error %w, want one that names rank %d", data, err, blamed)
		}
		return nil
	})
	stillWorks(t, comms)
}

// TestCompressorThatPanics: on its rank so does the call, and the others do not
// wait for it.
func TestCompressorThatPanics(t *testing.T) {
	const ranks, odd = 3, 2
	for _, test := range []struct {
		name string
		comp compress.Compressor
		told bool // the others
	}{
		{"append", &oddCompressor{append: func([]byte, []float32) ([]byte, error) { panic(errOdd) }}, true},
		{"max bytes", &oddCompressor{maxBytes: func(int) int { panic(errOdd) }}, true},
		{"add to", &oddCompressor{addTo: func([]float32, []byte) error { panic(errOdd) }}, false},
	} {
		for _, begin := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/begun=%v", test.name, begin), func(t *testing.T) {
				comms := overMem.cluster(t, ranks, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				onAll(t, comms, func(rank int, c *Comm) error {
					comp, data := compress.Compressor(compress.None{}), []float32{1, 2}
					if rank == odd {
						comp = test.comp
					}
					call := func() error { return AllReduceCompressed(ctx, c, data, Sum, comp) }
					if begin {
						call = func() error { return StartAllReduceCompressed(ctx, c, data, Sum, comp).Wait() }
					}
					p, err := recovered(call)
					e, told := errors.AsType[*CompressError](err)
					switch {
					case rank == odd && (p == nil || !strings.Contains(fmt.Sprint(p), errOdd.Error())):
						return fmt.Errorf("panicked with %v, want %v (error %w)", p, errOdd, err)
					case rank != odd && (p != nil || told != test.told):
						return fmt.Errorf("got %w, panicked with %v", err, p)
					case told && (e.Rank != odd || !strings.Contains(err.Error(), "rank 2: its compressor has panicked")):
						return fmt.Errorf("%w, want that rank 2 has panicked", err)
					}
					if changed := data[0] != 1; changed != (rank != odd && !test.told) {
						return fmt.Errorf("data is %v", data)
					}
					if err := allBack(c); err != nil {
						return err
					}
					// The vector can be used again.
					return StartAllReduce(ctx, c, data, Sum).Wait()
				})
				stillWorks(t, comms)
			})
		}
	}
}

// recovered is what f has panicked with.
func recovered(f func() error) (p any, err error) {
	defer func() { p = recover() }()
	return nil, f()
}

// TestCompressorThatEndsItsGoroutine: nobody waits for the call that it was in.
func TestCompressorThatEndsItsGoroutine(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	onAll(t, comms, func(rank int, c *Comm) error {
		if rank == 0 {
			ended := make(chan bool)
			go func() {
				defer close(ended)
				AllReduceCompressed(ctx, c, []float32{1}, Sum, &oddCompressor{append: func(dst []byte, _ []float32) ([]byte, error) {
					runtime.Goexit()
					return dst, nil
				}})
			}()
			<-ended
			return nil
		}
		err := AllReduceCompressed(ctx, c, []float32{1}, Sum, compress.None{})
		if !errors.Is(err, ErrRevoked) || !strings.Contains(err.Error(), "its compressor has ended the goroutine") {
			return fmt.Errorf("%w, want ErrRevoked and why", err)
		}
		return nil
	})
}

// TestStartedCompressorThatEndsItsGoroutine: the vector can be used again, and no
// Wait takes what was never added for a result.
func TestStartedCompressorThatEndsItsGoroutine(t *testing.T) {
	comms := overMem.cluster(t, 1, Config{})
	child, err := comms[0].Dup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	data := []float32{1, 2}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		StartAllReduceCompressed(t.Context(), child, data, Sum, &oddCompressor{append: func(dst []byte, _ []float32) ([]byte, error) {
			runtime.Goexit()
			return dst, nil
		}})
	}()
	<-ended
	if id, err := child.enterFlight(overlap.Flight{Write: bytesOf(data)}); err != nil || id == 0 {
		t.Errorf("the vector after an encoding that did not end: %v", err)
	}
	err = StartAllReduceCompressed(t.Context(), comms[0], data, Sum, &oddCompressor{addTo: func([]float32, []byte) error {
		runtime.Goexit()
		return nil
	}}).Wait()
	if e, ok := errors.AsType[*CompressError](err); !ok || e.Rank != 0 || !errors.Is(err, errGoexit) || data[0] != 1 {
		t.Errorf("a sum that was not made: %v, error %v, want a CompressError of rank 0", data, err)
	}
	if err := allBack(comms[0]); err != nil {
		t.Error(err)
	}
	if err := StartAllReduce(t.Context(), comms[0], data, Sum).Wait(); err != nil {
		t.Errorf("an all-reduce after it: %v", err)
	}
}

// TestCompressedMax: no more memory is taken than is allowed, and as much as is
// needed if nothing is said.
func TestCompressedMax(t *testing.T) {
	const ranks, count = 4, 1000
	need := ranks * compress.None{}.MaxBytes(count)
	for _, test := range []struct {
		setting string
		limit   int
		want    error
	}{
		{"", need, nil},
		{"", need - 1, ErrTooLarge},
		{"", -1, nil},
		{"0", 0, nil},
		{fmt.Sprint(need - 1), 0, ErrTooLarge},
		{fmt.Sprint(need), 0, nil},
		{"1", need, nil}, // What the program says counts.
	} {
		t.Run(fmt.Sprintf("%d, and %q in the environment", test.limit, test.setting), func(t *testing.T) {
			t.Setenv("NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", test.setting)
			comms := overMem.cluster(t, ranks, Config{CompressedMax: test.limit})
			onAll(t, comms, func(rank int, c *Comm) error {
				err := AllReduceCompressed(t.Context(), c, make([]float32, count), Sum, compress.None{})
				if !errors.Is(err, test.want) {
					return fmt.Errorf("%w, want %w", err, test.want)
				}
				if err != nil && rank == 0 && !strings.HasSuffix(err.Error(), fmt.Sprintf(
					"too large: 4 encodings of up to %d bytes, for a limit of %d bytes in all (NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES)", need/ranks, need-1)) {
					return fmt.Errorf("%w, want the numbers", err)
				}
				return nil
			})
			stillWorks(t, comms)
		})
	}
}

// TestTooLargeTakesNoMemory: neither a copy of the vector is made nor room for
// encodings.
func TestTooLargeTakesNoMemory(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{CompressedMax: 1 << 20})
	data := make([][]BFloat16, 2)
	for rank := range data {
		data[rank] = make([]BFloat16, 64<<20)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	onAll(t, comms, func(rank int, c *Comm) error {
		err := AllReduceCompressed(t.Context(), c, data[rank], Sum, &oddCompressor{append: unwanted})
		if !errors.Is(err, ErrTooLarge) {
			return fmt.Errorf("%w, want ErrTooLarge", err)
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes were allocated, for a limit of 1 MiB", grown)
	}
	onAll(t, comms, func(rank int, c *Comm) error {
		err := AllReduceCompressed(t.Context(), c, data[rank][:10], Sum, &oddCompressor{maxBytes: func(int) int { return math.MaxInt }, append: unwanted})
		if !errors.Is(err, ErrTooLarge) {
			return fmt.Errorf("%w, want ErrTooLarge", err)
		}
		return nil
	})
	stillWorks(t, comms)
}

// TestMaxBytesBeyondAll: where there is no limit but what a call can take, a
// compressor that says more, or less than nothing, is an error all the same.
func TestMaxBytesBeyondAll(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{CompressedMax: -1})
	for most, text := range map[int]string{
		math.MaxInt: "2 encodings of up to 9223372036854775807 bytes, for a limit of 549755813887 bytes in all",
		1 << 39:     "2 encodings of up to 549755813888 bytes, for a limit of 549755813887 bytes in all",
		-7:          "MaxBytes of 10 elements is -7",
	} {
		onAll(t, comms, func(_ int, c *Comm) error {
			err := AllReduceCompressed(t.Context(), c, make([]float32, 10), Sum, &oddCompressor{maxBytes: func(int) int { return most }, append: unwanted})
			if !errors.Is(err, ErrTooLarge) || c.Rank() == 0 && !strings.Contains(err.Error(), text) {
				return fmt.Errorf("%w, want ErrTooLarge and the text %q", err, text)
			}
			return nil
		})
	}
	stillWorks(t, comms)
}

// TestCompressedInFlight: the vector belongs to the operation until it has ended.
func TestCompressedInFlight(t *testing.T) {
	comms := overMem.cluster(t, 1, Config{})
	c, data := comms[0], make([]float32, 10)
	within := make(chan error, 1)
	comp := &oddCompressor{append: func(dst []byte, src []float32) ([]byte, error) {
		within <- StartAllReduce(t.Context(), c, data[5:], Sum).Wait()
		return compress.None{}.Append(dst, src)
	}}
	if err := StartAllReduceCompressed(t.Context(), c, data, Sum, comp).Wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-within; !errors.Is(err, ErrOverlap) || !strings.Contains(err.Error(), "all_reduce_compressed, which is under way") {
		t.Errorf("an all-reduce of the same vector: %v, want ErrOverlap", err)
	}
	if err := StartAllReduce(t.Context(), c, data, Sum).Wait(); err != nil {
		t.Errorf("an all-reduce after it: %v", err)
	}
}

// TestMismatchOfCompressed: another call than the others make.
func TestMismatchOfCompressed(t *testing.T) {
	compressed := call{"all_reduce_compressed #2", func(ctx context.Context, c *Comm) error {
		return AllReduceCompressed(ctx, c, make([]float32, 10), Sum, compress.None{})
	}}
	for _, other := range []call{allReduceOf[float32](10, Sum), allToAllVCall, allGatherOf(3), barrierCall} {
		for odd := range 2 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", compressed.text, odd, other.text), func(t *testing.T) {
				t.Parallel()
				mismatch(t, overMem, 3, odd, compressed, other)
			})
		}
	}
}

// TestNoticesThatLie: an encoding with less than no bytes, or more than it may have, is
// refused before anything is allocated for it.
func TestNoticesThatLie(t *testing.T) {
	first := &notice{Elements: 100, Bytes: 10, Room: 20}
	for _, n := range []notice{{Elements: 100, Bytes: -1 << 40, Room: 20}, {Elements: 100, Bytes: 21, Room: 20}, {Elements: 100, Bytes: -1, Room: -1}} {
		if err := n.refused(first); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%+v: %v, want ErrTooLarge", n, err)
		}
	}
	if err := first.refused(first); err != nil {
		t.Error(err)
	}
}

package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/bucket"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestBuckets: for all lengths of vectors and buckets, each vector is reduced as it would
// be alone; with Deterministic to the same bits.
func TestBuckets(t *testing.T) {
	for _, test := range []struct {
		worldtest.Medium
		deterministic bool
		checks        int // one of this many checks is run
	}{
		{worldtest.Mem(), false, 1},
		{worldtest.Mem(), true, 1},
		{worldtest.MemLinks(), false, 2},
		{worldtest.MemLinks(), true, 2},
		{worldtest.QUIC(), true, 4},
	} {
		t.Run(fmt.Sprintf("%s/deterministic=%v", test.Name, test.deterministic), func(t *testing.T) {
			type shape struct{ ranks, bucket int }
			worlds := make(map[shape]*worldtest.World)
			made := 0
			rapid.Check(t, func(r *rapid.T) {
				n := rapid.SampledFrom([]int{1, 2, 2, 4, 4}).Draw(r, "ranks")
				load := drawLoad(r)
				if made++; made%test.checks != 0 {
					return
				}
				s := shape{n, load.bucket}
				if worlds[s] == nil {
					worlds[s] = test.World(t, n, nexar.Config{Deterministic: test.deterministic, BucketBytes: load.bucket})
				}
				if err := load.run(worlds[s], test.deterministic); err != nil {
					r.Fatalf("%+v: %v", load, err)
				}
			})
		})
	}
}

// A load is a set of vectors to reduce in buckets. With Deterministic, they are also
// reduced one by one.
type load struct {
	typ     kernel.Type
	op      nexar.Op
	flavour flavour
	bucket  int // bytes
	lengths []int
	begin   bool
}

// drawLoad draws vectors of all kinds of lengths: empty, short, half a bucket (the least length
// that is not packed), a bucket, and longer.
func drawLoad(r *rapid.T) load {
	k := rapid.SampledFrom(unevenKinds()).Draw(r, "type")
	l := load{
		typ: k.typ, op: rapid.SampledFrom(k.ops()).Draw(r, "op"),
		flavour: flavour(rapid.IntRange(0, int(flavours)-1).Draw(r, "flavour")),
		bucket:  rapid.SampledFrom([]int{1, 64, 1000, 4096, 64 << 10}).Draw(r, "bucket"),
		begin:   rapid.Bool().Draw(r, "begin"),
	}
	room := max(1, l.bucket/k.typ.Size())
	l.lengths = rapid.SliceOfN(rapid.OneOf(
		rapid.SampledFrom([]int{0, 1, room / 2, room/2 + 1, room - 1, room, room + 1, 3 * room}),
		rapid.IntRange(0, 50),
	), 0, 40).Draw(r, "lengths")
	return l
}

func (l load) run(w *worldtest.World, deterministic bool) error {
	on := map[kernel.Type]func(w *worldtest.World, c *nexar.Comm, l load, deterministic bool) error{
		kernel.Uint8: reduceInBuckets[uint8], kernel.Float16: reduceInBuckets[nexar.Float16],
		kernel.Float32: reduceInBuckets[float32], kernel.Int64: reduceInBuckets[int64],
	}
	return worldtest.ForEach(len(w.Comms), func(rank int) error {
		err := on[l.typ](w, w.Comms[rank], l, deterministic)
		if err != nil {
			w.Comms[rank].Close() // so that no rank waits for it
		}
		return err
	})
}

func reduceInBuckets[T nexar.Number](w *worldtest.World, c *nexar.Comm, l load, deterministic bool) error {
	ctx := context.Background()
	k := unevenKinds()[slices.IndexFunc(unevenKinds(), func(k *kind) bool { return k.typ == l.typ })]
	tr := trial{collective: plan.AllReduce, kind: k, op: l.op, flavour: l.flavour}
	buffers, vectors, alone := make([]guarded[T], len(l.lengths)), make([][]T, len(l.lengths)), make([][]T, len(l.lengths))
	for i, n := range l.lengths {
		buffers[i] = newGuarded[T](n)
		vectors[i] = buffers[i].v
		fill(vectors[i], k.values(l.op, l.flavour), c.Rank(), 1000*i)
		alone[i] = slices.Clone(vectors[i])
	}
	var err error
	if l.begin {
		err = nexar.StartAllReduceBuckets(ctx, c, vectors, l.op).Wait()
	} else {
		err = nexar.AllReduceBuckets(ctx, c, vectors, l.op)
	}
	if err != nil {
		return err
	}
	if n := w.PoolInUse(c.Rank()); n > 0 {
		return fmt.Errorf("%d buffers were not returned to the pool", n)
	}
	for i, v := range vectors {
		if err := errors.Join(verify(tr, v, []segment{{0, c.Size(), 1000 * i, len(v)}}), buffers[i].check("it")); err != nil {
			return fmt.Errorf("vector %d: %w", i, err)
		}
		if !deterministic {
			continue
		}
		if err := nexar.AllReduce(ctx, c, alone[i], l.op); err != nil {
			return err
		}
		if !slices.Equal(bytesOf(v), bytesOf(alone[i])) {
			return fmt.Errorf("vector %d, of %d: its bits differ between a bucket and a call of its own", i, len(v))
		}
	}
	return nil
}

// TestBucketsFail: an error in any bucket ends the call on all ranks, and returns all
// buffers to the pool.
func TestBucketsFail(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC(), worldtest.SHM()) {
		for _, how := range []string{"cancelled", "closed", "absent"} {
			t.Run(m.Name+"/"+how, func(t *testing.T) {
				t.Parallel()
				m.Require(t)
				moments := []time.Duration{0, 200 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}
				if worldtest.Brief() {
					moments = moments[1:3]
				}
				for _, after := range moments {
					bucketsFail(t, m, how, after)
				}
			})
		}
	}
}

func bucketsFail(t *testing.T, m worldtest.Medium, how string, after time.Duration) {
	const ranks, odd = 3, 1
	w := m.World(t, ranks, nexar.Config{BucketBytes: 100_000})
	comms := w.Comms
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		end := func() { stop(worldtest.ErrCancelled) }
		switch {
		case rank == odd && how == "closed":
			end = func() { c.Close() }
		case rank == odd && how == "absent":
			return c.Close()
		case rank != odd:
			end = func() {}
		}
		time.AfterFunc(after, end)
		var vectors [][]float32
		for i := range 400 { // 30 buckets, more than run at once
			vectors = append(vectors, make([]float32, 1+i*9))
		}
		err := nexar.AllReduceBuckets(ctx, c, vectors, nexar.Sum)
		// The cancellation may have been too late.
		if err != nil && !errors.Is(err, nexar.ErrRevoked) && !errors.Is(err, worldtest.ErrCancelled) && !errors.Is(err, nexar.ErrClosed) && !errors.Is(err, nexar.ErrPeerFailed) {
			return err
		}
		if how == "absent" && (err == nil || !strings.HasPrefix(err.Error(), "nexar: all_reduce_buckets: ") || !strings.Contains(err.Error(), "rank 1 ")) {
			return fmt.Errorf("%v, want an error that names rank 1", err)
		}
		if n := w.PoolInUse(rank); n > 0 {
			return fmt.Errorf("%d buffers were not returned to the pool after the error %w", n, err)
		}
		return nil
	})
}

func TestInvalidBuckets(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{BucketBytes: 64})
	c, ctx := comms[0], t.Context()
	floats := make([]float32, 100)
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"an op that is none", nexar.AllReduceBuckets(ctx, c, [][]float32{nil, floats}, 77), nexar.ErrInvalidOp, "vector 0: "},
		{"an op of integers", nexar.AllReduceBuckets(ctx, c, [][]float32{floats}, nexar.BitAnd), nexar.ErrInvalidOp, "bit_and is not defined for float32"},
		{"an op and no vectors", nexar.AllReduceBuckets[float32](ctx, c, nil, nexar.BitAnd), nexar.ErrInvalidOp, "bit_and is not defined for float32"},
		{"the same vector", nexar.AllReduceBuckets(ctx, c, [][]float32{floats[:3], floats[10:13], floats[:3]}, nexar.Sum), nexar.ErrOverlap, "vectors 0 and 2 share memory"},
		{"parts of a vector", nexar.AllReduceBuckets(ctx, c, [][]float32{floats[10:20], floats[:11], floats[:0]}, nexar.Sum), nexar.ErrOverlap, "vectors 0 and 1 share memory"},
		{"a long one and a part of it", nexar.StartAllReduceBuckets(ctx, c, [][]float32{floats, floats[99:]}, nexar.Sum).Wait(), nexar.ErrOverlap, "vectors 0 and 1 share memory"},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "nexar: all_reduce_buckets: ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want %v and the text %q", test.name, test.err, test.want, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		return nexar.AllReduceBuckets(ctx, c, [][]float32{nil, {}, nil}, nexar.Sum)
	})
	worldtest.CheckWorks(t, comms)
}

// bucketsOf returns a call with vectors of these lengths. The first bucket has first elements.
func bucketsOf(op nexar.Op, first int, lengths ...int) call {
	text := fmt.Sprintf("all_reduce_buckets #2 (%d × float32, %v)", first, op)
	return call{text, func(ctx context.Context, c *nexar.Comm) error {
		var vectors [][]float32
		for _, n := range lengths {
			vectors = append(vectors, make([]float32, n))
		}
		return nexar.AllReduceBuckets(ctx, c, vectors, op)
	}}
}

// TestMismatchOfBuckets: vectors of different lengths or numbers are a mismatch, even if
// their buckets have equal lengths.
func TestMismatchOfBuckets(t *testing.T) {
	for _, calls := range [][2]call{
		{bucketsOf(nexar.Sum, 30, 10, 20), bucketsOf(nexar.Sum, 30, 20, 10)},
		{bucketsOf(nexar.Sum, 30, 10, 20), bucketsOf(nexar.Sum, 30, 10, 0, 20)},
		{bucketsOf(nexar.Sum, 30, 10, 20), bucketsOf(nexar.Sum, 30, 30)},
		{bucketsOf(nexar.Sum, 30, 10, 20), bucketsOf(nexar.Sum, 60, 10, 20, 60)},
		{bucketsOf(nexar.Sum, 60, 10, 50, 50), bucketsOf(nexar.Sum, 60, 10, 50, 50, 50)},
		{bucketsOf(nexar.Sum, 500, 500), bucketsOf(nexar.Sum, 500, 500, 0)},
		{bucketsOf(nexar.Sum, 0), bucketsOf(nexar.Sum, 0, 0)},
		{bucketsOf(nexar.Sum, 0), bucketsOf(nexar.Sum, 10, 10)},
		{bucketsOf(nexar.Sum, 30, 10, 20), bucketsOf(nexar.Max, 30, 10, 20)},
		{bucketsOf(nexar.Sum, 30, 10, 20), allReduceOf[float32](30, nexar.Sum)},
		{bucketsOf(nexar.Sum, 30, 10, 20), barrierCall},
	} {
		for odd := range 2 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", calls[0].text, odd, calls[1].text), func(t *testing.T) {
				t.Parallel()
				mismatch(t, worldtest.Mem(), 3, odd, calls[0], calls[1])
			})
		}
	}
}

// TestBucketsInFlight: the operation owns all vectors until it has ended, including those
// that it has copied.
func TestBucketsInFlight(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{BucketBytes: 400})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	checked := make(chan bool)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		vectors := [][]float32{make([]float32, 10), make([]float32, 20_000), make([]float32, 40), nil, make([]float32, 30)}
		if rank == 1 {
			<-checked
			return cmp.Or(nexar.AllReduceBuckets(ctx, c, vectors, nexar.Sum), nexar.AllReduce(ctx, c, vectors[4], nexar.Sum))
		}
		h := nexar.StartAllReduceBuckets(ctx, c, vectors, nexar.Sum)
		err := inFlight(ctx, c, vectors)
		close(checked)
		return cmp.Or(err, h.Wait(), nexar.StartAllReduce(ctx, c, vectors[4], nexar.Sum).Wait())
	})
	worldtest.CheckWorks(t, comms)
}

// inFlight checks that vectors that are being reduced in buckets cannot be used.
func inFlight(ctx context.Context, c *nexar.Comm, vectors [][]float32) error {
	other := make([]float32, 10)
	for i, v := range vectors {
		if len(v) == 0 {
			continue
		}
		for name, h := range map[string]*nexar.Handle{
			"sent":                nexar.StartSend(ctx, c, v[len(v)/2:], 0, 1),
			"reduced":             nexar.StartAllReduce(ctx, c, v, nexar.Sum),
			"reduced with others": nexar.StartAllReduceBuckets(ctx, c, [][]float32{other, v}, nexar.Sum),
		} {
			if err := h.Wait(); !errors.Is(err, nexar.ErrOverlap) || !strings.Contains(err.Error(), "memory in use by all_reduce_buckets, which is in progress") {
				return fmt.Errorf("vector %d is %s: %w, want ErrOverlap", i, name, err)
			}
		}
	}
	return nil
}

// TestBucketsOverlap: if one of the vectors is in use, no bucket starts.
func TestBucketsOverlap(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{BucketBytes: 400})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	for _, busy := range []int{0, 1, 2, 3} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			vectors := [][]float32{{1}, slices.Repeat([]float32{2}, 20_000), {3}, slices.Repeat([]float32{4}, 20_000)}
			if rank == 0 {
				receiving := nexar.StartRecv(ctx, c, vectors[busy], 1, 0)
				err := nexar.AllReduceBuckets(ctx, c, vectors, nexar.Sum)
				if !errors.Is(err, nexar.ErrOverlap) || !strings.Contains(err.Error(), "memory in use by recv,") {
					return fmt.Errorf("%w, want ErrOverlap with the receive", err)
				}
				if err := nexar.Send(ctx, c, []byte{0}, 1, 0); err != nil {
					return err
				}
				if err := receiving.Wait(); err != nil {
					return err
				}
			} else {
				if _, err := nexar.Recv(ctx, c, make([]byte, 1), 0, 0); err != nil {
					return err
				}
				if err := nexar.Send(ctx, c, vectors[busy], 0, 0); err != nil {
					return err
				}
			}
			if err := nexar.AllReduceBuckets(ctx, c, vectors, nexar.Sum); err != nil {
				return err
			}
			for i, v := range vectors {
				if v[0] != float32(2*(i+1)) || v[len(v)-1] != v[0] {
					return fmt.Errorf("vector %d is %v…%v", i, v[0], v[len(v)-1])
				}
			}
			return nil
		})
	}
}

// TestStartBucketsWaits: StartAllReduceBuckets waits for other ranks only if it has to
// copy more than bucket.Most buckets, and then keeps no more of them in memory.
func TestStartBucketsWaits(t *testing.T) {
	for _, test := range []struct {
		packed, long int // buckets
		waits        bool
	}{
		{0, 1, false},
		{bucket.Most, 0, false},
		{bucket.Most, 3 * bucket.Most, false},
		{bucket.Most + 1, 0, true},
		{2 * bucket.Most, 2, true},
	} {
		t.Run(fmt.Sprintf("%d packed, %d not", test.packed, test.long), func(t *testing.T) {
			w := worldtest.Mem().World(t, 2, nexar.Config{BucketBytes: 400, CollectiveTimeout: worldtest.Patience / 2})
			comms := w.Comms
			ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
			defer cancel()
			var vectors [2][][]float32
			for rank := range vectors {
				for range test.long {
					vectors[rank] = append(vectors[rank], slices.Repeat([]float32{1}, 300))
				}
				for range 2 * test.packed {
					vectors[rank] = append(vectors[rank], slices.Repeat([]float32{1}, 50))
				}
			}
			returned := make(chan *nexar.Handle, 1)
			go func() { returned <- nexar.StartAllReduceBuckets(ctx, comms[0], vectors[0], nexar.Sum) }()
			var h *nexar.Handle
			if test.waits {
				select {
				case <-returned:
					t.Fatal("the call has not waited for the other rank")
				case <-time.After(100 * time.Millisecond):
				}
				for n, end := 0, time.Now().Add(worldtest.Patience); n != bucket.Most; time.Sleep(time.Millisecond) {
					if n = w.PoolInUse(0); n > bucket.Most || time.Now().After(end) {
						t.Fatalf("%d buffers are in use, want %d", n, bucket.Most)
					}
				}
			} else {
				h = <-returned
			}
			if err := nexar.AllReduceBuckets(ctx, comms[1], vectors[1], nexar.Sum); err != nil {
				t.Fatal(err)
			}
			if test.waits {
				h = <-returned
			}
			if err := h.Wait(); err != nil {
				t.Fatal(err)
			}
			for rank := range vectors {
				for i, v := range vectors[rank] {
					if slices.Min(v) != 2 || slices.Max(v) != 2 {
						t.Fatalf("rank %d: vector %d is %v…%v, want 2", rank, i, slices.Min(v), slices.Max(v))
					}
				}
			}
		})
	}
}

// BenchmarkBuckets compares the reduction of 1,000 tensors of 4 KiB in buckets with as
// many all-reduces, and with one all-reduce of a vector of the same total length, which
// is a lower bound. The three run in turn.
func BenchmarkBuckets(b *testing.B) {
	const ranks, tensors, count = 4, 1000, 1024
	for _, m := range worldtest.Media(worldtest.QUIC(), worldtest.Mem(), worldtest.SHM()) {
		b.Run(m.Name, func(b *testing.B) {
			comms := m.Cluster(b, ranks, nexar.Config{})
			long, vectors := make([][]float32, ranks), make([][][]float32, ranks)
			for rank := range ranks {
				long[rank] = make([]float32, tensors*count)
				for range tensors {
					vectors[rank] = append(vectors[rank], make([]float32, count))
				}
			}
			timed := func(times *[]time.Duration, f func(rank int, c *nexar.Comm) error) {
				began := time.Now()
				worldtest.OnAll(b, comms, f)
				*times = append(*times, time.Since(began))
			}
			var separate, buckets, one []time.Duration
			for b.Loop() {
				timed(&separate, func(rank int, c *nexar.Comm) error {
					for _, v := range vectors[rank] {
						if err := nexar.AllReduce(b.Context(), c, v, nexar.Sum); err != nil {
							return err
						}
					}
					return nil
				})
				timed(&buckets, func(rank int, c *nexar.Comm) error {
					return nexar.AllReduceBuckets(b.Context(), c, vectors[rank], nexar.Sum)
				})
				timed(&one, func(rank int, c *nexar.Comm) error { return nexar.AllReduce(b.Context(), c, long[rank], nexar.Sum) })
			}
			for _, times := range [][]time.Duration{separate, buckets, one} {
				slices.Sort(times)
			}
			middle := len(separate) / 2
			b.ReportMetric(float64(separate[middle].Microseconds()), "separate-µs")
			b.ReportMetric(float64(buckets[middle].Microseconds()), "buckets-µs")
			b.ReportMetric(float64(one[middle].Microseconds()), "one-µs")
			b.ReportMetric(float64(separate[middle])/float64(buckets[middle]), "times-faster")
		})
	}
}

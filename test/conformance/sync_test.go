package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A tally is a state that Sync copies by its exported fields.
type tally struct{ Step, Sum int64 }

// A ledger is a state with its own encoding.
type ledger struct {
	Owners map[string]int
	fail   bool
}

func (l *ledger) MarshalBinary() ([]byte, error) {
	if l.fail {
		return nil, errors.New("the ledger is locked")
	}
	return json.Marshal(l)
}

func (l *ledger) UnmarshalBinary(b []byte) error { return json.Unmarshal(b, l) }

// TestSync: all ranks get the state of rank 0, over every medium.
func TestSync(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC(), worldtest.SHMLinks()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			worldtest.OnAll(t, m.Cluster(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
				weights, step, grown := []float32{float32(rank), 2}, int64(10+rank), make([]tally, rank)
				if rank == 0 {
					grown = []tally{{1, 2}, {3, 4}}
				}
				trialGenerator := &ledger{Owners: map[string]int{fmt.Sprint("of ", rank): rank}}
				if rank != 0 {
					trialGenerator.Owners = nil
				}
				for _, state := range []any{weights, &step, &grown, trialGenerator} {
					if err := nexar.Sync(t.Context(), c, state); err != nil {
						return err
					}
				}
				if !slices.Equal(weights, []float32{0, 2}) || step != 10 || !slices.Equal(grown, []tally{{1, 2}, {3, 4}}) || len(trialGenerator.Owners) != 1 || trialGenerator.Owners["of 0"] != 0 {
					return fmt.Errorf("it has %v, %d, %v and %v", weights, step, grown, trialGenerator.Owners)
				}
				return nil
			})
		})
	}
}

// TestSyncInvalid: an invalid state is an error on every rank, at once; if rank 0 cannot
// marshal it, all ranks get the error; and the communicator goes on.
func TestSyncInvalid(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		for _, state := range []any{nil, 3, "text", []string{"a"}, map[int]int{}, (*int)(nil), &struct{ p *int }{}} {
			if err := nexar.Sync(t.Context(), c, state); !errors.Is(err, nexar.ErrInvalidType) {
				return fmt.Errorf("of %T: got error %v, want %v", state, err, nexar.ErrInvalidType)
			}
		}
		err := nexar.Sync(t.Context(), c, &ledger{fail: true})
		if want := map[bool]string{true: "locked", false: "rank 0"}[rank == 0]; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %v, want one with %q", err, want)
		}
		return c.Barrier(t.Context())
	})
}

// TestSyncOfOtherLengths: slices of different lengths are a mismatch, except on rank 0 if
// it has ended before.
func TestSyncOfOtherLengths(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		state := slices.Repeat([]float32{7}, 1+rank)
		err := nexar.Sync(context.Background(), c, state)
		if slices.ContainsFunc(state, func(x float32) bool { return x != 7 }) {
			return fmt.Errorf("the state is %v after %v", state, err)
		}
		if _, ok := errors.AsType[*nexar.MismatchError](err); !ok && (rank != 0 || err != nil) {
			return fmt.Errorf("got error %v, want a MismatchError", err)
		}
		return nil
	})
}

// TestSyncList: lists of slices and of values of several types are copied as a whole, with those
// of other lengths where a pointer or a marshaler allows it, in one bucket and in many.
func TestSyncList(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, room := range []int{16, 1 << 20} {
			t.Run(fmt.Sprint(n, " ranks, buckets of ", room), func(t *testing.T) {
				worldtest.OnAll(t, worldtest.Mem().Cluster(t, n, nexar.Config{BucketBytes: room}), func(rank int, c *nexar.Comm) error {
					return errors.Join(syncLists(t.Context(), c, func(state any) error { return nexar.Sync(t.Context(), c, state) }, 0),
						syncLists(t.Context(), c, func(state any) error { return nexar.BroadcastValues(t.Context(), c, n-1, state.([]any)...) }, n-1))
				})
			})
		}
	}
}

func syncLists(ctx context.Context, c *nexar.Comm, sync func(state any) error, root int) error {
	layers := make([][]float32, 7)
	for i := range layers {
		layers[i] = slices.Repeat([]float32{float32(100*c.Rank() + i)}, i)
	}
	step, grown := int64(c.Rank()), make([]tally, 2*c.Rank())
	owners := &ledger{Owners: map[string]int{"root": c.Rank()}}
	if err := sync([]any{layers, &step, &grown, owners, []byte{byte(c.Rank())}}); err != nil {
		return err
	}
	for i, l := range layers {
		if len(l) != i || i > 0 && (l[0] != float32(100*root+i) || l[i-1] != l[0]) {
			return fmt.Errorf("layer %d: got %v", i, l)
		}
	}
	if step != int64(root) || len(grown) != 2*root || owners.Owners["root"] != root {
		return fmt.Errorf("got %d, %v and %v from root %d", step, grown, owners.Owners, root)
	}
	return c.Barrier(ctx)
}

// TestSyncMarshalPanics: if the source of a Sync panics in MarshalBinary, or if its marshaler
// fails, the other ranks get an error at once, and the communicator goes on.
func TestSyncMarshalPanics(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 3, nexar.Config{CollectiveTimeout: worldtest.Patience}), func(rank int, c *nexar.Comm) (err error) {
		for range 2 {
			func() {
				defer func() {
					if v := recover(); (v != nil) != (rank == 0) {
						err = fmt.Errorf("panic %v", v)
					}
				}()
				got := nexar.Sync(t.Context(), c, []any{[]int{1}, (*ledger)(nil)})
				if got == nil || !strings.Contains(got.Error(), "rank 0 could not marshal its state") || errors.Is(got, context.DeadlineExceeded) {
					err = fmt.Errorf("got error %v", got)
				}
			}()
			if err != nil {
				return err
			}
		}
		return c.Barrier(t.Context())
	})
}

// TestSyncMarshalExits: if MarshalBinary of the source ends its goroutine, the other ranks get
// an error at once.
func TestSyncMarshalExits(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{CollectiveTimeout: worldtest.Patience}), func(rank int, c *nexar.Comm) error {
		result := make(chan error, 1)
		go func() {
			defer close(result)
			result <- nexar.Sync(t.Context(), c, exiting{})
		}()
		err, returned := <-result
		if returned != (rank == 1) || rank == 1 && (!errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), "ended its goroutine")) {
			return fmt.Errorf("got %v, %v", err, returned)
		}
		return nil
	})
}

// exiting is a state with a MarshalBinary that ends its goroutine.
type exiting struct{}

func (exiting) MarshalBinary() ([]byte, error) { runtime.Goexit(); return nil, nil }

func (exiting) UnmarshalBinary([]byte) error { return nil }

// TestBroadcastBuckets: vectors of any length are copied from every root, in one bucket and in
// many, and the vectors of root are not written.
func TestBroadcastBuckets(t *testing.T) {
	for n := 1; n <= 5; n++ {
		for _, room := range []int{16, 1 << 20} {
			worldtest.OnAll(t, worldtest.Mem().Cluster(t, n, nexar.Config{BucketBytes: room}), func(rank int, c *nexar.Comm) error {
				for root := range n {
					vectors := make([][]tally, 20)
					for i := range vectors {
						vectors[i] = slices.Repeat([]tally{{int64(rank), int64(i)}}, i%4)
					}
					if err := nexar.BroadcastBuckets(t.Context(), c, vectors, root); err != nil {
						return err
					}
					for i, v := range vectors {
						if !slices.Equal(v, slices.Repeat([]tally{{int64(root), int64(i)}}, i%4)) {
							return fmt.Errorf("root %d: vector %d is %v", root, i, v)
						}
					}
				}
				return nil
			})
		}
	}
}

// TestBroadcastBucketsInvalid: wrong arguments are errors at once, and different lengths a
// mismatch that names the call.
func TestBroadcastBucketsInvalid(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		x := []int32{1, 2, 3}
		for _, test := range []struct{ err, want error }{
			{nexar.BroadcastBuckets(t.Context(), c, [][]int32{x}, 2), nexar.ErrInvalidRank},
			{nexar.BroadcastBuckets(t.Context(), c, [][]int32{x, x[1:]}, 0), nexar.ErrOverlap},
			{nexar.BroadcastBuckets(t.Context(), c, [][]string{{"x"}}, 0), nexar.ErrInvalidType},
			{nexar.BroadcastValues(t.Context(), c, 0, "x"), nexar.ErrInvalidType},
			{nexar.BroadcastValues(t.Context(), c, -1, x), nexar.ErrInvalidRank},
		} {
			if !errors.Is(test.err, test.want) {
				return fmt.Errorf("got error %v, want %v", test.err, test.want)
			}
		}
		vectors := [][]int32{x[:1+rank], x[1+rank:]}
		err := nexar.BroadcastBuckets(t.Context(), c, vectors, 0)
		if m, ok := errors.AsType[*nexar.MismatchError](err); rank == 1 && (!ok || m.Call.Op != "broadcast_buckets" || !strings.Contains(err.Error(), "lengths of their vectors")) {
			return fmt.Errorf("got error %v, want a MismatchError of broadcast_buckets", err)
		}
		return nil
	})
}

//race:none it starts no goroutine

package bucket

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/internal/bufpool"
)

// A doubling is an operation that doubles a vector in Wait.
type doubling struct {
	v   []int32
	err error
}

func (d *doubling) Wait() error {
	if d.err == nil {
		for i := range d.v {
			d.v[i] *= 2
		}
		d.v = nil
	}
	return d.err
}

func newPool(t testing.TB) *bufpool.Pool {
	t.Helper()
	pool, err := bufpool.New(bufpool.Inference())
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// TestPacker: for any lengths, the operation applies to all vectors, in few buckets, with a
// limited number under way.
func TestPacker(t *testing.T) {
	pool := newPool(t)
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 40), 0, 60).Draw(r, "lengths")
		vectors, want, total := make([][]int32, len(lengths)), make([][]int32, len(lengths)), 0
		for i, n := range lengths {
			for k := range n {
				vectors[i] = append(vectors[i], int32(i*100+k))
				want[i] = append(want[i], int32(i*100+k)*2)
			}
			total += n
		}
		next := 0
		p := Packer[int32]{Room: rapid.IntRange(1, 50).Draw(r, "room"), Pool: pool, Blocks: true}
		p.Begin = func(number int, v []int32) Waiter {
			if number != next {
				r.Fatalf("bucket %d after %d", number, next-1)
			}
			next++
			if len(v) > max(p.Room, 40) {
				r.Fatalf("a bucket of %d elements", len(v))
			}
			return &doubling{v: v}
		}
		p.AddAll(vectors)
		if len(p.started) > Most || next == 0 {
			r.Fatalf("%d of %d buckets are under way", len(p.started), next)
		}
		if err := p.Wait(); err != nil {
			r.Fatal(err)
		}
		if !slices.EqualFunc(vectors, want, slices.Equal) {
			r.Fatalf("got %v, want %v", vectors, want)
		}
		if most := 2*total/p.Room + 2; next > most+len(lengths) {
			r.Fatalf("%d buckets for %d elements", next, total)
		}
	})
}

// TestPackerFails: Wait returns the first error and waits for all buckets. Vectors of later
// buckets are unchanged.
func TestPackerFails(t *testing.T) {
	errFailed := errors.New("no")
	var waits int
	p := Packer[int32]{Room: 2, Pool: newPool(t)}
	p.Begin = func(number int, v []int32) Waiter {
		waits++
		if number == 1 {
			return &doubling{err: errFailed}
		}
		return &doubling{v: v}
	}
	vectors := [][]int32{{1}, {2}, {3}, {4}, {5}}
	p.AddAll(vectors)
	if err := p.Wait(); err != errFailed || waits != 3 {
		t.Errorf("got %v after %d buckets", err, waits)
	}
	if !slices.EqualFunc(vectors, [][]int32{{2}, {4}, {3}, {4}, {5}}, slices.Equal) {
		t.Errorf("got %v", vectors)
	}
}

// TestPackerCopies: vectors that the operation only reads are not written, and those that it only
// writes are not read.
func TestPackerCopies(t *testing.T) {
	for _, writeOnly := range []bool{false, true} {
		v := []int32{1, 2}
		var packed []int32
		p := Packer[int32]{Room: 8, Pool: newPool(t), ReadOnly: !writeOnly, WriteOnly: writeOnly}
		p.Begin = func(_ int, v []int32) Waiter {
			packed = v
			if writeOnly {
				v[0], v[1] = 5, 6
			}
			return &doubling{v: v}
		}
		p.AddAll([][]int32{v, {0, 0}})
		if !writeOnly && !slices.Equal(packed, []int32{1, 2, 0, 0}) {
			t.Errorf("packed %v", packed)
		}
		want := []int32{1, 2}
		if writeOnly {
			want = []int32{10, 12}
		}
		if err := p.Wait(); err != nil || !slices.Equal(v, want) {
			t.Errorf("write only %v: got %v, %v, want %v", writeOnly, v, err, want)
		}
	}
}

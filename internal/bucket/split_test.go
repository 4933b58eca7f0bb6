package bucket

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A seen operation records the first elements of the vectors of a bucket.
type seen struct{}

func (seen) Wait() error { return nil }

// TestSplit: the buckets are those of a Packer, in the same order.
func TestSplit(t *testing.T) {
	pool := newPool(t)
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 40), 0, 60).Draw(r, "lengths")
		room := rapid.IntRange(1, 50).Draw(r, "room")
		vectors := make([][]int32, len(lengths))
		for i, n := range lengths {
			vectors[i] = slices.Repeat([]int32{int32(i)}, n)
		}
		var want [][]int
		p := Packer[int32]{Room: room, Pool: pool, Begin: func(number int, v []int32) Waiter {
			var list []int
			for _, i := range slices.Compact(slices.Clone(v)) {
				list = append(list, int(i))
			}
			if number != len(want) {
				r.Fatalf("bucket %d has number %d", len(want), number)
			}
			want = append(want, list)
			return seen{}
		}}
		p.AddAll(vectors)
		if err := p.Wait(); err != nil {
			r.Fatal(err)
		}
		if got := Split(lengths, room); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
			r.Errorf("lengths %v, room %d: %v, want %v", lengths, room, got, want)
		}
	})
}

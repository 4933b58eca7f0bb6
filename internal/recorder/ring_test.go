package recorder

import "testing"

func TestRing(t *testing.T) {
	for _, puts := range []int{0, 1, Length - 1, Length, Length + 1, 3*Length + 7} {
		var r Ring[int]
		for i := range puts {
			*r.Put() = i
		}
		next := max(0, puts-Length)
		r.Each(func(v *int) {
			if *v != next {
				t.Fatalf("after %d: %d, want %d", puts, *v, next)
			}
			next++
		})
		if next != puts {
			t.Errorf("after %d the last is %d", puts, next-1)
		}
	}
}

func TestRingAllocations(t *testing.T) {
	var r Ring[[9]int]
	for range Length {
		r.Put()
	}
	if n := testing.AllocsPerRun(1000, func() { r.Put()[0]++ }); n > 0 {
		t.Errorf("%v allocations for each value of a full ring, want none", n)
	}
}

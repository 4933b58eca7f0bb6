package api

import (
	"testing"

	"github.com/nexar-go/nexar"
)

func TestAllocRegistered(t *testing.T) {
	v, free, err := nexar.AllocRegistered[float64](1000)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	if len(v) != 1000 || v[0] != 0 || v[999] != 0 {
		t.Errorf("%d elements, the first %v and the last %v; want 1000 zeros", len(v), v[0], v[len(v)-1])
	}
	for _, n := range []int{0, -1, int(^uint(0) >> 1)} {
		if _, _, err := nexar.AllocRegistered[float64](n); err == nil {
			t.Errorf("AllocRegistered(%d) succeeds", n)
		}
	}
}

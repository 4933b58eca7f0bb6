package plan

import "testing"

// TestSwingDistances: in one dimension a rank exchanges at distances that add up to two thirds of those of
// recursive doubling, and on a torus with neighbors in every dimension first.
func TestSwingDistances(t *testing.T) {
	t.Parallel()
	const size = 1024
	line := swingOf(size, 1)
	sum := 0
	for k, want := range []int{1, 1, 3, 5, 11, 21, 43, 85, 171, 341} {
		peer, _ := line.exchange(100, 0, k)
		if got := min(mod(peer-100, size), mod(100-peer, size)); got != want {
			t.Errorf("step %d is over a distance of %d, want %d", k, got, want)
		}
		sum += want
	}
	if 3*sum > 2*size {
		t.Errorf("all steps are over a distance of %d", sum)
	}
	torus := swingOf(size, 3) // 8x8x16
	for part := range torus.parts() {
		strides := make(map[int]bool)
		for k := range 3 {
			peer, _ := torus.exchange(100, part, k)
			strides[min(mod(peer-100, size), mod(100-peer, size))] = true
		}
		if !strides[1] || !strides[16] || !strides[128] {
			t.Errorf("part %d begins with members at %v", part, strides)
		}
	}
}

// TestSwingUsesAllLinks: in the first round of a torus a member has a peer in every direction.
func TestSwingUsesAllLinks(t *testing.T) {
	t.Parallel()
	for dimensions := 1; dimensions <= 3; dimensions++ {
		s := swingOf(512, dimensions)
		peers := make(map[int]bool)
		for part := range s.parts() {
			peer, _ := s.exchange(300, part, 0)
			peers[peer] = true
		}
		if len(peers) != 2*dimensions {
			t.Errorf("%d dimensions: the first round has peers %v", dimensions, peers)
		}
	}
}

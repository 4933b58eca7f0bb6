package negotiate

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/spin"
)

// TestProcessors: ranks that are bound to a processor each have as many processors as ranks; those that share one do not.
func TestProcessors(t *testing.T) {
	type set [2]uint16 // the first processor, and how many
	for _, test := range []struct {
		name string
		sets []set
		want int
	}{
		{"all on all", []set{{0, 2}, {0, 2}}, 2},
		{"more processors than ranks", []set{{0, 64}, {0, 64}}, 64},
		{"more ranks than processors", []set{{0, 2}, {0, 2}, {0, 2}, {0, 2}, {0, 2}}, 2},
		{"one each", []set{{0, 1}, {1, 1}}, 2},
		{"one each, apart", []set{{0, 1}, {64, 1}, {3, 1}, {99, 1}}, 4},
		{"both on one", []set{{5, 1}, {5, 1}}, 1},
		{"two on each", []set{{0, 1}, {0, 1}, {1, 1}, {1, 1}}, 2},
		{"half of the host each", []set{{0, 4}, {4, 4}}, 8},
		{"one bound, one free", []set{{0, 1}, {0, 2}}, 2},
		{"three on one, one free", []set{{0, 1}, {0, 1}, {0, 1}, {0, 4}}, 1},
		{"more ranks than processors in one half", []set{{0, 2}, {0, 2}, {0, 2}, {2, 2}}, 2},
		{"overlapping", []set{{0, 2}, {1, 2}, {2, 2}}, 4},
		{"unknown", []set{{0, 0}, {0, 0}}, 1},
	} {
		for range test.sets {
			var profiles []profile
			for _, s := range test.sets {
				profiles = append(profiles, profile{First: s[0], Count: s[1]})
			}
			if got := processors(profiles); got != test.want {
				t.Errorf("%s: %d processors for %v, want %d", test.name, got, test.sets, test.want)
			}
			test.sets = append(test.sets[1:], test.sets[0])
		}
	}
	if own, want := newProfiles(1, 3, 0)[1], uint16(shmexec.Processors()); own.Count != want || int(own.First) != spin.First() {
		t.Errorf("the own processors are %+v, want %d from number %d on", own, want, spin.First())
	}
}

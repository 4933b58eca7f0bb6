package negotiate

import (
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/plan"
)

// TestDomainBallot: the maximum of the ballots of all ranks has the domain of each, and more ranks than
// can share memory have no ballot.
func TestDomainBallot(t *testing.T) {
	const size = 40
	all := make([]uint8, domainBytes*size)
	for rank := range size {
		for i, b := range domainBallot(rank, size) {
			all[i] = max(all[i], b)
		}
	}
	want := make([]int, size)
	for rank := range want {
		want[rank] = int(host.Domain())
	}
	for _, h := range []plan.Hosts{groups(all), plan.GroupsWithin(want)} {
		if h.Size() != size || h.Count() != plan.Groups(size).Count() {
			t.Errorf("%d groups of %d ranks", h.Count(), h.Size())
		}
	}
	// Ranks 0 to 19 and 20 to 39 are in two domains.
	for rank := range size {
		all[domainBytes*rank], all[domainBytes*rank+1] = 1, uint8(rank/20)
	}
	if h := groups(all); h.Same(19, 20) || !h.Same(0, 1) {
		t.Errorf("groups of two domains: %v", h)
	}
	if b := domainBallot(0, cost.SharedRanksMax+1); !slices.Equal(b, nil) {
		t.Errorf("a ballot of %d bytes, want none", len(b))
	}
}

package negotiate

import (
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// TestAgree: all ranks get the maximum of each number of the ballots, and the profile of each rank.
func TestAgree(t *testing.T) {
	const size = 3
	w := unsharedWorld(t, size)
	members := make([]*member, size)
	for rank := range members {
		members[rank] = w.member(1, ranks(size), rank, transport.ClassMemory, nil)
		defer members[rank].Comm.Close()
		defer members[rank].Control.Close()
	}
	known := LinkModel{transport.ClassQUIC, cost.Links{Delay: 1e-6, Work: 1.5, Byte: 2}}
	requireNoError(t, w.each(func(rank int) error {
		p := members[rank]
		n := negotiator{comm: p.Control, selector: p.Selector}
		b := ballot{Paths: paths{Level: uint8(rank)}, Crowd: uint8(7 - rank)}
		b.Parts[rank] = 5
		if rank == 1 {
			b.Known = known
		}
		profiles := newProfiles(rank, size, uint64(rank+1)<<40)
		err := n.agree(t.Context(), &b, profiles)
		want := ballot{Paths: paths{Level: size - 1}, Crowd: 7, Known: known}
		want.Parts[0], want.Parts[1], want.Parts[2] = 5, 5, 5
		if b != want {
			t.Errorf("rank %d: agreed on %+v, want %+v", rank, b, want)
		}
		for r, s := range profiles {
			if own := newProfiles(r, size, uint64(r+1)<<40); s != own[r] {
				t.Errorf("rank %d: the profile of rank %d is %+v, want %+v", rank, r, s, own[r])
			}
		}
		return err
	}))
}

// TestGroups: ranks in one domain are in groups of it.
func TestGroups(t *testing.T) {
	const size = 40
	profiles := make([]profile, size)
	for rank := range size {
		profiles[rank].Domain = 256 + uint16(rank/20)
	}
	if h := groups(profiles); h.Same(19, 20) || !h.Same(0, 1) {
		t.Errorf("groups of two domains: %v", h)
	}
	for rank := range profiles {
		profiles[rank].Domain = newProfiles(rank, size, 0)[rank].Domain
	}
	if h := groups(profiles); profiles[0].Domain != host.Domain() || h.Size() != size || h.Count() != plan.Groups(size).Count() {
		t.Errorf("%d groups of %d ranks in domain %d", h.Count(), h.Size(), profiles[0].Domain)
	}
	if s := newProfiles(0, cost.SharedRanksMax+1, 0); s != nil {
		t.Errorf("%d profiles for more ranks than can share memory, want none", len(s))
	}
}

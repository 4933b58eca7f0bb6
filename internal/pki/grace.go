package pki

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// An expiryPolicy says which expired certificates a node accepts. Without a seed no certificate is renewed, so
// members of the newest view accept expired certificates of each other for a while.
type expiryPolicy struct {
	members []membership.NodeID // of the newest view
	viewed  time.Time           // when the node got that view, which the CA had signed before
	silent  time.Time           // since then no seed answers; zero: one does
	grace   time.Duration
}

// check returns nil if this node accepts a certificate at a time after its expiry, and otherwise the
// reason against it. The NodeID is the hash of the key in the certificate, so only the keys of members are
// accepted. A certificate that expired while a seed answered is refused: its node could have renewed it,
// unless the seeds had removed it from the world.
func (p expiryPolicy) check(l leaf, now time.Time) error {
	switch {
	case p.silent.IsZero():
		return errors.New("a seed answers this node, so the peer must renew its certificate there")
	case !slices.Contains(p.members, l.id):
		return fmt.Errorf("node %v is not in the newest view of this node", l.id)
	case l.to.Before(p.viewed):
		return fmt.Errorf("it expired before the newest view, of %s", p.viewed.Format(time.RFC3339))
	case l.to.Before(p.silent):
		return fmt.Errorf("it expired before %s, until when a seed answered this node", p.silent.Format(time.RFC3339))
	case now.Sub(l.to) > p.grace:
		return fmt.Errorf("no seed has answered since %s, and members accept each other's certificates only for %v longer (NEXAR_CERTIFICATE_GRACE_SECS)",
			p.silent.Format(time.RFC3339), p.grace)
	}
	return nil
}

// SetGrace sets the time for which this node accepts expired certificates of members while no seed answers.
func (i *Identity) SetGrace(d time.Duration) {
	i.peers.change(func(p *expiryPolicy) { p.grace = max(d, 0) })
}

// SetMembers sets the members of the newest view.
func (i *Identity) SetMembers(view membership.View) {
	ids := make([]membership.NodeID, view.Size())
	for k, n := range view.Nodes {
		ids[k] = n.ID
	}
	i.peers.change(func(p *expiryPolicy) { p.members, p.viewed = ids, i.now() })
}

// SeedSilent says that no seed answers from now on.
func (i *Identity) SeedSilent() { i.peers.change(func(p *expiryPolicy) { p.silent = i.now() }) }

// SeedAnswers says that a seed answers from now on. Until then, a new Identity takes it that one does.
func (i *Identity) SeedAnswers() { i.peers.change(func(p *expiryPolicy) { p.silent = time.Time{} }) }

func (v *verifier) change(f func(*expiryPolicy)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(&v.expired)
}

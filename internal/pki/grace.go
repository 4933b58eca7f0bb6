package pki

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// CertificateGrace is the default time for which members accept expired certificates of each other.
const CertificateGrace = 24 * time.Hour

// A witness is what a node knows about the members of its world and about the seeds. Without a seed no
// certificate is renewed, so members of the newest view accept expired certificates of each other for a while.
type witness struct {
	members []membership.NodeID // of the newest view
	viewed  time.Time           // when the node got that view, which the CA had signed before
	silent  time.Time           // since then no seed answers; zero: one does
	grace   time.Duration
}

// accept returns nil if this node accepts a certificate at a time after its expiry, and otherwise the
// reason against it. The NodeID is the hash of the key in the certificate, so only the keys of members are
// accepted. A certificate that expired while a seed answered is refused: its node could have renewed it,
// unless the seeds had put it out.
func (w witness) accept(l leaf, now time.Time) error {
	switch {
	case w.silent.IsZero():
		return errors.New("a seed answers this node, so the peer must renew its certificate there")
	case !slices.Contains(w.members, l.id):
		return fmt.Errorf("node %v is not in the newest view of this node", l.id)
	case l.to.Before(w.viewed):
		return fmt.Errorf("it expired before the newest view, of %s", w.viewed.Format(time.RFC3339))
	case l.to.Before(w.silent):
		return fmt.Errorf("it expired before %s, until when a seed answered this node", w.silent.Format(time.RFC3339))
	case now.Sub(l.to) > w.grace:
		return fmt.Errorf("no seed has answered since %s, and members accept each other's certificates only for %v longer (NEXAR_CERTIFICATE_GRACE_SECS)",
			w.silent.Format(time.RFC3339), w.grace)
	}
	return nil
}

// SetGrace sets the time for which this node accepts expired certificates of members while no seed answers.
func (i *Identity) SetGrace(d time.Duration) {
	i.peers.change(func(w *witness) { w.grace = max(d, 0) })
}

// SetMembers sets the members of the newest view.
func (i *Identity) SetMembers(view membership.View) {
	ids := make([]membership.NodeID, view.Size())
	for k, n := range view.Nodes {
		ids[k] = n.ID
	}
	i.peers.change(func(w *witness) { w.members, w.viewed = ids, i.now() })
}

// SeedSilent says that no seed answers from now on.
func (i *Identity) SeedSilent() { i.peers.change(func(w *witness) { w.silent = i.now() }) }

// SeedAnswers says that a seed answers from now on. Until then, a new Identity takes it that one does.
func (i *Identity) SeedAnswers() { i.peers.change(func(w *witness) { w.silent = time.Time{} }) }

func (v *verifier) change(f func(*witness)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f(&v.witness)
}

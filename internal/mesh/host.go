package mesh

import (
	"bytes"
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// LinkHost waits until this node is linked to all nodes of v, all on its host, so that
// they can share memory over the links. All of them call LinkHost, and of two nodes the one with the larger NodeID
// dials. LinkHost does nothing if a node has no path for a host in common with this one. A link
// that ends meanwhile is no error.
func (m *Mesh) LinkHost(ctx context.Context, v membership.View) error {
	var pending membership.View
	var links []*link.Link // to its nodes
	m.mu.Lock()
	for _, p := range m.peersInLocked(v) {
		if p.isPending() {
			pending.Nodes, links = append(pending.Nodes, *p.node), append(links, p.link)
		}
	}
	m.mu.Unlock()
	if !m.reach.IsHost(pending) {
		return nil
	}
	for i, l := range links {
		if bytes.Compare(m.cfg.Self[:], pending.Nodes[i].ID[:]) > 0 {
			l.Need(link.Memory)
		}
	}
	late := time.AfterFunc(lateAfter, func() {
		for _, l := range links {
			l.Need(link.Memory)
		}
	})
	defer late.Stop()
	for _, l := range links {
		select {
		case <-l.Settled():
		case <-l.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

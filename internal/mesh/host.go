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
	links := m.pendingOfHost(v)
	for id, l := range links {
		if bytes.Compare(m.cfg.Self[:], id[:]) > 0 {
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

// pendingOfHost returns the pending links to the nodes of a view, or none if this node has no path
// for a host in common with one of them.
func (m *Mesh) pendingOfHost(v membership.View) map[membership.NodeID]*link.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	links := make(map[membership.NodeID]*link.Link)
	for _, p := range m.peersInLocked(v) {
		if !p.isPending() {
			continue
		}
		if r, ok := m.reach.expectedRoute(p.node); !ok || !r.path.isLocal() {
			return nil
		}
		links[p.node.ID] = p.link
	}
	return links
}

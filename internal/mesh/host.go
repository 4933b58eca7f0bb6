package mesh

import (
	"bytes"
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// hostPaths returns the first paths that this node dials to the other nodes of a view, or nil if a path is
// not for a host.
func (m *Mesh) hostPaths(v membership.View) (paths []*Path) {
	here := m.cfg.host()
	if v.Size() > 1 {
		paths = make([]*Path, 0, v.Size())
	}
	var last expectedPath
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.ID == m.cfg.Self {
			continue
		}
		near := m.isNear(n.ID)
		if last.isLike(n, near) {
			paths = append(paths, paths[len(paths)-1])
			continue
		}
		r, ok := m.expectedRoute(here, *n)
		if !ok || !r.path.isLocal() {
			return nil
		}
		last = expectedPath{node: n, near: near}
		paths = append(paths, r.path)
	}
	return paths
}

// IsHost reports whether this node has a path for a host in common with all other nodes of a view.
func (m *Mesh) IsHost(v membership.View) bool { return m.hostPaths(v) != nil }

// HostMemory returns the transport that attaches the areas of the other nodes of a view without links, or nil if
// they do not have one in common with this node.
func (m *Mesh) HostMemory(v membership.View) transport.HostMemory {
	paths := m.hostPaths(v)
	for _, p := range paths {
		if p != paths[0] {
			return nil
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return paths[0].capabilities().HostMemory
}

// SharedBytes returns the length of the areas of this node that others of its host can read.
func (m *Mesh) SharedBytes() (n int64) {
	for i := range m.cfg.Paths {
		if h := m.cfg.Paths[i].capabilities().HostMemory; h != nil {
			count, size := h.Areas()
			n += int64(count) * int64(size)
		}
	}
	return n
}

// hostMemoryOf returns the transport that attaches the areas of a node, or nil.
func (m *Mesh) hostMemoryOf(n membership.Node) transport.HostMemory {
	return m.HostMemory(membership.View{Nodes: []membership.Node{n}})
}

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
	here, links := m.peers[m.self].node.Host, make(map[membership.NodeID]*link.Link)
	for _, n := range v.Nodes {
		slot, ok := m.slotOfLocked(n.ID)
		if !ok || !m.peers[slot].isPending() {
			continue
		}
		if r, ok := m.expectedRoute(here, n); !ok || !r.path.isLocal() {
			return nil
		}
		links[n.ID] = m.peers[slot].link
	}
	return links
}

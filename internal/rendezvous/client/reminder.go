package client

import (
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
)

// linksNamedMax is the maximum number of nodes that a warning of missing connections names.
const linksNamedMax = 10

// setProgress records the number of nodes for the next view, or logs which nodes are missing.
func (s *Session) setProgress(m wire.JoinProgress) {
	if m.Waited > 0 {
		s.warnForming(m)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.formed {
		s.progress = membership.Progress(m)
		s.notifyLocked()
		s.log.Info("waiting for the world", "joined", m.Joined, "world", m.World)
		return
	}
	s.log.Warn("world has too few nodes, and waits for others", "nodes", m.Joined, "least", m.World)
	s.tooSmall = &m
}

// warnForming warns that the world is still forming. The seed asks one node of each host for it.
func (s *Session) warnForming(m wire.JoinProgress) {
	s.mu.Lock()
	formed, isFull, unlinked := s.formed || s.invited.Number > 0, s.hasViewLocked(), s.unlinked
	s.mu.Unlock()
	attrs := []any{"waited", time.Duration(m.Waited) * time.Millisecond, "world", m.World, "seed", s.Seed()}
	names := ""
	if unlinked != nil {
		names = unlinked()
	}
	switch {
	case formed:
	case !isFull:
		s.log.Warn("world is still forming", append(attrs, "joined", m.Joined, "missing", membership.Progress(m).Missing())...)
	case names != "":
		s.log.Warn("world is still forming: this node waits for connections", append(attrs, "missing", names)...)
	default:
		m.Joined = m.World - m.Joined
		s.log.Warn("world is still forming: this node has its connections, other nodes wait for theirs", append(attrs, "waiting", membership.Progress(m).Names())...)
	}
}

// warnWaiting warns that the world has formed without this node. It does not warn a spare, which may wait for long.
func (s *Session) warnWaiting(waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.invited.Number > 0 && !s.formed && !s.req.Spare {
		s.log.Warn("world has formed without this node, which waits until all nodes of the world call Reconfigure or there is room in it",
			"waited", waited, "nodes", s.invited.World, "seed", s.seed)
	}
}

// WarnOfLinks lets warnings, until stop, name the nodes of v that have no connection to this one. missing returns their ranks. The
// nodes are in the view that forms, or in an invitation: only the invited node warns of that.
func (s *Session) WarnOfLinks(v membership.View, missing func() []int) (stop func()) {
	names := func() string {
		ranks := missing()
		var names []string
		for _, rank := range ranks[:min(len(ranks), linksNamedMax)] {
			names = append(names, fmt.Sprintf("rank %d %v", rank, v.Nodes[rank]))
		}
		if more := len(ranks) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		return strings.Join(names, ", ")
	}
	set := func(f func() string) (invited bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unlinked = f
		return s.invited.Number > 0
	}
	if !set(names) {
		return func() { set(nil) }
	}
	return wake.Remind(wake.RemindAfter, func(waited time.Duration) {
		if names := names(); names != "" {
			s.log.Warn("world has formed, and this node waits for connections to it", "waited", waited, "missing", names, "seed", s.Seed())
		}
	}).Stop
}

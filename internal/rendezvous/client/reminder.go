package client

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// remindAfter is the wait before the first warning of a node. The pause between two
	// warnings doubles from remindAfter to remindMax.
	remindAfter = 3 * time.Second
	remindMax   = time.Minute
	// linksNamedMax is the maximum number of nodes that a warning of missing connections names.
	linksNamedMax = 10
)

// A reminder calls a function at growing intervals until it is stopped.
type reminder struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// remind starts a reminder. f gets the time since the start, and must not block.
func remind(f func(waited time.Duration)) *reminder {
	r := &reminder{}
	start, pause := time.Now(), remindAfter
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(pause, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stopped {
			return
		}
		f(time.Since(start).Round(100 * time.Millisecond))
		pause = min(2*pause, remindMax)
		r.timer.Reset(pause)
	})
	return r
}

// stop ends the reminder. f does not run afterwards.
func (r *reminder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.timer.Stop()
}

// warnWaiting warns that the world is still forming, or has formed without this node. It does not warn a
// spare, which may wait for long.
func (s *Session) warnWaiting(waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.progress
	switch {
	case s.formed, s.req.Spare:
	case s.invited.Number > 0:
		s.log.Warn("world has formed without this node, which waits until all nodes of the world call Reconfigure or there is room in it",
			"waited", waited, "nodes", s.invited.World, "seed", s.seed)
	case s.hasViewLocked():
		s.log.Warn("world is still forming: this node has its connections, other nodes wait for theirs", "waited", waited, "world", s.World, "seed", s.seed)
	case int(p.Joined) < s.World:
		p.World = uint32(s.World)
		s.log.Warn("world is still forming", "waited", waited, "joined", p.Joined, "world", s.World, "missing", p.Missing(), "seed", s.seed)
	}
}

// WarnOfLinks warns at growing intervals, until stop, of the nodes of v that have no connection to this one.
// missing returns their ranks. The nodes are in the view that forms, or in an invitation.
func (s *Session) WarnOfLinks(v membership.View, missing func() []int) (stop func()) {
	return remind(func(waited time.Duration) {
		ranks := missing()
		if len(ranks) == 0 {
			return
		}
		var names []string
		for _, rank := range ranks[:min(len(ranks), linksNamedMax)] {
			names = append(names, fmt.Sprintf("rank %d %v", rank, v.Nodes[rank]))
		}
		if more := len(ranks) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		text := "world is still forming: this node waits for connections"
		if s.invited.Number > 0 {
			text = "world has formed, and this node waits for connections to it"
		}
		s.log.Warn(text, "waited", waited, "missing", strings.Join(names, ", "), "seed", s.seed)
	}).stop
}

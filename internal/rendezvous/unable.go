package rendezvous

import (
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// unable handles the report of a node that it has lost another one, or
// has read its goodbye. A node that left has told the seed which led then,
// and has no conn to this one; a node that has a conn speaks for itself. The lock
// is held.
func (s *Server) unable(now time.Time, by membership.NodeID, m wire.JoinUnable) {
	switch {
	case !m.Left:
		s.lost(now, by, m.Peer, m.Text)
	case s.guests[m.Peer] == nil:
		s.arbiter.Gone(now, m.Peer, true, "it left")
	}
}

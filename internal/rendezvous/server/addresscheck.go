package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// addressChecksMax bounds the address checks at a time. A node that listens answers within milliseconds, so that
	// nodes with wrong addresses hardly delay others.
	addressChecksMax = 64
)

// checkAddresses dials the addresses that a node advertises. The error, of an address at which the node is
// not reached, has both that address and the one that the seed observes.
func (s *Server) checkAddresses(node membership.Node, observed string) error {
	if s.cfg.CheckAddress == nil {
		return nil
	}
	select {
	case s.addressChecks <- struct{}{}:
	case <-s.ctx.Done():
		return handshake.ErrClosed
	}
	defer func() { <-s.addressChecks }()
	ctx, cancel := context.WithTimeout(s.ctx, handshake.ReachTimeout)
	defer cancel()
	var failed []string
	for _, addr := range node.Addrs {
		err := s.cfg.CheckAddress(ctx, eyeballs.WithZone(addr, observed), node)
		if err == nil {
			return nil
		}
		failed = append(failed, fmt.Sprintf("%s (%v)", addr, err))
	}
	return handshake.Refuse(wire.RefusedAddress,
		"the node is not reached at its advertised address %s; the seed sees it at %s: correct NEXAR_ADVERTISE, or set NEXAR_ADVERTISE_UNCHECKED=1 if only other nodes can reach it: %w",
		strings.Join(failed, ", "), observed, membership.ErrAddress)
}

// refusal returns why a node that joins for the first time would be refused, or nil.
func (s *Server) refusal(c *nodeConn) (err error) {
	l, r, id := s.state.leader, &s.state.cluster, c.node.ID
	switch {
	case l == nil || l.ending && l.form.Phase() < membership.Failed:
		return handshake.Refuse(wire.RefusedBusy, "the leader, or the world, is changing")
	case r.Over && l.form.Phase() < membership.Failed:
		err = fmt.Errorf("%w: the world is over", membership.ErrOver)
	case l.nodes[id] != nil || r.state.Knows(id):
		err = fmt.Errorf("node %v: %w", id, membership.ErrReused)
	case s.hasLostItsPlace(c):
		err = fmt.Errorf("%w: %s runs on another host now", membership.ErrOver, c.node.Place)
	case s.isDeserted():
		return handshake.Refuse(wire.RefusedBusy, "it waits up to %v for the nodes of the world in its state", s.lim.Return)
	case !s.hasTopology(c.topology):
		err = s.otherTopology(c.topology)
	case s.enqueues(l, c):
		err = l.pending.Refuse(c.node, c.late, c.spare)
		if err == nil && !c.spare { // Spares replace nodes up to the initial size.
			err = s.tooLarge(c.topology, true)
		}
	default:
		if err = l.form.Refuse(c.node, c.wanted); err == nil {
			err = s.tooLarge(c.topology, false)
		}
	}
	if err == nil {
		return nil
	}
	isTaken := errors.Is(err, membership.ErrRank) || errors.Is(err, membership.ErrFull) || errors.Is(err, membership.ErrOver) && !r.Over
	for _, other := range l.nodes {
		if isTaken && c.process != "" && c.process == other.process && c.node.Host == other.node.Host {
			err = fmt.Errorf("%w. This is the second Join of process %s, which is a node already: use that Node, or Close it before; nexar.Local makes several ranks in a process", err, c.node.Name)
			break
		}
		if isTaken && c.node.Succeeds(other.node) {
			err = fmt.Errorf("%w. %v is the process before this one, and still runs: it has the place %s of this one in the world", err, other.node, c.node.Place)
		}
	}
	return handshake.RefusalOf(err)
}

// hasLostItsPlace reports whether a node was in the world before, on the same host, and another one has taken its place.
func (s *Server) hasLostItsPlace(c *nodeConn) bool {
	was := false
	for _, d := range s.state.cluster.Gone {
		was = was || d.Place == c.node.Place && d.Host == c.node.Host
	}
	return was && slices.ContainsFunc(slices.Collect(maps.Values(s.state.leader.nodes)), func(o *nodeConn) bool { return c.node.Succeeds(o.node) })
}

// enqueues reports whether a node becomes a pending join in place of a member of a world that forms.
func (s *Server) enqueues(l *leader, c *nodeConn) bool {
	phase := l.form.Phase()
	return phase < membership.Failed && (c.spare || phase > membership.Gathering && s.cfg.Elastic || phase == membership.Formed)
}

// verify makes the checks of a node that precede its registration: it refuses the node early, and
// checks its advertised addresses. The node listens once it has been sent admitted.
func (s *Server) verify(c *nodeConn, req wire.JoinRequest, admitted wire.JoinAdmitted) (err error) {
	if !s.call(func() { err = s.refusal(c) }) {
		err = handshake.ErrClosed
	}
	if err != nil {
		return err
	}
	if err := c.Write(time.Now().Add(s.lim.Write), admitted); err != nil {
		return err
	}
	if len(req.Advertised) == 0 || !req.CheckAddress {
		return nil
	}
	return s.checkAddresses(c.node, admitted.Observed)
}

// answerTrial sends a node that has passed all checks the progress of the world, and does not
// admit it.
func (s *Server) answerTrial(c *nodeConn) {
	m := wire.JoinProgress{World: uint32(s.cfg.World)}
	s.read(func() {
		if s.state.leader != nil {
			m = s.progress()
		}
	})
	s.log.Debug("a node has tried to join", "node", c.node.ID, "addr", c.node.Addrs[0], "name", c.node.Name)
	c.WriteLast(s.ctx, s.lim.Linger, m)
}

package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// joiningTimeout bounds the time to link this node to the other joining nodes.
const joiningTimeout = 2 * time.Second

// form makes the links that this node needs at once: it links this node to itself, dials the slots
// before it, and accepts connections from those behind it.
func (m *Mesh) form(ctx context.Context) error {
	if err := m.linkSelf(ctx); err != nil {
		return err
	}
	for i := range m.cfg.Paths {
		m.wg.Go(func() { m.acceptor.accept(&m.cfg.Paths[i]) })
	}
	dialing, waiting, cancel := splitDeadline(ctx)
	errs := make(chan error, m.self)
	dials := m.dialAll(dialing, m.formation.isDialed, func(_ int, err error) { errs <- err })
	defer func() { cancel(); dials.Wait() }()
	if m.cfg.Forming != nil {
		defer m.cfg.Forming(m.missingRanks)()
	}
	if err := m.awaitLinks(waiting, m.formation.isMissing, errs); err != nil {
		if _, ok := errors.AsType[*UnreachableError](err); !ok {
			err = m.missingLink(m.formation.isMissing, err)
		}
		return err
	}
	m.dialJoining(dialing)
	m.expectJoining()
	m.loop.settle()
	return nil
}

// splitDeadline divides the time until ctx ends: dialing ends after half of it, and waiting to
// be dialed after three quarters. A node that dials fails first, since it knows more about the
// fault than one that waits. The rest is for reporting the fault.
func splitDeadline(ctx context.Context) (dialing, waiting context.Context, cancel context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, ctx, cancel
	}
	left := time.Until(end)
	waiting, cancelWaiting := within(ctx, left*3/4)
	dialing, cancelDialing := within(waiting, left/2)
	return dialing, waiting, func() { cancelDialing(); cancelWaiting() }
}

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, notWithin(d))
}

func notWithin(d time.Duration) error { return fmt.Errorf("not within %v", d.Round(time.Millisecond)) }

// awaitLinks waits until missing selects no peer. It returns the first error of failed, or
// the cause of the end of ctx.
func (m *Mesh) awaitLinks(ctx context.Context, missing func(slot int, p *peer) bool, failed <-chan error) error {
	for {
		m.mu.Lock()
		changed, slot := m.changed.Next(), m.findLocked(missing)
		m.mu.Unlock()
		if slot < 0 {
			return nil
		}
		select {
		case <-changed:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// findLocked returns the first slot that is selected, or -1.
func (m *Mesh) findLocked(selects func(slot int, p *peer) bool) int {
	for slot := range m.peers {
		if selects(slot, &m.peers[slot]) {
			return slot
		}
	}
	return -1
}

// linkSelf links this node to itself. The connection has two ends, each with a link.
func (m *Mesh) linkSelf(ctx context.Context) error {
	out, in, err := m.cfg.Loop(ctx)
	if err != nil {
		return fmt.Errorf("mesh: link to itself: %w", err)
	}
	l, loop := m.peer(m.self).link, m.common.NewPending(m.self)
	m.loop.ask(func() { m.back = loop })
	accepted := make(chan error, 1)
	go func() { accepted <- loop.Accept(ctx, in, link.Config{}, func() error { return nil }) }()
	if err = l.Connect(ctx, out, link.Config{}); err != nil {
		out.Close()
	}
	return cmp.Or(err, <-accepted)
}

// dial links this node to the peer in a slot, and blocks until the link is up: see [dialer.dial].
func (m *Mesh) dial(ctx context.Context, slot int, limit *dialLimit, timeout time.Duration) error {
	p := m.peer(slot)
	return m.dialer.dial(ctx, &p, limit, timeout, func(ctx context.Context, r *route) error {
		return m.proposals.connect(ctx, r, slot, p.node.ID, r.bulk, nil)
	})
}

// dialAll links this node to the slots before it that include selects, the nearest first. failed is
// called for each slot that cannot be linked.
func (m *Mesh) dialAll(ctx context.Context, include func(slot int) bool, failed func(slot int, err error)) *sync.WaitGroup {
	dials := new(sync.WaitGroup)
	for slot := m.self - 1; slot >= 0; slot-- {
		if !include(slot) {
			continue
		}
		dials.Go(func() {
			if err := m.dial(ctx, slot, m.dials, m.dials.patience(dialTimeout)); err != nil {
				failed(slot, err)
			}
		})
	}
	return dials
}

// dialJoining links this node to the other joining nodes before it. If one cannot be reached,
// the seed does not admit it together with this node, but Form succeeds.
func (m *Mesh) dialJoining(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joiningTimeout)
	defer cancel()
	isNear := func(slot int) bool { return !m.formation.isMember(slot) && m.reach.isNear(m.cfg.View.Nodes[slot].ID) }
	m.dialAll(ctx, isNear, func(slot int, err error) {
		m.log.Debug("no link to another joining node", m.note(slot), "err", err)
	}).Wait()
}

// expectJoining expects the other joining nodes of the first view, and reports the links to
// them.
func (m *Mesh) expectJoining() {
	for slot := range m.cfg.View.Size() {
		if slot != m.self && !m.formation.isMember(slot) {
			m.loop.ask(func() { m.nextLocked(slot, membership.Expected, 0) })
			m.reportLink(slot)
		}
	}
}

// Formed tells the mesh that all nodes have made their links, and begins to watch. The error names a node whose link has ended. Without
// Config.OnDemand, nodes behind this one that have not dialed it are dialed, on other goroutines.
func (m *Mesh) Formed() error {
	formed := false
	m.loop.ask(func() {
		formed = m.findLocked(m.formation.isLost) < 0
		for slot := range m.peers {
			if p := &m.peers[slot]; formed && !m.cfg.OnDemand && p.isPending() {
				p.link.Need(link.Joining)
			}
		}
		m.formed = formed
	})
	if !formed {
		return m.missingLink(m.formation.isLost, transport.ErrPeerGone)
	}
	m.wg.Go(m.monitor.run)
	return nil
}

// missingRanks returns the ranks in Config.View of the required nodes without a link.
func (m *Mesh) missingRanks() (ranks []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot := range m.cfg.View.Nodes { // In the first view the slots are the ranks.
		if m.formation.isMissing(slot, &m.peers[slot]) {
			ranks = append(ranks, slot)
		}
	}
	return ranks
}

// missingLink returns an error that names the first node that is selected.
func (m *Mesh) missingLink(selects func(slot int, p *peer) bool, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := m.findLocked(selects)
	if slot < 0 {
		return cause
	}
	if slot > m.self {
		cause = fmt.Errorf("it has not connected to this node: %w", cause)
	}
	return m.peers[slot].unreachable(m.reach.outOfFiles(cause))
}

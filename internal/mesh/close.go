package mesh

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// Close ends all operations, says goodbye to all peers, waits until they have read it or
// ctx ends, and closes the transports. It logs a warning for each peer that has not read everything.
// Concurrent calls wait for the first one and return its result.
func (m *Mesh) Close(ctx context.Context) error {
	_, err := m.Leave(ctx, nil)
	return err
}

// Leave is Close for a node that tells the seed that it leaves, by the function report, unless that is nil. Leave calls it once,
// before the first goodbye to a neighbor, so that no node takes the end of a link for a failure. Goodbyes over relays come earlier: as
// long as this node is in the newest view, all relays have a route to it. Leave returns the peers that have not read everything.
func (m *Mesh) Leave(ctx context.Context, report func()) (unread []Unread, err error) {
	if report == nil {
		report = func() {}
	}
	report = onceFunc(report)
	m.loop.ask(func() {
		if m.reportLeaving == nil {
			m.reportLeaving = report
		}
	})
	var mu sync.Mutex
	var slots []int
	err = m.end(ctx, report, func(ctx context.Context, l *link.Link) {
		if !l.Close(ctx) {
			mu.Lock()
			defer mu.Unlock()
			slots = append(slots, l.Peer)
		}
	}, m.cfg.Paths)
	if m.out { // Nobody reads it: all nodes have quiesced, or the others have removed this one.
		return nil, err
	}
	for _, slot := range slots {
		p := m.peer(slot)
		unread = append(unread, Unread{p.rank, *p.node})
		m.log.Warn("a peer has not read all data that this node sent before leaving", m.note(slot))
	}
	return unread, err
}

// Unread is a peer that has not read all data that this node sent before it left.
type Unread struct {
	Rank int
	Node membership.Node
}

// onceFunc is like sync.OnceFunc, but calls wait at a channel. Calls that wait for a mutex stop the fake time of tests.
func onceFunc(f func()) func() {
	var begun atomic.Bool
	done := make(chan struct{})
	return func() {
		if begun.CompareAndSwap(false, true) {
			f()
			close(done)
		}
		<-done
	}
}

// Abort ends everything that Form has started, without goodbyes. The transports stay open.
func (m *Mesh) Abort() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.end(now, func() {}, func(_ context.Context, l *link.Link) { l.Abort() }, nil)
}

// Fail ends everything, as the end of the process does, and closes the transports. It tells the peers the reason before, for at most
// confirmMax.
func (m *Mesh) Fail(reason string) error {
	m.Explain(m.cfg.Self, false, reason)
	m.mu.Lock()
	links := m.linksLocked(func(*peer) bool { return true })
	m.mu.Unlock()
	for _, l := range links { // before the engine ends operations, which peers would take for a leave
		l.Abort()
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return m.end(now, func() {}, func(_ context.Context, l *link.Link) { l.Abort() }, m.cfg.Paths)
}

// end prevents new links, and ends operations, links and goroutines, and closes the transports
// of paths. sayGoodbye ends the links to peers that expect a goodbye. Before the first goodbye,
// end waits until pending links with frames have connections or ctx ends, unless this node is out of the world: then the peers end their links.
func (m *Mesh) end(ctx context.Context, report func(), sayGoodbye func(context.Context, *link.Link), paths []Path) error {
	first, out := false, false
	m.loop.ask(func() { first, m.closing, out = !m.closing, true, m.out })
	if !first {
		<-m.closed
		return m.closeErr
	}
	if m.cfg.Relay == nil {
		report()
	}
	if !out {
		m.awaitNeeded(ctx)
	}
	links := m.closeLinks()
	m.engine.Close()
	if m.cfg.Relay != nil {
		m.endRelayed(ctx, links, report, sayGoodbye)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, nearCloseMax)
		defer cancel()
	}
	var ends sync.WaitGroup
	for l, effects := range links {
		if effects.Has(membership.SayGoodbye) {
			ends.Go(func() { sayGoodbye(ctx, l) })
		} else {
			ends.Go(l.Abort)
		}
	}
	ends.Wait()
	m.loop.settle()
	m.loop.ask(m.stop) // A link is dialed before, or never.
	m.acceptor.close()
	for _, p := range paths {
		m.closeErr = errors.Join(m.closeErr, p.Transport.Close())
	}
	m.wg.Wait()
	m.loop.end()
	close(m.closed)
	return m.closeErr
}

// closeLinks returns the current links, each with the effects of closing. It waits until the
// current decision has been carried out, so that no goodbye arrives before its reason.
func (m *Mesh) closeLinks() map[*link.Link]membership.PeerEffects {
	links := make(map[*link.Link]membership.PeerEffects)
	m.loop.perform(func() func() {
		for slot := range m.peers {
			p := &m.peers[slot]
			effects := m.nextLocked(slot, membership.SelfClosing, 0)
			if p.link != nil {
				links[p.link] = effects
			}
		}
		if m.back != nil {
			links[m.back] = membership.SayGoodbye
		}
		return nil
	})
	return links
}

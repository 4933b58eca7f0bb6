package mesh

import (
	"context"
	"errors"
	"sync"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// Close ends all operations, says goodbye to all peers, waits until they have read it or
// ctx ends, and closes the transports. Concurrent calls wait for the first one and return its
// result.
func (m *Mesh) Close(ctx context.Context) error {
	m.mu.Lock()
	first := !m.closing
	m.closing = true
	m.mu.Unlock()
	if first {
		m.closeErr = m.close(ctx)
		close(m.closed)
	}
	<-m.closed
	return m.closeErr
}

func (m *Mesh) close(ctx context.Context) error {
	links := m.shut()
	m.engine.Close()
	var closing sync.WaitGroup
	for l, effects := range links {
		closing.Go(func() {
			if effects.Has(membership.SayGoodbye) {
				l.Close(ctx)
			} else {
				l.Abort()
			}
		})
	}
	closing.Wait()
	m.stop()
	m.pending.close()
	var errs []error
	for _, p := range m.cfg.Paths {
		errs = append(errs, p.Transport.Close())
	}
	m.wg.Wait()
	return errors.Join(errs...)
}

// Abort ends everything that Form has started, without goodbyes. The transports stay open.
func (m *Mesh) Abort() {
	links := m.shut()
	m.stop()
	m.engine.Close()
	for l := range links {
		l.Abort()
	}
	m.pending.close()
	m.wg.Wait()
}

// shut prevents new links and returns the present ones, each with the way to close it. It
// waits until a failure that is being reported has been reported, so that no goodbye
// overtakes its reason.
func (m *Mesh) shut() map[*link.Link]membership.PeerEffects {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = true
	links := make(map[*link.Link]membership.PeerEffects)
	for slot := range m.peers {
		p := &m.peers[slot]
		var effects membership.PeerEffects
		p.state, effects = p.state.Next(membership.SelfClosing)
		if p.link != nil {
			links[p.link] = effects
		}
	}
	if m.loop != nil {
		links[m.loop] = membership.SayGoodbye
	}
	return links
}

package mesh

import (
	"context"
	"errors"
	"sync"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// Close ends all operations, says goodbye to all peers, waits at most until
// ctx ends for them to read it, and closes the transports. Other calls return
// when the first does, and what it does.
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
	m.lobby.close()
	var errs []error
	for _, p := range m.cfg.Paths {
		errs = append(errs, p.Transport.Close())
	}
	m.wg.Wait()
	return errors.Join(errs...)
}

// Abort drops everything that Form has made, and leaves the transports as they
// were.
func (m *Mesh) Abort() {
	links := m.shut()
	m.stop()
	m.engine.Close()
	for l := range links {
		l.Abort()
	}
	m.lobby.close()
	m.wg.Wait()
}

// shut lets no more links be made, and returns those there are, with how to close
// each. A failure that is being told is told before, so that no goodbye comes ahead of
// its reason.
func (m *Mesh) shut() (links map[*link.Link]membership.PeerEffects) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = true
	links = make(map[*link.Link]membership.PeerEffects)
	for seat, l := range m.links {
		var effects membership.PeerEffects
		m.states[seat], effects = m.states[seat].Next(membership.SelfClosing)
		if l != nil {
			links[l] = effects
		}
	}
	if m.loop != nil {
		links[m.loop] = membership.SayGoodbye
	}
	return links
}

package mesh

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/internal/link"
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
	for _, l := range links {
		closing.Go(func() {
			if m.isDoubted(l) {
				l.Abort() // Nobody is there, most likely, to say goodbye to.
			} else {
				l.Close(ctx)
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

func (m *Mesh) isDoubted(l *link.Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doubted[l.Peer]
}

// Abort drops everything that Form has made, and leaves the transports as they
// were.
func (m *Mesh) Abort() {
	links := m.shut()
	m.stop()
	m.engine.Close()
	for _, l := range links {
		l.Abort()
	}
	m.lobby.close()
	m.wg.Wait()
}

// shut lets no more links be made, and returns those there are. A failure that is
// being told is told before, so that no goodbye comes ahead of its reason.
func (m *Mesh) shut() (links []*link.Link) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = true
	for _, l := range append(slices.Clone(m.links), m.loop) {
		if l != nil {
			links = append(links, l)
		}
	}
	return links
}

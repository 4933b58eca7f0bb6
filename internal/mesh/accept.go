package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// settleTimeout is how long a node that has connected may take to begin a
// link, with everything that belongs to it.
const settleTimeout = 30 * time.Second

// accept takes the connections of the ranks behind this one on a path.
func (m *Mesh) accept(ctx context.Context, p *Path) {
	for {
		c, err := p.Transport.Accept(ctx)
		if err != nil {
			return
		}
		peer, seat, ok := m.caller(c)
		switch {
		case !ok:
			m.log.Warn("refused a connection", "path", p.name(), "from", c.RemoteAddr(), "peer", c.Peer())
			c.Close()
		case p.Bulk && !m.carries(p, m.node(seat)):
			m.pending.put(peer, c)
		default:
			r := &route{path: p, conn: c, peer: peer}
			m.arrivals.enter(r, seat) // in the order in which they come
			m.wg.Go(func() { m.welcome(ctx, r, seat) })
		}
	}
}

// caller is the node that has connected: one behind this one in the first view, or
// one that is expected.
func (m *Mesh) caller(c transport.Conn) (id membership.NodeID, seat int, ok bool) {
	id, err := membership.ParseNodeID(c.Peer())
	if err != nil {
		return id, 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seat, ok = m.slotOf(id)
	return id, seat, ok && !m.closing && (m.peers[seat].expected || seat > m.self && !m.formed)
}

// welcome makes a link of a connection as soon as the peer begins one. A
// connection that the peer gives up before is no loss.
func (m *Mesh) welcome(ctx context.Context, r *route, seat int) {
	defer m.arrivals.leave(r, seat)
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var cfg link.Config
	bulk := m.bulkBeside(r.path, m.node(seat))
	apart := false
	if bulk != nil {
		cfg.BulkOver, cfg.BulkPipes = bulk.name(), bulk.Pipes
		cfg.Await = func(ctx context.Context) (transport.Conn, error) {
			apart = true
			return m.pending.take(ctx, r.peer)
		}
	}
	l, err := m.newLink(ctx, r, seat, cfg)
	if err != nil {
		m.log.Debug("a connection was given up", m.note(seat), "path", r.path.name(), "err", err)
		return
	}
	select {
	case <-l.Settled():
		r.settled(bulk, apart)
		err = m.add(l, r)
	case <-l.Done():
		err = l.Err()
		l.Abort()
	case <-ctx.Done():
		err = errors.New("no link was begun")
		l.Abort()
	}
	if err != nil {
		m.log.Debug("a connection was given up", m.note(seat), "path", r.path.name(), "err", err)
	}
}

// settled notes what the peer has chosen.
func (r *route) settled(bulk *Path, apart bool) {
	switch {
	case r.path.local():
		r.why = "same host"
	case apart:
		r.bulk, r.why = bulk, "its choice"
	case bulk != nil:
		r.why = "its choice, without " + bulk.name()
	default:
		r.why = "its choice"
	}
}

// arrivals are the connections of which the peers have not yet made links: one
// for each path of a rank. A peer that connects again has given up the one
// before.
type arrivals struct {
	mu    sync.Mutex
	conns map[arrival]transport.Conn
}

type arrival struct {
	path *Path
	seat int
}

func (a *arrivals) enter(r *route, seat int) {
	key := arrival{r.path, seat}
	a.mu.Lock()
	old := a.conns[key]
	a.conns[key] = r.conn
	a.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

func (a *arrivals) leave(r *route, seat int) {
	key := arrival{r.path, seat}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conns[key] == r.conn {
		delete(a.conns, key)
	}
}

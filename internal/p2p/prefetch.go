package p2p

import (
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A prefetch receives the payload of a short message before a receive takes the message. The message
// was offered because its sender had no credit. Without a prefetch, such a send would wait for a
// receive although the receiving node has room, since credit returns in parts and over another pipe.
type prefetch struct {
	receive Receive // of payload; in Messages.receiving during the transfer
	payload []byte
	arrived bool
	taker   *Receive // the receive that has taken the message during the transfer, or nil
}

// prefetchLocked grants a short offer that no receive waits for, if the link has room for the payload.
func (m *Messages) prefetchLocked(fx *Effects, a *arrival) {
	if a.payload != nil || a.size > uint64(m.cfg.EagerMax) || a.link.PrefersGrant(int(a.size)) || !a.link.Credit().Buffer(wire.Messages, int(a.size)) {
		return
	}
	p := &prefetch{payload: make([]byte, a.size)}
	a.prefetch = p
	r := &p.receive
	r.messages, r.prefetch, r.claimed = m, p, true
	r.buf.First = p.payload
	r.got = a.received()
	sink := m.transferLocked(r, a)
	sink.Owner = p
	fx.addGrant(a, a.link.Grant(sink))
}

// takePrefetchedLocked makes r receive a message with a prefetch. err is the error of r if the message
// does not fit it.
func (m *Messages) takePrefetchedLocked(fx *Effects, r *Receive, a *arrival, err error) {
	p := a.prefetch
	switch {
	case p.arrived:
		m.deliverPrefetchedLocked(fx, p, a.link, r, err)
	case !m.isReceivingLocked(&p.receive): // The transfer has failed: the rank has left.
		e := m.endReceiveLocked(fx, r, m.left[a.source])
		e.prefetch, e.link = p, a.link
	default:
		p.taker, p.receive.claimed = r, false
		r.prefetch, r.err = p, err
	}
}

// deliverPrefetchedLocked ends r with the payload of a prefetch, or with err.
func (m *Messages) deliverPrefetchedLocked(fx *Effects, p *prefetch, l *link.Link, r *Receive, err error) {
	e := m.endReceiveLocked(fx, r, err)
	e.kind, e.link, e.prefetch = deliver, l, p
	e.payload = p.payload
}

// Filled is called by the link when the payload has arrived.
func (p *prefetch) Filled(*link.Sink) {
	m := p.receive.messages
	var fx Effects
	m.mu.Lock()
	if !p.receive.cancelled && m.isReceivingLocked(&p.receive) {
		m.stopReceivingLocked(&p.receive)
		p.arrived = true
		if r := p.taker; r != nil {
			m.deliverPrefetchedLocked(&fx, p, p.receive.from, r, r.err)
		}
	}
	m.mu.Unlock()
	m.Perform(&fx)
}

// failReceiveLocked ends r, whose transfer has failed. If r belongs to a prefetch, it ends the receive
// that has taken the message, if any.
func (m *Messages) failReceiveLocked(fx *Effects, r *Receive, err error) {
	p := r.prefetch
	switch {
	case p == nil:
		m.endReceiveLocked(fx, r, err)
	case p.taker != nil:
		e := m.endReceiveLocked(fx, p.taker, err)
		e.prefetch, e.link = p, r.from
	}
}

// movedLocked returns how many bytes of the payload have arrived. The transfer must be in progress.
func (r *Receive) movedLocked() int64 {
	if r.prefetch != nil {
		r = &r.prefetch.receive
	}
	return int64(r.from.Filling(r.sink))
}

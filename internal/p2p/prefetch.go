package p2p

import (
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A prefetch receives the payload of a short message that was offered, because its sender had no
// credit, before a receive takes the message. So a Send completes whenever the receiver has room,
// although credit returns in parts and over another pipe.
type prefetch struct {
	receive Receive // in Messages.receiving while the payload is in transfer
	payload []byte
	arrived bool
	taker   *Receive // has taken the message during the transfer
}

// prefetchLocked grants a short offer that no receive has taken, if the link has room.
func (m *Messages) prefetchLocked(fx *Effects, a *arrival) {
	if a.payload != nil || a.size > uint64(m.cfg.EagerMax) || !a.link.Buffer(wire.Messages, int(a.size)) {
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

// takePrefetchedLocked makes r receive a message that is prefetched; err is why r cannot take it.
func (m *Messages) takePrefetchedLocked(fx *Effects, r *Receive, a *arrival, err error) {
	p := a.prefetch
	switch {
	case p.arrived:
		m.deliverPrefetchedLocked(fx, p, a.link, r, err)
	case !m.isReceivingLocked(&p.receive): // The transfer has failed.
		e := m.endReceiveLocked(fx, r, m.left[a.source])
		e.prefetch, e.link = p, a.link
	default:
		p.taker, p.receive.claimed = r, false
		r.prefetch, r.err = p, err
	}
}

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

// failReceiveLocked ends a receive whose transfer has failed. For a prefetch, that is the receive
// that has taken its message, if any.
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

// movedLocked returns the number of bytes that have arrived of a payload in transfer.
func (r *Receive) movedLocked() int64 {
	if r.prefetch != nil {
		r = &r.prefetch.receive
	}
	return int64(r.from.Filling(&r.sink))
}

package p2p

import (
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// An arrival is a message with its payload, or the offer of a message, after it has arrived.
type arrival struct {
	link    *link.Link
	source  int
	tag     int64
	typ     uint8
	order   uint32 // see Trace.Order
	size    uint64
	payload []byte // nil for an offer
	offer   uint64 // the number of an offer
	// prefetch receives the payload of a short offer; nil if it waits for a receive.
	prefetch *prefetch
}

func (a *arrival) received() Received {
	return Received{Source: a.source, Tag: a.tag, Bytes: int(a.size)}
}

// Arrive handles a message that has arrived on l. The payload is valid during the call only. If used is
// false, Arrive has dropped the message, and the caller must return the credit to the sender. If
// unexpected is true, the peer is not a rank of the communicator.
func (m *Messages) Arrive(l *link.Link, f wire.Message, payload []byte) (used, unexpected bool) {
	if payload == nil {
		payload = []byte{}
	}
	return m.arrive(&arrival{link: l, tag: f.Tag, typ: f.Type, size: uint64(len(payload)), payload: payload})
}

// ArriveOffer handles the offer of a message, whose sender waits for a grant or a refusal. It returns
// true if the peer is not a rank of the communicator.
func (m *Messages) ArriveOffer(l *link.Link, o wire.Offer) (unexpected bool) {
	_, unexpected = m.arrive(&arrival{link: l, tag: o.Tag, typ: o.Type, size: o.Size, offer: o.ID})
	return unexpected
}

func (m *Messages) arrive(a *arrival) (used, unexpected bool) {
	var fx Effects
	m.mu.Lock()
	used, unexpected = m.arriveLocked(&fx, a)
	m.mu.Unlock()
	m.Perform(&fx)
	if used || a.payload == nil {
		if f := m.received.Load(); f != nil {
			(*f)()
		}
	}
	return used, unexpected
}

// arriveLocked passes a message to the receive that waits for it, or keeps it. Before Open, it keeps
// all messages, except those of links that Refuse has named.
func (m *Messages) arriveLocked(fx *Effects, a *arrival) (used, unexpected bool) {
	rank, isMember := m.rankOf.Of(a.link.Peer)
	switch {
	case m.err != nil:
		return false, false
	case m.opened && !isMember:
		return false, true
	}
	if m.opened {
		a.order = m.orderLocked(rank, Got)
	} else if _, isRefused := m.refused[a.link]; isRefused {
		return false, false
	}
	a.source = rank
	if r, ok := m.matcher.Take(a.source, a.tag); ok {
		m.takeLocked(fx, r, a)
		return true, false
	}
	switch {
	case a.payload != nil:
		a.payload = append([]byte{}, a.payload...)
	case !a.link.Credit().Keep():
		return false, false
	}
	if m.opened {
		m.keepLocked(fx, a)
	} else {
		m.unopened = append(m.unopened, *a)
	}
	return true, false
}

// keepLocked keeps a message until a receive takes it, and ends the probes that it matches.
func (m *Messages) keepLocked(fx *Effects, a *arrival) {
	m.prefetchLocked(fx, a)
	m.matcher.Keep(a.source, a.tag, *a)
	m.endProbesLocked(fx, func(p *probe) bool {
		if !p.matches(a) {
			return false
		}
		p.got = a.received()
		return true
	})
}

// Claim is called when the header of a message has arrived and its payload has not. It takes the
// receive that waits for the message, so that the link writes the payload directly to the buffer of
// the receive. It returns ok false if no receive waits, and claim 0 if the receive ends with an error
// because the message does not fit it.
func (m *Messages) Claim(l *link.Link, f wire.Message) (claim uint64, ok bool) {
	var fx Effects
	m.mu.Lock()
	claim, ok = m.claimLocked(&fx, l, f)
	m.mu.Unlock()
	m.Perform(&fx)
	return claim, ok
}

func (m *Messages) claimLocked(fx *Effects, l *link.Link, f wire.Message) (claim uint64, ok bool) {
	rank, isMember := m.rankOf.Of(l.Peer)
	if m.err != nil || !isMember {
		return 0, false
	}
	r, ok := m.matcher.Take(rank, f.Tag)
	if !ok {
		return 0, false
	}
	a := arrival{link: l, source: rank, tag: f.Tag, typ: f.Type, size: uint64(f.Length), order: m.orderLocked(rank, Got)}
	if err := r.check(&a); err != nil {
		m.endReceiveLocked(fx, r, err)
		return 0, true
	}
	r.claimed = true
	return l.Claim(m.transferLocked(r, &a)), true
}

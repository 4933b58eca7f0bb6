package p2p

import (
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p/match"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Send is a message that was offered to its receiver. It waits for a grant, or has one and its
// payload is being sent.
type Send struct {
	messages *Messages
	id       uint64
	number   uint64 // see Wait.Number
	background
	rank  int
	order uint32 // see Trace.Order
	typ   uint8
	// cancelled says that the context of the sender has ended and the communicator is about to be
	// revoked: the result is the error of [Messages.Fail], even if the payload is sent before that.
	cancelled bool
	tag       int64
	size      int
	begun     int64 // by Config.Clock
	transfer  link.Transfer
	err       error
	done      poll.Signal // that the Send has ended
}

// StartSend starts to send a message. Messages are sent in the order of the calls. If StartSend returns
// a nil Send and no error, the message has been sent and data may be changed. Otherwise data must not
// be changed until [Send.Wait] returns.
func (m *Messages) StartSend(data *Regions, typ uint8, to int, tag int64) (*Send, error) {
	size := data.Len()
	m.mu.Lock()
	if err := m.beginLocked(to); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	l := m.links[to]
	isEager := data.Fetch == nil && size <= m.cfg.EagerMax && !l.PrefersGrant(size) && l.Credit().Take(wire.Messages, size)
	if !isEager && data.Received && !m.isAwaitedLocked(to, tag) {
		m.mu.Unlock()
		return nil, ErrNoReceive
	}
	m.begun++
	begun, order := m.stampLocked(), m.orderLocked(to, Sent)
	if isEager {
		m.traceLocked(Sent, typ, to, tag, size, order, begun, begun, nil)
		m.mu.Unlock()
		l.SendMessage(wire.Message{Comm: m.cfg.Comm, Tag: tag, Type: typ}, data.First, data.More...)
		return nil, nil
	}
	m.lastSend++
	s := &Send{messages: m, id: m.lastSend, number: m.begun, rank: to, typ: typ, tag: tag, size: size, order: order, begun: begun}
	s.transfer = link.Transfer{Data: data.First, More: data.More, Fetch: data.Fetch, Owner: s}
	m.sends[s.id] = s
	m.mu.Unlock()
	l.OfferMessage(wire.Offer{Comm: m.cfg.Comm, Tag: tag, Type: typ, ID: s.id, Size: uint64(size)})
	return s, nil
}

// isAwaitedLocked reports whether a receive or a probe of this rank waits for a message.
func (m *Messages) isAwaitedLocked(source int, tag int64) (found bool) {
	m.matcher.EachReceive(func(r *Receive) { found = found || match.Takes(r.source, r.tag, source, tag) })
	return found || slices.ContainsFunc(m.probes, func(p *probe) bool { return match.Takes(p.source, p.tag, source, tag) })
}

// Wait blocks until the data may be changed. If ctx ends first, the communicator is revoked.
func (s *Send) Wait(ctx context.Context) error {
	m := s.messages
	if m.await(ctx, &s.done, s.rank) {
		return s.err
	}
	m.cfg.Owner.CancelIf(s.cancel, m.cfg.Owner.Cause(ctx, Wait{Kind: Sent, Type: s.typ, Peer: s.rank, Tag: s.tag, Bytes: s.size}, s.begun))
	s.done.Await(context.Background())
	return s.err
}

// cancel makes [Messages.Fail] the only call that ends s. It returns false if s has ended or failed.
func (s *Send) cancel() bool {
	m := s.messages
	m.mu.Lock()
	defer m.mu.Unlock()
	s.cancelled = m.sends[s.id] != nil
	return s.cancelled
}

// Delivered is called by the link when the granted payload has been sent.
func (s *Send) Delivered(*link.Transfer) {
	m := s.messages
	var fx Effects
	m.mu.Lock()
	m.sentLocked(&fx, s.id, nil)
	m.mu.Unlock()
	m.Perform(&fx)
}

// sentLocked ends the send with number id, unless it has ended or is cancelled.
func (m *Messages) sentLocked(fx *Effects, id uint64, err error) {
	if s := m.sends[id]; s != nil && !s.cancelled {
		delete(m.sends, id)
		m.endSendLocked(fx, s, err)
	}
}

// endSendLocked ends s, and adds the effect that wakes its caller.
func (m *Messages) endSendLocked(fx *Effects, s *Send, err error) {
	m.traceLocked(Sent, s.typ, s.rank, s.tag, s.size, s.order, s.begun, m.stampEndLocked(s.begun), err)
	s.err, s.over = err, true
	e := fx.add()
	e.kind, e.done, e.follower, e.failed = wake, &s.done, s.follower, err != nil
}

// Granted sends the payload of an offer that a peer has granted.
func (m *Messages) Granted(l *link.Link, g wire.OfferGrant) {
	m.mu.Lock()
	s := m.sends[g.ID]
	bad := s != nil && (l != m.links[s.rank] || s.transfer.Grant != 0 || g.Grant == 0)
	if s != nil && !bad {
		s.transfer.Grant = g.Grant
		l.Deliver(&s.transfer)
	}
	m.mu.Unlock()
	switch {
	case bad:
		l.Fail(fmt.Errorf("p2p: protocol error: unexpected grant %d of message %d of communicator %d", g.Grant, g.ID, g.Comm))
	case s != nil: // otherwise the send has failed
		l.Push()
	}
}

// Refused ends the send whose offer the receiver has refused.
func (m *Messages) Refused(l *link.Link, r wire.OfferRefuse) {
	isUnexpected := false
	m.update(func(fx *Effects) {
		s := m.sends[r.ID]
		if isUnexpected = s != nil && (l != m.links[s.rank] || s.transfer.Grant != 0); s != nil && !isUnexpected {
			m.sentLocked(fx, r.ID, &MisfitError{Rank: s.rank, Refused: true, Sent: s.typ, Receiving: r.Type, Size: s.size, Room: int(r.Room)})
		}
	})
	if isUnexpected {
		l.Fail(fmt.Errorf("p2p: protocol error: unexpected refusal of message %d of communicator %d", r.ID, r.Comm))
	}
}

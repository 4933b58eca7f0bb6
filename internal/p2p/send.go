package p2p

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Sending is a message that its receiver has to grant.
type Sending struct {
	messages *Messages
	id       uint64
	rank     int
	typ      uint8
	tag      int64
	size     int
	begun    int64 // by the clock
	transfer link.Transfer
	// cancelled is set when the context of the sender has ended and the communicator is
	// about to be revoked: the result is the error of [Messages.Fail], even if the
	// payload is sent before that.
	cancelled bool
	err       error
	ended     chan struct{} // gets one value at the end
}

// StartSend begins to send, in the order of the calls. If it returns nil and no
// error, data may be used again; otherwise Wait has to be called.
func (m *Messages) StartSend(data *Regions, typ uint8, to int, tag int64) (*Sending, error) {
	size := data.Len()
	m.mu.Lock()
	if err := m.beginLocked(to); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	l := m.links[to]
	begun := m.stampLocked()
	if size <= m.cfg.EagerMax && l.TakeCredit(wire.Messages, size) {
		if p := m.recordLocked(); p != nil {
			p.What, p.Type, p.Peer, p.Tag, p.Bytes = Sent, typ, int32(to), tag, int64(size)
			p.Begun, p.Ended, p.Err = begun, begun, nil
		}
		m.mu.Unlock()
		l.SendMessage(wire.Message{Comm: m.cfg.Comm, Tag: tag, Type: typ}, data.First, data.More...)
		return nil, nil
	}
	m.lastSend++
	s := &Sending{messages: m, id: m.lastSend, rank: to, typ: typ, tag: tag, size: size, begun: begun, ended: make(chan struct{}, 1)}
	s.transfer = link.Transfer{Data: data.First, More: data.More, Owner: s}
	m.sends[s.id] = s
	o := wire.Offer{Comm: m.cfg.Comm, Tag: tag, Type: typ, ID: s.id, Size: uint64(size)}
	m.mu.Unlock()
	l.OfferMessage(o)
	return s, nil
}

// Wait blocks until the data may be used again. If ctx ends before that, the
// communicator is revoked.
func (s *Sending) Wait(ctx context.Context) error {
	m := s.messages
	if m.await(ctx, s.ended, s.rank) {
		return s.err
	}
	m.cfg.Owner.CancelIf(s.cancel, context.Cause(ctx))
	<-s.ended
	return s.err
}

// cancel leaves the end of s to [Messages.Fail]. It returns false if s has ended or fails.
func (s *Sending) cancel() bool {
	m := s.messages
	m.mu.Lock()
	defer m.mu.Unlock()
	s.cancelled = m.sends[s.id] != nil
	return s.cancelled
}

// Delivered is called by the link when a granted message has been sent.
func (s *Sending) Delivered(*link.Transfer) {
	m := s.messages
	var e effect
	m.mu.Lock()
	m.sentLocked(&e, s.id, nil)
	m.mu.Unlock()
	m.do(&e)
}

// sentLocked ends a message, unless it has ended already or is cancelled.
func (m *Messages) sentLocked(e *effect, id uint64, err error) {
	if s := m.sends[id]; s != nil && !s.cancelled {
		delete(m.sends, id)
		m.endSendLocked(e, s, err)
	}
}

func (m *Messages) endSendLocked(e *effect, s *Sending, err error) {
	if p := m.recordLocked(); p != nil {
		p.What, p.Type, p.Peer, p.Tag, p.Bytes = Sent, s.typ, int32(s.rank), s.tag, int64(s.size)
		p.Begun, p.Ended, p.Err = s.begun, m.cfg.Clock.StampEnd(s.begun), err
	}
	s.err = err
	e.kind, e.ended = wake, s.ended
}

// Granted sends the payload that a peer asks for.
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
	case s != nil: // otherwise it has failed on this side
		l.Push()
	}
}

// Refused ends a message that its receiver has refused.
func (m *Messages) Refused(l *link.Link, r wire.OfferRefuse) {
	var e effect
	m.mu.Lock()
	s := m.sends[r.ID]
	bad := s != nil && (l != m.links[s.rank] || s.transfer.Grant != 0)
	if s != nil && !bad {
		m.sentLocked(&e, r.ID, &RefusedError{
			Rank: s.rank, Size: s.size, Room: int(r.Room), Sent: s.typ, Receiving: r.Type,
		})
	}
	m.mu.Unlock()
	if bad {
		l.Fail(fmt.Errorf("p2p: protocol error: unexpected refusal of message %d of communicator %d", r.ID, r.Comm))
		return
	}
	m.do(&e)
}

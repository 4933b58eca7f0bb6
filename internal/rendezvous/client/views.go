package client

import (
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// HandleView handles a message about views from another node. An error says that the message is
// malformed, or contains a view that no seed of the cluster has signed. HandleView does not keep
// message.
func (s *Session) HandleView(from membership.NodeID, message []byte) error {
	m, err := wire.DecodeViewMessage(message)
	if err != nil {
		return fmt.Errorf("malformed message about views: %w", err)
	}
	switch m := m.(type) {
	case wire.JoinDifference:
		return s.setDifference(from, m)
	case wire.JoinConfirm:
		s.withViews(func(f *membership.ViewForwarder) { f.Confirmation(from, membership.Confirmation(m)) })
	case wire.JoinBehind:
		s.withViews(func(f *membership.ViewForwarder) { f.Behind(from, membership.Behind(m)) })
	}
	return nil
}

// setDifference handles the difference to a later view, from another node or, if from is zero, from
// the seed.
func (s *Session) setDifference(from membership.NodeID, m wire.JoinDifference) (err error) {
	s.withViews(func(f *membership.ViewForwarder) {
		if !s.formed {
			return
		}
		v, ok, forged := f.Difference(time.Now(), from, membership.Difference(m))
		if err = forged; !ok {
			return
		}
		sender := s.seed
		if from != (membership.NodeID{}) {
			sender = from.String()
		}
		s.adoptLocked(v, sender)
	})
	return err
}

// withViews calls change under the lock, and sends the messages that result. Messages are sent in
// order: one call at a time sends.
func (s *Session) withViews(change func(f *membership.ViewForwarder)) {
	s.sendingViews.Lock()
	defer s.sendingViews.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.views)
	for messages := s.views.Messages(); len(messages) > 0; messages = s.views.Messages() {
		s.mu.Unlock()
		lost := s.sendViews(messages)
		s.mu.Lock()
		for _, id := range lost {
			s.views.Unreachable(id)
		}
	}
	s.armViewsLocked()
}

// sendViews sends messages about views to nodes and the seed. It returns the nodes without a link.
func (s *Session) sendViews(messages []membership.ViewMessage) (lost []membership.NodeID) {
	for _, m := range messages {
		b := viewFrame(m.Body)
		if m.To == (membership.NodeID{}) {
			s.postFrame(b)
		} else if len(b) > wire.ViewMessageMax || s.req.SendView == nil || !s.req.SendView(m.To, b) {
			lost = append(lost, m.To)
		}
	}
	return lost
}

// viewFrame encodes a message about views.
func viewFrame(body any) []byte {
	switch body := body.(type) {
	case membership.Difference:
		return handshake.Frame(wire.JoinDifference(body))
	case membership.Confirmation:
		return handshake.Frame(wire.JoinConfirm(body))
	case membership.Behind:
		return handshake.Frame(wire.JoinBehind(body))
	}
	panic(fmt.Sprintf("client: message about views of type %T", body))
}

// postFrame queues an encoded message to the seed.
func (s *Session) postFrame(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Post(b)
}

// armViewsLocked sets the timer for the next deadline of the forwarder.
func (s *Session) armViewsLocked() {
	s.stopViewsLocked()
	if at, ok := s.views.Deadline(); ok && s.closing.Err() == nil && s.life.Err() == nil {
		s.viewTimer = time.AfterFunc(time.Until(at), func() {
			s.withViews(func(f *membership.ViewForwarder) { f.Tick(time.Now()) })
		})
	}
}

// stopViewsLocked stops the timer of the forwarder.
func (s *Session) stopViewsLocked() {
	if s.viewTimer != nil {
		s.viewTimer.Stop()
		s.viewTimer = nil
	}
}

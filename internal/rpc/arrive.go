package rpc

import "sync/atomic"

// Bounds of the work of one call of Arrived. A goroutine does the rest, so that neither many
// messages nor the allocation for a long one delay the caller, which delivers messages.
const (
	promptMessages = 64
	promptBytes    = 1 << 20
)

// Arrived reports that Poll has messages. The Port calls it after one or several have arrived.
// It does not block.
func (s *Service) Arrived() {
	// One goroutine polls at a time. It polls again if Arrived was called meanwhile.
	if s.arrived.Add(1) == 1 {
		s.poll(true)
	}
}

// poll takes all pending messages. After Close it leaves them: their senders learn the reason
// from the end of the communicator, which a refusal would hide.
func (s *Service) poll(prompt bool) {
	for k := 0; !s.closed.Load(); k++ {
		seen := s.arrived.Load()
		m, ok := s.port.Poll()
		switch {
		case !ok && s.arrived.CompareAndSwap(seen, 0):
			return
		case !ok:
		case prompt && (k == promptMessages || m.Bytes > promptBytes) && s.begin():
			go func() {
				defer s.release()
				s.take(m)
				s.poll(false)
			}()
			return
		default:
			s.take(m)
		}
	}
}

// take takes or refuses a message.
func (s *Service) take(m Message) {
	p := s.peer(m.Source)
	ok, err := p.accept(m.Bytes)
	if err != nil {
		s.broken(m.Source, err)
	}
	if !ok {
		if !s.closed.Load() {
			s.port.Take(m, nil, func(error) {})
		}
		return
	}
	t := s.newTaking(p)
	t.buf = make([]byte, m.Bytes)
	s.port.Take(m, t.buf, t.done)
	t.turn()
}

// A taking is a message that is being received.
type taking struct {
	service *Service
	peer    *peer
	buf     []byte
	err     error
	turns   atomic.Int32 // calls of done and take; the second one handles the message
	done    func(error)
}

func (s *Service) newTaking(p *peer) *taking {
	t, ok := s.takings.Get().(*taking)
	if !ok {
		t = &taking{service: s}
		t.done = func(err error) {
			t.err = err
			t.turn()
		}
	}
	t.peer = p
	return t
}

// turn handles the message once it was received and Take has returned, so that the Port is
// never called from within its own call.
func (t *taking) turn() {
	if t.turns.Add(1) < 2 {
		return
	}
	p, b, err := t.peer, t.buf, t.err
	t.peer, t.buf, t.err = nil, nil, nil
	t.turns.Store(0)
	t.service.takings.Put(t)
	p.taken(b, err)
}

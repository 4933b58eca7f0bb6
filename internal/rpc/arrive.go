package rpc

import "sync/atomic"

// These limit the work of one call of Arrived. A goroutine does the rest, so that the
// caller, which delivers messages, is not delayed by many of them, nor by the allocation
// for a long one.
const (
	promptMessages = 64
	promptBytes    = 1 << 20
)

// Arrived says that messages have come which Poll can tell of. It is called
// after one has come, or after several, and does not block.
func (s *Service) Arrived() {
	// One goroutine polls at a time. It looks again if there has been another
	// call since it last looked.
	if s.arrivals.Add(1) == 1 {
		s.poll(true)
	}
}

// poll takes all pending messages. After Close it leaves them: the end of the
// communicator tells their senders the reason, and a refusal would hide it.
func (s *Service) poll(prompt bool) {
	for k := 0; !s.closed.Load(); k++ {
		seen := s.arrivals.Load()
		m, ok := s.port.Poll()
		switch {
		case !ok && s.arrivals.CompareAndSwap(seen, 0):
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

// take takes a message, or refuses it.
func (s *Service) take(m Message) {
	p := &s.peers[m.Source]
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

// A taking is a message that comes in.
type taking struct {
	service *Service
	peer    *peer
	buf     []byte
	err     error
	turns   atomic.Int32 // of done and of take; the second one handles the message
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

// turn handles the message when it has come and Take has returned, so that the
// carrier is never called back from within its own call.
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

package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
)

// A peer is the state shared with another rank, or with this rank itself.
type peer struct {
	service *Service
	rank    int

	mu     sync.Mutex // guards the fields below, and is held for moments only
	ending *ending    // nil until the peer or the Service is gone

	// The calls of this rank: their limits, and those without an answer.
	window window
	lastID uint64
	calls  map[uint64]*call

	// The calls of the other rank: all until their answer is sent; the number and bytes
	// of those that have not returned; the number of goroutines; and the jobs that wait
	// for one.
	jobs      map[uint64]*job
	held      int
	heldBytes int64
	working   int
	parked    []func()

	// Messages being received, and the bytes of those that could be refused.
	taking      int
	takingBytes int64
	early       map[uint64]error // cancelled calls that may be among them, and the causes

	replies  []wire.RemoteAnswer // short answers to be sent
	replying bool                // a goroutine sends them
}

// repliesMax bounds the pending short answers to a peer. A peer has at most inFlightMax calls
// without an answer, so only one that breaks the protocol needs more.
const repliesMax = inFlightMax

func newPeer(s *Service, rank int) *peer {
	p := &peer{service: s, rank: rank}
	p.window.callsMax, p.window.bytesMax = s.cfg.InFlight, int64(s.cfg.InFlightBytes)
	return p
}

// requestBytesMax returns the maximum bytes of all calls of a peer in flight, as
// messages.
func (s *Service) requestBytesMax() int64 {
	return int64(s.cfg.InFlightBytes) + int64(s.cfg.InFlight)*wire.RemoteHeadMax
}

// takingMax returns the maximum number of announced messages of a peer that have not
// arrived. A peer sends calls, their cancellations, and an answer to each call of this
// rank. The limit allows twice as many, for peers with other limits.
func (p *peer) takingMax() int { return 4*p.service.cfg.InFlight + len(p.calls) + 1024 }

// accept reserves room for a message of n bytes, or reports that it must be refused. A short
// message is never refused, since its sender would not notice. A peer that announces too many
// of them has broken the protocol, which is an error.
func (p *peer) accept(n int) (ok bool, err error) {
	s := p.service
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending != nil {
		return false, nil
	}
	if p.taking >= p.takingMax() {
		return false, fmt.Errorf("rank %d has announced %d messages and sends none", p.rank, p.taking)
	}
	if n > wire.PayloadMax {
		messageMax := int64(s.cfg.PayloadMax) + wire.RemoteHeadMax
		// The peer is within its limits if this is one of its calls or an answer to one
		// of ours, and if all others are.
		may := s.requestBytesMax() + int64(len(p.calls))*messageMax
		if int64(n) > messageMax || p.heldBytes+p.takingBytes+int64(n) > may {
			return false, nil
		}
		p.takingBytes += int64(n)
	}
	p.taking++
	s.begin()
	return true, nil
}

// taken handles a message that was accepted.
func (p *peer) taken(b []byte, lost error) {
	defer p.service.release()
	if err := p.handle(b, lost); err != nil {
		p.service.broken(p.rank, err)
	}
}

// handle returns an error for a message that no Service sends.
func (p *peer) handle(b []byte, lost error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taking--
	if len(b) > wire.PayloadMax {
		p.takingBytes -= int64(len(b))
	}
	if p.taking == 0 {
		defer func() { p.early = nil }()
	}
	if p.ending != nil || lost != nil {
		return nil
	}
	typ, err := wire.RemoteTypeOf(b)
	if err != nil {
		return err
	}
	switch typ {
	case wire.TypeRemoteCall:
		c, name, args, err := wire.ParseRemoteCall(b)
		if err != nil {
			return err
		}
		return p.requestLocked(c, name, args)
	case wire.TypeRemoteAnswer:
		a, rest, err := wire.ParseRemoteAnswer(b)
		if err != nil {
			return err
		}
		return p.answeredLocked(a, rest)
	default:
		c, err := wire.ParseRemoteCancel(b)
		if err != nil {
			return err
		}
		p.cancelledLocked(c)
		return nil
	}
}

// replyLocked sends a short answer in the background, since the goroutine that delivers
// messages must not wait for a Send.
func (p *peer) replyLocked(a wire.RemoteAnswer) error {
	if len(p.replies) == repliesMax {
		return fmt.Errorf("%d answers are not read by rank %d", len(p.replies), p.rank)
	}
	p.replies = append(p.replies, a)
	if !p.replying {
		p.replying = true
		p.service.begin()
		go p.sendReplies()
	}
	return nil
}

func (p *peer) sendReplies() {
	defer p.service.release()
	var b []byte
	for {
		p.mu.Lock()
		replies := p.replies
		p.replies = nil
		p.replying = len(replies) > 0
		p.mu.Unlock()
		if len(replies) == 0 {
			return
		}
		for _, a := range replies {
			b = a.Append(b[:0])
			if p.service.send(p.rank, b) != nil {
				break // The peer is gone.
			}
		}
	}
}

// end ends everything that waits for the peer or works for it, and reports whether this
// is its first end. The end of the Service takes precedence over the loss of a rank.
func (p *peer) end(e *ending) bool {
	if e.err == nil {
		e.err = errClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.ending == nil
	if !first && (p.ending.closed || !e.closed) {
		return false
	}
	p.ending = e
	for _, c := range p.calls {
		c.endLocked(nil, e.of(p.rank, c.fn))
	}
	p.window.dismiss()
	for _, j := range p.jobs {
		j.cancel(e.cause(p.rank, j.function.name))
	}
	p.parked, p.early, p.replies = nil, nil, nil
	return first
}

// tell sends the answer of call id, its head and the result. If the peer refuses it, it sends a
// short answer to report that. A peer that is gone gets no answer.
func (p *peer) tell(id uint64, parts [][]byte) {
	p.mu.Lock()
	gone := p.ending != nil
	p.mu.Unlock()
	if gone {
		return
	}
	err := p.service.send(p.rank, parts...)
	if errors.Is(err, ErrRefused) {
		refused := wire.RemoteAnswer{ID: id, Status: wire.RemoteRefused, Size: uint64(len(parts[1]))}
		_ = p.service.send(p.rank, refused.Append(nil)) // without a link the answer is not needed
	}
}

// cancelledLocked ends the context of a job.
func (p *peer) cancelledLocked(c wire.RemoteCancel) {
	why := context.Canceled
	if c.Expired {
		why = context.DeadlineExceeded
	}
	switch j := p.jobs[c.ID]; {
	case j != nil:
		j.cancel(fmt.Errorf("rank %d has cancelled %q: %w", p.rank, j.function.name, why))
	case p.taking > 0 && len(p.early) < p.service.cfg.InFlight:
		// The call, which was sent before, may still be arriving.
		if p.early == nil {
			p.early = make(map[uint64]error)
		}
		p.early[c.ID] = why
	}
}

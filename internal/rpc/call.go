package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// A call is a call of this rank without an answer.
type call struct {
	peer  *peer
	fn    string
	bytes int       // of arguments
	parts [2][]byte // of the message: the encoded head, and the arguments
	turn  Turn      // the wait before it was sent
	ended chan struct{}

	// Guarded by peer.mu. ended gets one value when the call is both sent and over,
	// unless it was abandoned before.
	id        uint64
	limited   bool // it has a deadline
	sent      bool // Send has returned, so the arguments are free
	over      bool // it has an answer, or will not get one
	abandoned bool // no goroutine waits for it
	expired   bool // because its deadline has passed
	result    []byte
	err       error
}

// Call calls the function fn of rank to, which may be this rank, and returns its
// result, which belongs to the caller.
//
// The arguments must not be changed during the call. They belong to the caller again
// when it returns, with one exception: if ctx ends while more than 128 KiB of them are
// being sent, the transmission continues, and the memory must never be written to
// again. The function of a cancelled call may have been called, and may still run, with
// a context that ends. The call counts as in flight until it has returned (see
// Config.InFlight).
func (s *Service) Call(ctx context.Context, to int, fn string, args []byte) ([]byte, error) {
	if err := s.check(to, fn, len(args)); err != nil {
		return nil, err
	}
	if _, limited := ctx.Deadline(); !limited && s.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
	}
	c := s.newCall(s.peer(to), fn, len(args))
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	c.compose(ctx, args)
	if ctx.Done() == nil {
		c.send()
	} else {
		go c.send() // may take longer than ctx allows
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		if c.abandon(ctx.Err() == context.DeadlineExceeded) {
			return nil, c.cancelled(true, context.Cause(ctx))
		}
		<-c.ended
	}
	result, err := c.result, c.err
	s.calls.Put(c)
	return result, err
}

// check returns errors of the caller.
func (s *Service) check(to int, fn string, bytes int) error {
	if err := checkName(fn); err != nil {
		return err
	}
	if to < 0 || to >= len(s.peers) {
		return fmt.Errorf("call of function %q of rank %d of %d: %w", fn, to, len(s.peers), ErrRank)
	}
	if bytes > s.cfg.PayloadMax {
		return &AnswerError{Rank: to, Fn: fn, Status: wire.RemoteArgsTooLong, Size: bytes, Max: s.cfg.PayloadMax}
	}
	return nil
}

// newCall reuses a call that has ended normally and is no longer referenced, or
// allocates one.
func (s *Service) newCall(p *peer, fn string, bytes int) *call {
	c, ok := s.calls.Get().(*call)
	if !ok {
		c = &call{ended: make(chan struct{}, 1)}
	}
	*c = call{peer: p, fn: fn, bytes: bytes, ended: c.ended, parts: [2][]byte{c.parts[0][:0], nil}}
	return c
}

// enter waits until the call fits into the window, and gives it an ID.
func (c *call) enter(ctx context.Context) error {
	p := c.peer
	_, c.limited = ctx.Deadline()
	if ctx.Err() != nil {
		return c.cancelled(false, context.Cause(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending == nil {
		if place := p.window.enter(int64(c.bytes)); place != nil {
			c.turn = Turn{InFlight: p.window.calls, Max: p.window.callsMax}
			p.mu.Unlock()
			came := c.await(ctx, place.Value.(*waiter))
			p.mu.Lock()
			if !came {
				p.window.quit(place)
				return c.cancelled(false, context.Cause(ctx))
			}
		}
	}
	if p.ending != nil {
		return p.ending.of(p.rank, c.fn)
	}
	p.lastID++
	c.id = p.lastID
	if p.calls == nil {
		p.calls = make(map[uint64]*call)
	}
	p.calls[c.id] = c
	p.service.begin()
	return nil
}

// await waits for the turn of w and counts the time in c.turn. It returns false if ctx has
// ended first.
func (c *call) await(ctx context.Context, w *waiter) bool {
	began := time.Now()
	defer func() { c.turn.After = time.Since(began) }()
	select {
	case <-w.turn:
		return true
	case <-ctx.Done():
		return false
	}
}

// cancelled returns the error of a call after the end of its context.
func (c *call) cancelled(begun bool, cause error) error {
	return &CancelledError{Rank: c.peer.rank, Fn: c.fn, Begun: begun, Turn: c.turn, Err: cause}
}

// compose encodes the message. Short arguments are copied, so that they belong to the
// caller again when ctx ends.
func (c *call) compose(ctx context.Context, args []byte) {
	head := wire.RemoteCall{ID: c.id}
	if deadline, ok := ctx.Deadline(); ok {
		head.Remaining = uint64(max(time.Until(deadline), 1))
	}
	c.parts[0] = head.Append(c.parts[0], c.fn)
	if ctx.Done() != nil && len(args) <= wire.PayloadMax {
		c.parts[0] = append(c.parts[0], args...)
		return
	}
	c.parts[1] = args
}

// send sends the call, and after it the cancellation if the call was abandoned
// meanwhile.
func (c *call) send() {
	p := c.peer
	s := p.service
	defer s.release()
	err := s.send(p.rank, c.parts[:]...)
	p.mu.Lock()
	c.sent = true
	c.parts[1] = nil
	cancel := wire.RemoteCancel{ID: c.id, Expired: c.expired}
	given := c.abandoned && !c.over && err == nil
	switch {
	case c.over:
		c.signalLocked()
	case err != nil:
		c.endLocked(nil, c.failure(err))
	}
	p.mu.Unlock()
	if given {
		_ = s.send(p.rank, cancel.Append(nil)) // without a link there is no call to cancel
	}
}

// failure returns the error of a call that could not be sent.
func (c *call) failure(err error) error {
	p := c.peer
	if errors.Is(err, ErrRefused) {
		return &AnswerError{Rank: p.rank, Fn: c.fn, Status: wire.RemoteRefused, Size: c.bytes}
	}
	return &GoneError{Rank: p.rank, Fn: c.fn, Err: err}
}

// endLocked ends the call. The caller must not use c afterwards, unless it
// was abandoned.
func (c *call) endLocked(result []byte, err error) {
	p := c.peer
	c.over, c.result, c.err = true, result, err
	delete(p.calls, c.id)
	p.window.leave(int64(c.bytes))
	c.signalLocked()
}

// signalLocked wakes the goroutine that waits for the call, which may reuse c at once.
func (c *call) signalLocked() {
	if c.sent && !c.abandoned {
		c.ended <- struct{}{}
	}
}

// abandon abandons the call, unless it has ended.
func (c *call) abandon(expired bool) bool {
	p := c.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.over && c.sent {
		return false
	}
	c.abandoned, c.expired = true, expired
	if c.sent && p.ending == nil {
		p.service.begin()
		cancel := wire.RemoteCancel{ID: c.id, Expired: expired}
		go func() {
			defer p.service.release()
			_ = p.service.send(p.rank, cancel.Append(nil)) // without a link there is no call to cancel
		}()
	}
	return true
}

// answeredLocked ends a call with its answer.
func (p *peer) answeredLocked(a wire.RemoteAnswer, rest []byte) error {
	c := p.calls[a.ID]
	if c == nil {
		return fmt.Errorf("rank %d answers call %d, which does not wait for an answer", p.rank, a.ID)
	}
	switch {
	case c.abandoned:
		rest = nil // not used
	case a.Status == wire.RemoteEnded && !c.limited:
		return fmt.Errorf("rank %d reports the end of call %d, which was not cancelled and has no deadline", p.rank, a.ID)
	}
	c.endLocked(c.outcome(a, rest))
	return nil
}

// outcome converts an answer to the result or error of the call.
func (c *call) outcome(a wire.RemoteAnswer, rest []byte) ([]byte, error) {
	limit := c.peer.service.cfg.PayloadMax
	e := &AnswerError{Rank: c.peer.rank, Fn: c.fn, Status: a.Status, Size: number(a.Size), Max: number(a.Max), Text: string(rest)}
	switch {
	case a.Status == wire.RemoteDone:
		return rest, nil
	case a.Status == wire.RemoteEnded:
		return nil, c.cancelled(true, context.DeadlineExceeded)
	case a.Status == wire.RemoteRefused && e.Size > limit:
		e.Status, e.Max = wire.RemoteResultTooLong, limit
	}
	return nil, e
}

// number limits a number from a peer to the range of int.
func number(n uint64) int { return int(min(n, math.MaxInt)) }

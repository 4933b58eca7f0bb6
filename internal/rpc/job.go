package rpc

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// answerHead is the capacity for an answer without its result and text.
const answerHead = 32

// A job is a call of another rank that this rank carries out.
type job struct {
	peer     *peer
	function *function
	id       uint64
	args     []byte
	bytes    int64 // of the message
	cancel   func(cause error)
	head     [answerHead]byte
	parts    [2][]byte // of the answer

	// The outcome of the handler.
	returned bool
	failed   bool
	text     string // of its error
	result   []byte
}

// requestLocked starts or refuses a call.
func (p *peer) requestLocked(c wire.RemoteCall, name, args []byte) error {
	s := p.service
	if p.jobs[c.ID] != nil {
		return fmt.Errorf("rank %d makes call %d twice", p.rank, c.ID)
	}
	f := (*s.functions.Load())[string(name)]
	bytes := int64(wire.RemoteHeadMax + len(args))
	switch {
	case p.early[c.ID] != nil:
		delete(p.early, c.ID)
		return p.replyLocked(wire.RemoteAnswer{ID: c.ID, Status: wire.RemoteEnded})
	case f == nil:
		return p.replyLocked(wire.RemoteAnswer{ID: c.ID, Status: wire.RemoteUnknown})
	case len(args) > s.cfg.PayloadMax:
		return p.replyLocked(wire.RemoteAnswer{ID: c.ID, Status: wire.RemoteArgsTooLong, Size: uint64(len(args)), Max: uint64(s.cfg.PayloadMax)})
	case p.held == s.cfg.InFlight || p.heldBytes+bytes > s.requestBytesMax():
		return p.replyLocked(wire.RemoteAnswer{ID: c.ID, Status: wire.RemoteBusy, Size: uint64(s.cfg.InFlightBytes), Max: uint64(s.cfg.InFlight)})
	}
	p.startLocked(&job{peer: p, function: f, id: c.ID, args: args, bytes: bytes}, c.Remaining)
	return nil
}

// startLocked runs a job, with remaining nanoseconds until its deadline, or queues it until an
// earlier job has sent its answer: answers must not accumulate for a peer that does not read
// them.
func (p *peer) startLocked(j *job, remaining uint64) {
	if p.jobs == nil {
		p.jobs = make(map[uint64]*job)
	}
	p.jobs[j.id] = j
	p.held++
	p.heldBytes += j.bytes
	ctx, cancel := context.WithCancelCause(context.Background())
	j.cancel = cancel
	if remaining > 0 {
		limited, stop := context.WithTimeout(ctx, time.Duration(min(remaining, math.MaxInt64)))
		ctx, j.cancel = limited, func(cause error) {
			cancel(cause)
			stop()
		}
	}
	// Up to InFlight more goroutines may be in a Send that has not returned although the peer
	// has received the answer.
	if p.working == 2*p.service.cfg.InFlight {
		p.parked = append(p.parked, func() { j.run(ctx) })
		return
	}
	p.working++
	p.service.begin()
	go j.run(ctx)
}

// run calls the handler. The call is answered even if the handler panics or exits.
func (j *job) run(ctx context.Context) {
	defer j.finish(ctx)
	result, err := j.function.handler(ctx, j.peer.rank, j.args)
	if err != nil {
		j.failed, j.text = true, err.Error()
	} else {
		j.result = result
	}
	j.returned = true
}

// finish is deferred, so that it also runs after a panic or runtime.Goexit.
func (j *job) finish(ctx context.Context) {
	p := j.peer
	s := p.service
	defer s.release()
	a, text := j.outcome(ctx, recover())
	p.mu.Lock()
	p.held-- // before the caller gets the answer and may make another call
	p.heldBytes -= j.bytes
	p.mu.Unlock()
	j.args = nil
	j.parts = [2][]byte{a.AppendText(j.head[:0], text), j.result}
	p.tell(a.ID, j.parts[:])
	j.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.jobs, j.id)
	if len(p.parked) == 0 {
		p.working--
		return
	}
	next := p.parked[0]
	p.parked = p.parked[1:]
	s.begin()
	go next()
}

// outcome returns the answer, without the result.
func (j *job) outcome(ctx context.Context, panicked any) (a wire.RemoteAnswer, text string) {
	s := j.peer.service
	a.ID = j.id
	switch {
	case panicked != nil:
		a.Status, text = wire.RemotePanicked, fmt.Sprint(panicked)
		s.cfg.Log.Error("handler panicked", "function", j.function.name, "caller", j.peer.rank, "panic", text, "stack", string(debug.Stack()))
	case !j.returned:
		a.Status, text = wire.RemotePanicked, "its goroutine was ended by runtime.Goexit"
		s.cfg.Log.Error("handler ended its goroutine", "function", j.function.name, "caller", j.peer.rank)
	case ctx.Err() != nil:
		a.Status, j.result = wire.RemoteEnded, nil
	case j.failed:
		a.Status, text = wire.RemoteFailed, j.text
	case len(j.result) > s.cfg.PayloadMax:
		a.Status, a.Size, a.Max = wire.RemoteResultTooLong, uint64(len(j.result)), uint64(s.cfg.PayloadMax)
		j.result = nil
	default:
		a.Status = wire.RemoteDone
	}
	return a, text
}

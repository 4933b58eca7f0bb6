package nexar

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/rpc"
	"github.com/nexar-go/nexar/internal/wire"
)

// Register lets the ranks of the communicator call h by [Comm.Call] under the name fn, which has
// 1 to 255 bytes. Each call runs h on a separate goroutine, with the rank of the caller and the
// arguments, which h may keep and change. The result must not be changed after h has returned. ctx
// ends when the context of the call ends, when the caller has failed or left, and when the
// communicator ends; [context.Cause] returns the reason.
//
// Register panics if fn has another length, h is nil, or another function has the name. Calls that
// arrive before Register fail with [ErrUnknownFunction], so call [Comm.Barrier] on all ranks after
// Register.
func (c *Comm) Register(fn string, h func(ctx context.Context, from int, args []byte) ([]byte, error)) {
	if err := c.impl.Calls.Register(fn, h); err != nil {
		panic("nexar: " + err.Error())
	}
}

// Call calls the function fn that rank to, which may be this rank, has registered by
// [Comm.Register], and returns its result. The function runs at most once. args must not be changed
// until Call returns. If ctx ends while more than 128 KiB of args are being sent, args must not be
// changed after that either, since they may still be read.
//
// Calls may complete in any order: a slow function or long arguments do not delay other calls. At
// most [Config].MaxConcurrentCalls calls with at most 1 GiB of arguments in total are in progress from
// one rank to another; further calls wait. Arguments and result each have at most 1 GiB.
//
// A call back to the caller counts as well. If calls in both directions have reached the limit and all
// their functions call back, these calls wait until their contexts end, and their errors name the
// limit.
//
// The function gets the deadline of ctx, or without one [Config].CallTimeout. If ctx ends, Call returns at
// once, the context of the function ends, and the communicator remains usable. Other errors are a
// [CallError] with the rank and the reason, a [PeerError] if the rank has failed or left, and
// [ErrInvalidRank]. When the communicator ends, its calls fail as all its operations do.
func (c *Comm) Call(ctx context.Context, to int, fn string, args []byte) ([]byte, error) {
	if err := cmp.Or(c.Err(), c.over(ctx)); err != nil {
		return nil, opError("call", err)
	}
	if to < 0 || to >= c.Size() {
		return nil, opError("call", fmt.Errorf("%w: rank %d of %d ranks, for function %q", ErrInvalidRank, to, c.Size(), fn))
	}
	defer c.labels.Begin(ctx, "call")()
	place := c.node.calls.Call(c.comm.ID(), c.Epoch(), c.impl.Ranks[to], fn, len(args))
	result, err := c.impl.Calls.Call(ctx, to, fn, args)
	c.node.calls.End(place, engine.Outcome(err), len(result))
	if err != nil {
		public := func() error { return opError("call", c.callError(ctx, to, fn, err)) }
		if _, stopped := errors.AsType[*rpc.CancelledError](err); stopped { // The cause is that of ctx: see explain.
			return nil, public()
		}
		return nil, c.fails(err, public)
	}
	return result, nil
}

// A Codec encodes and decodes the requests and responses of a [Func]. v is a pointer in Unmarshal.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(b []byte, v any) error
}

// Gob is the [Codec] of encoding/gob.
type Gob struct{}

// JSON is the [Codec] of encoding/json.
type JSON struct{}

// Marshal encodes v.
func (Gob) Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

// Unmarshal decodes b into v, a pointer.
func (Gob) Unmarshal(b []byte, v any) error { return gob.NewDecoder(bytes.NewReader(b)).Decode(v) }

// Marshal encodes v.
func (JSON) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal decodes b into v, a pointer.
func (JSON) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

// A Func is a function that ranks call with a Req and that returns a Resp:
//
//	var square = nexar.Func[int, int]{Name: "square"}
//
//	square.Register(comm, func(ctx context.Context, from int, x int) (int, error) { return x * x, nil })
//	y, err := square.Call(ctx, comm, 2, 7)
type Func[Req, Resp any] struct {
	Name  string
	Codec Codec // Gob if nil; the same on all ranks
}

// Register registers h under f.Name, as [Comm.Register] does. If a request cannot be decoded, its
// caller gets a [HandlerError].
func (f Func[Req, Resp]) Register(c *Comm, h func(ctx context.Context, from int, req Req) (Resp, error)) {
	if h == nil {
		c.Register(f.Name, nil) // which panics
	}
	c.Register(f.Name, func(ctx context.Context, from int, args []byte) ([]byte, error) {
		var req Req
		if err := f.codec().Unmarshal(args, &req); err != nil {
			return nil, fmt.Errorf("its argument cannot be decoded: %w", err)
		}
		resp, err := h(ctx, from, req)
		if err != nil {
			return nil, err
		}
		result, err := f.codec().Marshal(&resp)
		if err != nil {
			return nil, fmt.Errorf("its result cannot be encoded: %w", err)
		}
		return result, nil
	})
}

// Call calls the function of rank to, as [Comm.Call] does.
func (f Func[Req, Resp]) Call(ctx context.Context, c *Comm, to int, req Req) (resp Resp, err error) {
	args, err := f.codec().Marshal(&req)
	if err != nil {
		return resp, opError("call", fmt.Errorf("the argument of function %q cannot be encoded: %w", f.Name, err))
	}
	result, err := c.Call(ctx, to, f.Name, args)
	if err != nil {
		return resp, err
	}
	if err := f.codec().Unmarshal(result, &resp); err != nil {
		return resp, opError("call", fmt.Errorf("the result of function %q of rank %d cannot be decoded: %w", f.Name, to, err))
	}
	return resp, nil
}

func (f Func[Req, Resp]) codec() Codec {
	if f.Codec == nil {
		return Gob{}
	}
	return f.Codec
}

// callError turns an error of internal/rpc, of a call with ctx, into one of this
// package.
func (c *Comm) callError(ctx context.Context, rank int, fn string, err error) error {
	n := c.impl.Nodes[rank]
	e := &CallError{Rank: rank, Node: NodeID(n.ID), Addr: n.Addr(), Fn: fn, Err: err}
	if known, ok := errors.AsType[*rpc.GoneError](err); ok {
		return c.lost(rank, known.Err)
	}
	switch known := err.(type) { //nolint:errorlint // a CallError keeps an error that wraps another
	case *rpc.CancelledError:
		e.Err = known.Err
		if ctx.Err() != nil {
			e.Err = cancelled(ctx)
		}
		// The called rank may tell that the deadline has passed before this one notices.
		if _, limited := ctx.Deadline(); limited && !errors.Is(ctx.Err(), context.Canceled) && errors.Is(e.Err, context.DeadlineExceeded) {
			sentence := fmt.Sprintf("Rank %d waits in call of %q at rank %d", c.impl.Ranks[c.impl.Rank], fn, c.impl.Ranks[rank])
			e.Err = &DeadlineError{Waiting: []int{rank}, Sentence: sentence, Err: e.Err}
		}
		if waited := known.Turn.String(); waited != "" {
			e.Err = fmt.Errorf("%w: %s (%s=%d)", e.Err, waited, variable("MaxConcurrentCalls"), known.Turn.Max)
		}
	case *rpc.AnswerError:
		e.Err = answerError(known)
	}
	return e
}

// answerError is the reason of a call that was answered without a result.
func answerError(e *rpc.AnswerError) error {
	switch e.Status {
	case wire.RemoteFailed:
		return &HandlerError{Text: e.Text}
	case wire.RemotePanicked:
		return &PanicError{Text: e.Text}
	case wire.RemoteUnknown:
		return ErrUnknownFunction
	case wire.RemoteBusy:
		return fmt.Errorf("%w: %s", ErrBusy, e.Reason())
	}
	return fmt.Errorf("%w: %s", ErrTooLarge, e.Reason())
}

// lost says why a call of a function of a rank will have no answer.
func (c *Comm) lost(rank int, err error) error {
	if e, ok := errors.AsType[*engine.EndedError](err); ok {
		return c.impl.Gone(e.Err)
	}
	switch {
	case errors.Is(err, ErrPeerFailed), errors.Is(err, ErrRevoked), errors.Is(err, ErrClosed):
		return err
	case c.translate(err) != nil:
		return c.impl.Gone(err)
	}
	return c.peerError(rank, false, err) // It has broken the protocol.
}

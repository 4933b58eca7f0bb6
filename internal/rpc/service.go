// Package rpc lets the ranks of a communicator call functions of each other. It
// matches calls and answers over any carrier of messages.
//
// Most callers make one Service for each communicator, give it functions, and
// call those of others:
//
//	s, err := rpc.New(port, rank, size, rpc.Config{})
//	err = s.Register("sum", sum)
//	result, err := s.Call(ctx, 3, "sum", args)
//
// A call is carried out at most once. Call returns its result or an error with its
// fate, at the latest as soon as ctx has ended. The remaining time of ctx travels with
// the call, and limits the context of the function. When ctx ends, that context ends
// as soon as a message has told so. Calls overtake each other: a slow function, or long
// arguments, delay no other call.
//
// A call fails if the function is unknown, returns an error or panics, if its
// arguments or result are too long, if its rank is busy or goes away, and if
// the Service is closed. Each of these is a type of error, which names the rank
// and the function. A peer that breaks the protocol is reported to Config.Broken, and
// treated like one that has gone.
//
// All methods may be called on several goroutines at once. Each incoming call runs in
// a goroutine of its own; an idle Service has none. The goroutine that calls Arrived
// handles the messages, without waiting and without calling code of users. Close ends
// everything but handlers that ignore their context; Wait waits for these.
//
// The resources that one peer can make a Service use are bounded: Config.InFlight
// calls, with Config.InFlightBytes of arguments; twice as many goroutines, with the
// results that it has not taken; Config.PayloadMax for each call to it that it has not
// answered; a little more than four times InFlight messages of up to 64 KiB that were
// announced and do not come; and 2^18 refusals of a few bytes. A peer that announces
// more, or does not read more answers, breaks the protocol.
package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Handler is a function that ranks can call. Its arguments are its own to
// keep and change. The result must not be changed any more.
//
// The context ends when the caller's deadline has passed, when the caller has
// cancelled the call or has gone, when the Service is closed, and after the
// Handler has returned. Its cause says which.
type Handler func(ctx context.Context, from int, args []byte) ([]byte, error)

// A Config configures a Service. Its limits should be the same on all ranks.
type Config struct {
	// Timeout limits calls without a deadline in their context. 0 is no limit.
	Timeout time.Duration
	// InFlight is how many calls this rank has under way to each other rank,
	// and takes of each; 1024 if 0, at most 2^18. Further calls to a rank wait
	// for their turn, and those of others get a BusyError. A call is under way
	// until it is answered: one that was cancelled, until its Handler has
	// returned.
	InFlight int
	// InFlightBytes is the same for the bytes of arguments of these calls, at
	// most 1 TiB; PayloadMax if it is less.
	InFlightBytes int
	// PayloadMax is the longest arguments and the longest result, in bytes;
	// 1 GiB if 0, at most 1 TiB.
	PayloadMax int
	// Log is told of Handlers that panic; nil discards that.
	Log *slog.Logger
	// Broken, if not nil, is called for a rank that has broken the protocol. It must
	// not block.
	Broken func(source int, err error)
}

const (
	inFlight    = 1 << 10
	inFlightMax = 1 << 18
	payloadMax  = 1 << 30
	bytesMax    = 1 << 40 // of any limit, so that no sum of them overflows
)

// withDefaults replaces zero fields by their defaults.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Timeout < 0:
		return c, fmt.Errorf("rpc: a timeout of %v", c.Timeout)
	case c.InFlight < 0 || c.InFlight > inFlightMax:
		return c, fmt.Errorf("rpc: %d calls in flight, at most %d", c.InFlight, inFlightMax)
	case c.InFlightBytes < 0 || c.PayloadMax < 0 || int64(max(c.InFlightBytes, c.PayloadMax)) > bytesMax:
		return c, fmt.Errorf("rpc: payloads of %d bytes, and %d bytes in flight, at most %d", c.PayloadMax, c.InFlightBytes, int64(bytesMax))
	}
	if c.InFlight == 0 {
		c.InFlight = inFlight
	}
	if c.PayloadMax == 0 {
		c.PayloadMax = payloadMax
	}
	c.InFlightBytes = max(c.InFlightBytes, c.PayloadMax)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// A Service makes calls of one rank, and carries out those of others.
type Service struct {
	port Port
	rank int
	cfg  Config

	peers []peer // by rank, itself included

	registering sync.Mutex
	functions   atomic.Pointer[map[string]*function]

	arrivals atomic.Uint64 // calls of Arrived that poll has not served yet
	takings  sync.Pool     // of *taking
	calls    sync.Pool     // of *call

	closing sync.Once
	closed  atomic.Bool
	work    atomic.Int64  // goroutines and messages under way, and 1 until Close
	idle    chan struct{} // closed when there are none any more
}

// A function is a Handler with its name.
type function struct {
	name    string
	handler Handler
}

// New makes the Service of a rank among size ranks, which sends and receives
// through port.
func New(port Port, rank, size int, cfg Config) (*Service, error) {
	if rank < 0 || rank >= size {
		panic("rpc: a rank outside its communicator")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service{port: port, rank: rank, cfg: cfg, peers: make([]peer, size), idle: make(chan struct{})}
	s.functions.Store(new(map[string]*function))
	s.work.Store(1)
	for i := range s.peers {
		s.peers[i].init(s, i)
	}
	return s, nil
}

// Register lets ranks call h under the name fn, of at most 255 bytes. A name
// that is taken stays with its function: to register it again is ErrTaken. A
// call that comes before its function is registered is an UnknownError.
func (s *Service) Register(fn string, h Handler) error {
	if err := checkName(fn); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if h == nil {
		return fmt.Errorf("register %q: %w", fn, ErrHandler)
	}
	s.registering.Lock()
	defer s.registering.Unlock()
	old := *s.functions.Load()
	if old[fn] != nil {
		return fmt.Errorf("register %q: %w", fn, ErrTaken)
	}
	all := make(map[string]*function, len(old)+1)
	maps.Copy(all, old)
	all[fn] = &function{fn, h}
	s.functions.Store(&all)
	return nil
}

func checkName(fn string) error {
	if len(fn) == 0 || len(fn) > wire.RemoteNameMax {
		return fmt.Errorf("a name of %d bytes: %w", len(fn), ErrName)
	}
	return nil
}

// Lost says that a rank has left or failed: all calls that wait for it, and
// those to come, are a LostError with err, and handlers that it has called are
// cancelled.
func (s *Service) Lost(rank int, err error) { s.peers[rank].end(&ending{err: err}) }

// Close ends all calls, and those to come, with a ClosedError with err, and
// cancels all handlers. It does not wait for them; see Wait. Only the first
// Close counts.
func (s *Service) Close(err error) {
	s.closing.Do(func() {
		s.closed.Store(true)
		for i := range s.peers {
			s.peers[i].end(&ending{closed: true, err: err})
		}
		s.release()
	})
}

// Wait waits after Close until nothing of the Service runs any more: no
// handler, no Send, no Take. It fails only if ctx ends before that; one that has
// ended only asks.
func (s *Service) Wait(ctx context.Context) error {
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
	}
	// Both may be so, and that nothing runs counts.
	select {
	case <-s.idle:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// begin counts something that Wait has to wait for, until release. It fails when
// the waiting is over, which it cannot be as long as a peer has not ended.
func (s *Service) begin() bool {
	for {
		n := s.work.Load()
		if n == 0 {
			return false
		}
		if s.work.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *Service) release() {
	if s.work.Add(-1) == 0 {
		close(s.idle)
	}
}

// send sends a message, be it to this rank itself, which gets a copy as others
// do.
func (s *Service) send(to int, parts ...[]byte) error {
	if to != s.rank {
		return s.port.Send(to, parts...)
	}
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	p := &s.peers[to]
	if ok, err := p.accept(n); !ok {
		return cmp.Or(err, ErrRefused)
	}
	b := make([]byte, 0, n)
	for _, part := range parts {
		b = append(b, part...)
	}
	p.taken(b, nil)
	return nil
}

// broken ends a peer that has broken the protocol.
func (s *Service) broken(rank int, err error) {
	if rank == s.rank {
		panic(err)
	}
	err = fmt.Errorf("rpc: protocol error: %w", err)
	if s.peers[rank].end(&ending{err: err}) && s.cfg.Broken != nil {
		s.cfg.Broken(rank, err)
	}
}

// An ending is the reason why nothing more is exchanged with a peer.
type ending struct {
	closed bool
	err    error
}

// of is the error of a call.
func (e *ending) of(rank int, fn string) error {
	if e.closed {
		return &ClosedError{rank, fn, e.err}
	}
	return &LostError{rank, fn, e.err}
}

// cause is why a handler is cancelled.
func (e *ending) cause(from int, fn string) error {
	if e.closed {
		return fmt.Errorf("call of %q by rank %d: %w", fn, from, e.err)
	}
	return fmt.Errorf("rank %d, which has called %q, has gone: %w", from, fn, e.err)
}

var errClosed = errors.New("closed")

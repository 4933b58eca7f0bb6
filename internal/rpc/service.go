// Package rpc lets the ranks of a communicator call functions of each other. It matches calls
// and answers over any carrier of messages.
//
// A communicator has one [Service] on each rank:
//
//	s, err := rpc.New(port, rank, size, rpc.Config{})
//	err = s.Register("sum", sum)
//	result, err := s.Call(ctx, 3, "sum", args)
//
// A call is carried out at most once. Call returns its result or an error, at the latest when
// ctx ends. The remaining time of ctx is sent with the call and limits the context of the
// function. When ctx ends, a cancellation ends that context. Calls are independent: a slow
// function or long arguments delay no other call.
//
// A call fails if the function is unknown, returns an error or panics, if its arguments or
// result are too long, if its rank is busy or gone, and if the Service is closed. Each of these
// has an error type that names the rank and the function. A peer that breaks the protocol is
// reported to Config.Broken, and treated as gone.
//
// All methods may be called concurrently. Each incoming call runs on a separate goroutine; an
// idle Service has none. The goroutine that calls Arrived handles messages without blocking and
// without calling functions of users. Close ends everything except handlers that ignore their
// context; Wait waits for these.
//
// The resources that one peer can make a Service use are bounded: Config.InFlight calls with
// Config.InFlightBytes of arguments; twice as many goroutines, with the results that the peer
// has not read; Config.PayloadMax for each call to the peer without an answer; about four times
// InFlight announced messages of up to 128 KiB that do not arrive; and 2^18 refusals of a few
// bytes. A peer that announces more, or does not read more answers, breaks the protocol.
//
// Up to 128 KiB of arguments are copied, so that a cancelled call can return at once. A cancelled call counts as in progress until its
// answer has arrived, since its function may still run. The goroutine that reads the lane starts another one after 64 messages in a row,
// and for a message of more than 1 MiB.
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

// A Handler is a function that ranks can call. It owns its arguments. The result must not be
// changed afterwards.
//
// The context ends when the caller's deadline has passed, when the caller has cancelled the
// call or is gone, when the Service is closed, and after the Handler has returned. Its cause is
// the reason.
type Handler func(ctx context.Context, from int, args []byte) ([]byte, error)

// A Config configures a Service. Its limits should be the same on all ranks. None is negative.
type Config struct {
	// Timeout bounds calls with a context without a deadline. 0 means no limit.
	Timeout time.Duration
	// InFlight bounds the calls in flight from one rank to another; 1024 if 0, at most 2^18.
	// Further calls of this rank are queued, and those of other ranks fail with an AnswerError. A
	// call is in flight until its answer; a cancelled one, until its Handler has returned.
	InFlight int
	// InFlightBytes bounds the bytes of arguments of these calls. It is at least PayloadMax.
	InFlightBytes int
	// PayloadMax bounds the length of arguments and of a result in bytes; 1 GiB if 0.
	PayloadMax int
	// Log receives the panics of Handlers. Nil discards them.
	Log *slog.Logger
	// Broken, if not nil, is called for a rank that has broken the protocol. It must
	// not block.
	Broken func(source int, err error)
}

const (
	inFlight    = 1 << 10
	inFlightMax = 1 << 18
	payloadMax  = 1 << 30
)

// withDefaults replaces zero fields by their defaults.
func (c Config) withDefaults() Config {
	c.InFlight = cmp.Or(c.InFlight, inFlight)
	c.PayloadMax = cmp.Or(c.PayloadMax, payloadMax)
	c.InFlightBytes = max(c.InFlightBytes, c.PayloadMax)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Service makes the calls of one rank, and carries out those of others.
type Service struct {
	port Port
	rank int
	cfg  Config

	// peers has the ranks, including this one, that a call, a message or a loss was about. [Service.peer] adds one: most
	// ranks of a large world never call each other.
	peers  []atomic.Pointer[peer]
	adding sync.Mutex
	ending *ending // of peers that are added from now on; guarded by adding

	registering sync.Mutex
	functions   atomic.Pointer[map[string]*function]

	arrived atomic.Uint64 // calls of Arrived that poll has not handled
	takings sync.Pool     // of *taking
	calls   sync.Pool     // of *call

	closing sync.Once
	closed  atomic.Bool
	work    atomic.Int64  // goroutines and messages in flight, and 1 until Close
	idle    chan struct{} // closed when work is 0
}

// A function is a Handler with its name.
type function struct {
	name    string
	handler Handler
}

// New returns the Service of a rank among size ranks, which sends and receives over
// port.
func New(port Port, rank, size int, cfg Config) *Service {
	s := &Service{port: port, rank: rank, cfg: cfg.withDefaults(), peers: make([]atomic.Pointer[peer], size), idle: make(chan struct{})}
	s.functions.Store(new(map[string]*function))
	s.work.Store(1)
	return s
}

// Register makes h callable under the name fn, of at most 255 bytes. A second
// registration of a name is ErrTaken. A call that arrives before its function is
// registered fails with an AnswerError.
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
		return fmt.Errorf("name of %d bytes: %w", len(fn), ErrName)
	}
	return nil
}

// Lost reports that a rank has left or failed: current and later calls to it fail with
// a GoneError with err, and handlers of its calls are cancelled.
func (s *Service) Lost(rank int, err error) { s.peer(rank).end(&ending{err: err}) }

// peer returns the state shared with a rank.
func (s *Service) peer(rank int) *peer {
	if p := s.peers[rank].Load(); p != nil {
		return p
	}
	s.adding.Lock()
	defer s.adding.Unlock()
	p := s.peers[rank].Load()
	if p == nil {
		p = newPeer(s, rank)
		p.ending = s.ending
		s.peers[rank].Store(p)
	}
	return p
}

// eachPeer calls f for the peers that [Service.peer] has added.
func (s *Service) eachPeer(f func(p *peer)) {
	for i := range s.peers {
		if p := s.peers[i].Load(); p != nil {
			f(p)
		}
	}
}

// Close ends current and later calls with a GoneError with err, and cancels all
// handlers. It does not wait for them; see Wait. Only the first Close counts.
func (s *Service) Close(err error) {
	s.closing.Do(func() {
		s.closed.Store(true)
		e := &ending{closed: true, err: cmp.Or(err, errClosed)}
		s.adding.Lock()
		s.ending = e
		s.adding.Unlock()
		s.eachPeer(func(p *peer) { p.end(e) })
		s.release()
	})
}

// Wait waits after Close until no handler, Send or Take of the Service runs. It fails only if
// ctx ends first.
func (s *Service) Wait(ctx context.Context) error {
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
	}
	// If both are ready, idle takes precedence.
	select {
	case <-s.idle:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// begin counts a goroutine or message that Wait waits for, until release. It fails when
// Wait may have returned, which requires that all peers have ended.
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

// send sends a message, also to this rank itself, which gets a copy.
func (s *Service) send(to int, parts ...[]byte) error {
	if to != s.rank {
		return s.port.Send(to, parts...)
	}
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	p := s.peer(to)
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
	if s.peer(rank).end(&ending{err: err}) && s.cfg.Broken != nil {
		s.cfg.Broken(rank, err)
	}
}

// An ending is the reason for the end of the exchange with a peer.
type ending struct {
	closed bool
	err    error
}

// of returns the error of a call.
func (e *ending) of(rank int, fn string) error {
	return &GoneError{rank, fn, e.closed, e.err}
}

// cause returns the cause for the cancellation of a handler.
func (e *ending) cause(from int, fn string) error {
	if e.closed {
		return fmt.Errorf("call of %q by rank %d: %w", fn, from, e.err)
	}
	return fmt.Errorf("rank %d, which has called %q, is gone: %w", from, fn, e.err)
}

var errClosed = errors.New("closed")

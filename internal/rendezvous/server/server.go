// Package server is the seed: it admits nodes, forms the world with them, and decides with
// the [membership.Arbiter] which nodes are in each of its views.
//
// One goroutine, the loop, owns all state: the formation, the arbiter, the pending joins, the
// record of all decisions, and the timers. Connections have goroutines of
// their own, which hand the loop functions to run ([Server.call]) and get their answers by
// the outbox of the connection. The loop never blocks.
//
// Each decision is a change that is appended to a [consensus.Log] and takes effect when the log
// returns it. A seed without a state directory has a log in memory (localLog); with one, also
// if it is alone, it has the replicated log. A seed with a replicated log gives nodes time to
// connect again; to a seed without one a lost connection is a lost node.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

// FormTimeout is the default of Config.FormTimeout.
const FormTimeout = 5 * time.Minute

// Config configures a Server.
type Config struct {
	// Transport accepts the connections of nodes. They must be transport.TLSConn, under
	// the credentials of Authority.Joining. The caller closes it after the Server. The
	// Transport bounds the number of connections that have not proved the token; it learns
	// of the proof if its connections are transport.Provers.
	Transport transport.Transport

	// Authority signs the certificates of nodes. Of several seeds, the first leader's is
	// that of the cluster.
	Authority *pki.Authority

	// Quorum, if not nil, makes the seed durable: it keeps its decisions on disk, and agrees
	// on them with other seeds.
	Quorum *Quorum

	// Token is the cluster token. It may be missing or weak only if Transport listens on
	// loopback.
	Token pki.Token

	// World is the number of nodes with which the world forms, at least 1.
	World int

	// Elastic lets nodes join a formed world of up to Max nodes; 0 means no limit. Spares
	// replace nodes that have gone in any case.
	Elastic bool
	Max     int

	// Min is the least number of nodes of a view: with fewer, the world waits for others.
	Min int

	// FormTimeout bounds the time until the world has formed. Zero means 5 minutes, a
	// negative value no limit.
	FormTimeout time.Duration

	// CertificateLife is how long certificates are valid. Zero means 24 hours.
	CertificateLife time.Duration

	// Log receives events. Nil discards them.
	Log *slog.Logger

	Limits handshake.Limits // zero: the defaults
}

// A Server is a running seed. Its methods may be called by several goroutines.
type Server struct {
	cfg     Config
	log     *slog.Logger
	lim     handshake.Limits
	durable bool            // nodes wait for this seed, or turn to others, when it is gone
	ctx     context.Context // ends when Close is called
	cancel  context.CancelFunc
	once    sync.Once
	began   time.Time
	ready   chan struct{} // closed when this seed has led
	decided chan struct{} // closed when the world has formed or failed
	over    chan struct{} // closed when it has failed, or all its nodes have gone
	conns   sync.WaitGroup
	calls   chan func()
	quit    chan struct{} // closed when the loop is to end
	stopped chan struct{} // closed when it has ended

	throttle throttle
	events   *events
	askers   chan struct{} // a token for each client that asks for the status
	peers    *peers
	replica  consensus.Log // set before opened is closed
	opened   chan struct{}

	state state // owned by the loop
}

// state belongs to the loop.
type state struct {
	record     record
	failure    error // why the world did not form, as the leader knows it
	err        error // why the world did not form
	broken     error // why this seed cannot go on
	leads      uint64
	term       uint64
	inFlight   int     // changes that were proposed and have not been applied
	leader     *leader // nil: this seed does not lead, or has not begun to
	polling    polling
	leaderless *timer // until the lack of a leader is logged
	// deserted is the epoch of the view that this seed had when it was started, until a node
	// of that view is back; 0: none.
	deserted uint64
	end      ending
}

// Serve starts a seed.
func Serve(cfg Config) (*Server, error) {
	if cfg.Transport == nil || cfg.Authority == nil {
		return nil, errors.New("Config needs a Transport and an Authority")
	}
	if err := cfg.Token.Check(cfg.Transport.Addr()); err != nil {
		return nil, fmt.Errorf("%w: %w", handshake.ErrToken, err)
	}
	if cfg.FormTimeout == 0 {
		cfg.FormTimeout = FormTimeout
	}
	if cfg.Min > cfg.World || cfg.Max > 0 && cfg.Max < cfg.World {
		return nil, fmt.Errorf("a world of %d nodes cannot have at least %d and at most %d", cfg.World, cfg.Min, cfg.Max)
	}
	if _, err := membership.NewFormation(cfg.World, cfg.FormTimeout, time.Now()); err != nil {
		return nil, err
	}
	durable := cfg.Quorum != nil
	if !durable {
		cfg.Quorum = &Quorum{Self: alone, Seeds: []string{alone}, Open: openLocal}
	} else if err := cfg.Quorum.check(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		log:     cfg.Log,
		lim:     cfg.Limits.WithDefaults(durable),
		durable: durable,
		began:   time.Now(),
		ready:   make(chan struct{}),
		decided: make(chan struct{}),
		over:    make(chan struct{}),
		calls:   make(chan func()),
		quit:    make(chan struct{}),
		stopped: make(chan struct{}),
		opened:  make(chan struct{}),
		events:  newEvents(),
		askers:  make(chan struct{}, askersMax),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.peers = newPeers(s)
	s.state.leaderless = s.after(leaderlessAfter, s.logLeaderless)
	go s.loop()
	if err := s.start(); err != nil {
		s.cancel()
		s.call(s.stopTimers)
		s.stopLoop()
		return nil, err
	}
	return s, nil
}

// start opens the log and begins to accept connections.
func (s *Server) start() (err error) {
	q := s.cfg.Quorum
	s.replica, err = q.Open(consensus.Config{
		Self: s.peers.self, Seeds: s.peers.ids(), Dir: q.Dir, ForgetState: q.ForgetState, StateMachine: machine{s}, Send: s.peers.send, Logger: s.log,
	})
	if err != nil {
		return err
	}
	close(s.opened)
	s.conns.Go(s.watchLog)
	if len(q.Seeds) == 1 { // It leads in a moment, and nodes need not come twice.
		select {
		case <-s.ready:
		case <-s.replica.Done():
		case <-s.over: // It cannot lead.
		}
	}
	s.peers.start()
	s.conns.Go(s.acceptAll)
	return nil
}

// loop runs the functions that are handed to call and post, one after the other.
func (s *Server) loop() {
	defer close(s.stopped)
	for {
		select {
		case f := <-s.calls:
			f()
		case <-s.quit:
			return
		}
	}
}

func (s *Server) stopLoop() {
	close(s.quit)
	<-s.stopped
}

// post has f run by the loop. It reports false if the loop has ended.
func (s *Server) post(f func()) bool {
	select {
	case s.calls <- f:
		return true
	case <-s.stopped:
		return false
	}
}

// call has f run by the loop, and waits for it.
func (s *Server) call(f func()) bool {
	done := make(chan struct{})
	if !s.post(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// read has f read the state, also when the loop has ended.
func (s *Server) read(f func()) {
	if !s.call(f) {
		f()
	}
}

// A timer runs a function in the loop unless the loop has stopped it before.
type timer struct {
	t       *time.Timer
	stopped bool
}

// after returns a timer that runs f after d, or one that is stopped if Close was called:
// connections that end during Close start no timers.
func (s *Server) after(d time.Duration, f func()) *timer {
	t := new(timer)
	if s.ctx.Err() != nil {
		t.stopped = true
		return t
	}
	t.t = time.AfterFunc(d, func() {
		s.post(func() {
			if !t.stopped {
				f()
			}
		})
	})
	return t
}

// stop stops a timer, which may be nil.
func (t *timer) stop() {
	if t != nil && !t.stopped {
		t.stopped = true
		t.t.Stop()
	}
}

// Wait returns nil when the world has formed, or the reason why it has not. It
// knows that also if ctx has ended.
func (s *Server) Wait(ctx context.Context) (err error) {
	select {
	case <-s.decided:
	case <-ctx.Done():
		if !isClosed(s.decided) {
			return context.Cause(ctx)
		}
	}
	s.read(func() {
		switch {
		case s.state.broken != nil:
			err = s.state.broken
		case s.state.err != nil:
			err = fmt.Errorf("the world did not form: %w", s.state.err)
		}
	})
	return err
}

// Broken returns why this seed cannot go on, nil if it can.
func (s *Server) Broken() (err error) {
	s.read(func() { err = s.state.broken })
	return err
}

// Close ends the seed. Nodes that wait for the world are told that it will not form; a world
// that has formed goes on without it, until a node fails. If the seed is durable, nodes wait
// for it or turn to others.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.call(func() {
			s.stopTimers()
			if l := s.state.leader; l != nil && !s.durable {
				s.apply(l.form.Abort(fmt.Errorf("the seed was %w", handshake.ErrClosed)))
			}
		})
		s.replica.Close() // A local log applies all proposals first.
		s.call(func() {
			s.stopTimers()
			if l := s.state.leader; l != nil {
				for _, c := range l.nodes {
					c.out.Close(nil)
				}
			}
		})
		s.conns.Wait()
		s.stopLoop()
	})
	return nil
}

// stopTimers stops all timers.
func (s *Server) stopTimers() {
	s.state.leader.stopTimers()
	for _, t := range []*timer{s.state.leaderless, s.state.end.check} {
		t.stop()
	}
	if p := s.state.polling.current; p != nil {
		p.due.stop()
	}
}

// acceptAll serves every connection on a goroutine of its own.
func (s *Server) acceptAll() {
	for {
		conn, err := s.cfg.Transport.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Error("seed can no longer be reached", "err", err)
				s.call(func() {
					if l := s.state.leader; l != nil {
						s.apply(l.form.Abort(fmt.Errorf("the seed can no longer be reached: %w", err)))
					}
				})
			}
			return
		}
		s.conns.Go(func() { s.serve(handshake.New(conn)) })
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

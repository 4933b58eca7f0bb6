// Package server is the seed: it admits nodes, forms the world, and decides with the
// [membership.Arbiter] which nodes are in each view.
//
// One goroutine, the loop, owns all state: the replicated state of the cluster, the formation,
// the arbiter, the pending joins and the timers. Connections have separate goroutines, which
// pass functions to the loop ([Server.call]); the loop answers through the outbox of the
// connection. It never blocks.
//
// Each decision is a change that is appended to a log and takes effect when the log is applied.
// A seed without a state directory has a queue as its log, which the loop applies immediately. A seed with a
// state directory, even a single seed, has a replicated log. A decision counts when it is written to the log of a
// majority of the seeds, so it outlives the seed.
//
// The end of a connection does not show that the process of the node has ended. So nodes get time to reconnect to this seed or another,
// unless their hosts say that their processes have ended ([Config.HasEnded]). A seed that was suspended gives this time to all nodes.
//
// A node without a connection is gone after 15 s, or when its host refuses connections at its port; if others have lost it,
// after 200 ms. The loop takes a turn each second. If one is late, the arbiter asks again before it decides. When a world is over, the
// leader waits until each reachable seed has acknowledged this, from 1 s to 10 s, and all seeds end with one last entry.
//
// Status requests of clients are served by polls of all nodes: one at a time serves all clients that connect during it, at most four
// begin in a second, and each ends after 2 s.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/callback"
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
	// of the proof if its connections have a [transport.Authenticator].
	Transport transport.Transport

	// Authority signs the certificates of nodes. Of several seeds, the cluster uses the
	// authority of the first leader.
	Authority *pki.Authority

	// Adopt, if not nil, is called with the authority of the cluster when the log has one, or another one
	// than before. From then on, Transport should use its credentials: nodes that rejoin verify
	// them.
	Adopt func(*pki.Authority) error

	// Replication, if not nil, gives the seed a replicated log: the seed writes its decisions to disk,
	// and agrees on them with the other seeds, if any.
	Replication *Replication

	// Token is the cluster token. It may be missing or weak only if Transport listens on
	// loopback.
	Token pki.Token

	// World is the number of nodes with which the world forms, at least 1.
	World int

	// Elastic lets nodes join a formed world of up to Max nodes; 0 means no limit. Spares
	// replace nodes that have gone in any case.
	Elastic bool
	Max     int

	// Min is the minimum number of nodes of a view: with fewer, the world waits for others.
	Min int

	// FormTimeout bounds the time until the world has formed. Zero means 5 minutes, a
	// negative value no limit.
	FormTimeout time.Duration

	// CertificateLife is how long certificates are valid. Zero means 24 hours.
	CertificateLife time.Duration

	// CheckAddress, if not nil, dials a node at an address that it advertises, and returns why the node was
	// not reached. It returns nil if it has no transport in common with the node. It is called
	// concurrently, and ends with ctx.
	CheckAddress func(ctx context.Context, addr string, node membership.Node) error

	// HasEnded, if not nil, asks the host of a node, and reports whether the process of the node is known to have ended. It
	// is called concurrently, and ends with ctx.
	HasEnded func(ctx context.Context, node membership.Node) bool

	// Log receives events. Nil discards them.
	Log *slog.Logger

	Limits handshake.Limits // zero: the defaults
}

// A Server is a running seed. Its methods may be called by several goroutines.
type Server struct {
	cfg     Config
	log     *slog.Logger
	lim     handshake.Limits
	durable bool // decisions are written to a replicated log, and nodes reconnect
	cancel  context.CancelFunc
	once    callback.Once
	began   time.Time
	conns   sync.WaitGroup

	loop

	throttle      throttle
	gate          *handshake.Gate // of views to nodes
	addressChecks chan struct{}   // a token for each address check in progress
	statusClients chan struct{}   // a token for each status request in progress
	peers         *peers
	opened        chan struct{} // closed when replica is set
	replica       consensus.Log // the replicated log; nil without one

	state state // owned by the loop
}

// state belongs to the loop.
type state struct {
	cluster  clusterState
	queue    [][]byte // the log of a seed without a replicated log
	events   []Event  // for Follow
	decided  bool     // the world has formed or failed
	over     bool     // it has failed, or all its nodes have gone
	failure  error    // why the world did not form, as the leader knows it
	err      error    // why the world did not form
	broken   error    // why this seed cannot continue
	leads    uint64   // ID of the seed that leads; 0: unknown
	term     uint64
	inFlight int     // changes that were proposed and have not been applied
	leader   *leader // nil: this seed does not lead, or has not begun to
	polling  polling
	turn     time.Time // when the loop has run last

	leaderless *timer // until the lack of a leader is logged
	// deserted is the epoch of the view of this seed at its start, until a node of that view
	// reconnects; 0: none.
	deserted uint64
	end      ending
}

// helloPerNode is the time that a seed has for the handshake of a node when all nodes of a world connect at once, on a host
// with few processors that the nodes share. Limits.Step bounds it: a node gives up an attempt to join after that.
const helloPerNode = 20 * time.Millisecond

// A seed writes long frames to one in gateShare nodes of its world at a time, and to gateMin at least.
const (
	gateMin   = 2
	gateShare = 64
)

// limits fills in the defaults of l for a world of n nodes.
func limits(l handshake.Limits, durable bool, n int) handshake.Limits {
	all := l.WithDefaults(durable)
	if l.Hello == 0 {
		all.Hello = max(all.Hello, min(time.Duration(n)*helloPerNode, all.Step))
	}
	return all
}

// Serve starts a seed.
func Serve(cfg Config) (*Server, error) {
	if cfg.Transport == nil || cfg.Authority == nil {
		return nil, errors.New("Config needs a Transport and an Authority")
	}
	if err := cfg.Token.Check(cfg.Transport.Addr()); err != nil {
		return nil, fmt.Errorf("%w: %w", handshake.ErrToken, err)
	}
	cfg.FormTimeout = cmp.Or(cfg.FormTimeout, FormTimeout)
	if cfg.Min > cfg.World || cfg.Max > 0 && cfg.Max < cfg.World {
		return nil, fmt.Errorf("a world of %d nodes cannot have at least %d and at most %d", cfg.World, cfg.Min, cfg.Max)
	}
	if _, err := membership.NewFormation(cfg.World, cfg.FormTimeout, time.Now()); err != nil {
		return nil, err
	}
	durable := cfg.Replication != nil
	if !durable {
		cfg.Replication = &Replication{Self: alone, Seeds: []string{alone}}
	} else if err := cfg.Replication.check(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg:           cfg,
		log:           cfg.Log,
		lim:           limits(cfg.Limits, durable, cfg.World),
		durable:       durable,
		began:         time.Now(),
		opened:        make(chan struct{}),
		gate:          handshake.NewGate(max(gateMin, cfg.World/gateShare)),
		statusClients: make(chan struct{}, clientsMax),
		addressChecks: make(chan struct{}, addressChecksMax),
		state:         state{turn: time.Now()},
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.loop = newLoop(ctx)
	s.peers = newPeers(s)
	s.state.leaderless = s.after(leaderlessAfter, s.logLeaderless)
	s.keepTurning()
	go s.run(s.turn)
	if err := s.start(); err != nil {
		s.cancel()
		s.call(s.stopTimers)
		s.stopLoop()
		return nil, err
	}
	return s, nil
}

// start opens the log and begins to accept connections.
func (s *Server) start() error {
	if q := s.cfg.Replication; s.durable {
		replica, err := q.Open(consensus.Config{
			Self: s.peers.self, Seeds: s.peers.ids(), Dir: q.Dir, StateMachine: machine{s}, Send: s.peers.send, Logger: s.log, ForgetState: q.ForgetState,
		})
		if err != nil {
			return err
		}
		s.call(func() { s.replica = replica })
		close(s.opened)
		s.conns.Go(s.watchLog)
	} else {
		s.call(func() { s.setLeader(s.peers.self, 1) })
	}
	if !s.peers.others() { // It leads in a moment, so that nodes need not connect twice.
		s.await(s.ctx, func() bool { return s.state.leader != nil || s.state.over })
	}
	s.peers.start()
	s.conns.Go(s.acceptAll)
	return nil
}

// turn runs a function in the loop, and applies the changes that a seed without a replica has proposed.
func (s *Server) turn(f func()) {
	s.noteTurn(time.Now())
	for f(); len(s.state.queue) > 0; {
		b := s.state.queue[0]
		s.state.queue = s.state.queue[1:]
		s.commit(b)
	}
}

// afterAsLeader is after, but does not run f if the leader state has been replaced meanwhile.
func (s *Server) afterAsLeader(d time.Duration, f func()) *timer {
	l := s.state.leader
	return s.after(d, func() {
		if s.state.leader == l {
			f()
		}
	})
}

// ErrNotFormed says that the world of a seed did not form.
var ErrNotFormed = errors.New("the world did not form")

// Wait returns nil when the world has formed, and [ErrNotFormed] with the reason if it has
// failed to form. A known result takes precedence over the end of ctx.
func (s *Server) Wait(ctx context.Context) (err error) {
	if !s.await(ctx, func() bool { return s.state.decided }) {
		return context.Cause(ctx)
	}
	s.read(func() {
		switch {
		case s.state.broken != nil:
			err = s.state.broken
		case s.state.err != nil:
			err = fmt.Errorf("%w: %w", ErrNotFormed, s.state.err)
		}
	})
	return err
}

// Broken returns the reason why this seed cannot continue, or nil.
func (s *Server) Broken() (err error) {
	s.read(func() { err = s.state.broken })
	return err
}

// Ready returns nil if a node that connects to this seed can join its world, or is redirected
// to the seed that leads, and otherwise the reason why not.
func (s *Server) Ready() (err error) {
	s.read(func() {
		switch {
		case s.state.broken != nil:
			err = s.state.broken
		case s.state.err != nil:
			err = fmt.Errorf("%w: %w", ErrNotFormed, s.state.err)
		case s.state.over:
			err = errors.New("the world is over")
		case s.state.leads == 0:
			err = errors.New("no seed leads: this one does not reach a majority of the seeds")
		case s.isLeader() && s.state.leader == nil:
			err = errors.New("this seed has not begun to lead")
		}
	})
	return err
}

// Close ends the seed. Nodes that wait for the world get an error; a formed world continues
// without the seed, until a node fails. Nodes of a seed with a replicated log wait for
// it or connect to another seed.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.call(func() {
			s.stopTimers()
			if !s.durable {
				s.abort(fmt.Errorf("the seed was %w", handshake.ErrClosed))
			}
		})
		if s.replica != nil {
			s.replica.Close()
		}
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

// abort ends the formation of the world, if this seed leads.
func (s *Server) abort(err error) {
	if l := s.state.leader; l != nil {
		s.apply(l.form.Abort(err))
	}
}

// acceptAll serves every connection on a separate goroutine.
func (s *Server) acceptAll() {
	for {
		conn, err := s.cfg.Transport.Accept(s.ctx)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Error("seed can no longer be reached", "err", err)
				s.call(func() { s.abort(fmt.Errorf("the seed can no longer be reached: %w", err)) })
			}
			return
		}
		s.conns.Go(func() { s.serve(handshake.New(conn)) })
	}
}

// Package seed brings a world together.
//
// A process that is the seed calls Serve, which admits nodes over a listening
// transport until the world is full, and then sees to it that all of them
// reach each other. A node calls Seeds.Join, or Join over a conn of its own,
// and gets a Session: its identity, then the view, then the news that the
// world has formed.
//
// Joining goes in this order. The node proves that it holds the cluster token;
// only then the seed proves the same; only then the node says who it is and
// asks for a certificate. Both proofs hold for this one TLS session, so no
// side says anything to a stranger, nor to somebody in between. After that
// come the certificate and a place; when the world is full, the view; and
// when each node has reported that it is connected to all others, the word
// that the world has formed.
//
// Clients are handled on their own, with a deadline and a size limit for
// everything. Whatever one of them does, the others neither see nor wait. If
// the world cannot form, all who were admitted are told why and because of
// whom.
//
// Whoever holds the token may also ask where all nodes are, by Seeds.Status, and
// gets no place. The Server asks the nodes in turn; it neither trusts nor reads
// what they say of themselves, and no crowd of askers has it ask them more often.
//
// A Server and a Session may be used by several goroutines.
package seed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// FormTimeout is how long a world may take to form if nothing else is said.
const FormTimeout = 5 * time.Minute

// Config is what a Server needs.
type Config struct {
	// Transport is where nodes arrive. Its conns must be transport.Secured,
	// under the credentials of Authority.Joining. It stays the caller's, who
	// closes it after the Server.
	Transport transport.Transport

	// Authority signs the nodes' certificates.
	Authority *pki.Authority

	// Token is the cluster token. It must be strong, and may be missing or
	// weak only if Transport listens on loopback.
	Token pki.Token

	// World is the number of nodes with which the world forms, at least 1.
	World int

	// Elastic lets nodes join a world that has formed, until there are Max; 0 is
	// without limit. Nodes that offer themselves as spares may join in any case, and
	// replace others that have gone.
	Elastic bool
	Max     int

	// Min is the least number of nodes of a world that has formed: if others go
	// there is no new view until there are as many again.
	Min int

	// FormTimeout bounds the time until the world has formed. Zero means 5
	// minutes, a negative value that there is no limit.
	FormTimeout time.Duration

	// CertificateLife is how long certificates are valid before they have
	// to be renewed. Zero means 24 hours.
	CertificateLife time.Duration

	// Log gets what happens. Nil means nowhere.
	Log *slog.Logger

	limits limits
}

// A Server is a seed at work.
type Server struct {
	cfg     Config
	log     *slog.Logger
	lim     limits
	gate    *gate
	open    context.Context // ends when Close is called
	close   context.CancelFunc
	began   time.Time
	decided chan struct{} // closed when the world has formed or failed
	wg      sync.WaitGroup

	throttle throttle
	events   *events
	askers   chan struct{} // a token for each who is told where the nodes are

	mu     sync.Mutex // guards the rest; nothing waits while it is held
	form   *member.Formation
	state  member.State
	view   member.View
	guests map[member.NodeID]*guest
	used   map[member.NodeID]bool // by all who were ever admitted
	lobby  *member.Lobby
	// What is asked of all nodes:
	polling *poll     // under way; nil: none
	polled  time.Time // when the last one began
	polls   uint64    // how many there were
	// Once the world has formed:
	council *member.Council
	ruling  *time.Timer // when the council is to decide
}

// Serve starts to admit nodes.
func Serve(cfg Config) (*Server, error) {
	if cfg.Transport == nil || cfg.Authority == nil {
		return nil, errors.New("Config needs a Transport and an Authority")
	}
	if err := cfg.Token.Check(cfg.Transport.Addr()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	timeout := cfg.FormTimeout
	if timeout == 0 {
		timeout = FormTimeout
	}
	if cfg.Min > cfg.World || cfg.Max > 0 && cfg.Max < cfg.World {
		return nil, fmt.Errorf("a world of %d nodes cannot have at least %d and at most %d", cfg.World, cfg.Min, cfg.Max)
	}
	form, err := member.NewFormation(cfg.World, timeout, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	s := &Server{
		cfg:     cfg,
		log:     cfg.Log,
		lim:     cfg.limits.withDefaults(),
		began:   time.Now(),
		decided: make(chan struct{}),
		form:    form,
		guests:  make(map[member.NodeID]*guest),
		used:    make(map[member.NodeID]bool),
		lobby:   member.NewLobby(member.Terms{World: cfg.World, Elastic: cfg.Elastic, Min: cfg.Min, Max: cfg.Max}),
		events:  newEvents(),
		askers:  make(chan struct{}, askersMax),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.gate = newGate(s.lim.strangers, s.lim.grace)
	s.open, s.close = context.WithCancel(context.Background())
	s.wg.Go(s.acceptAll)
	s.wg.Go(s.watchClock)
	return s, nil
}

// Wait returns nil when the world has formed, or the reason why it has not. It
// knows that also if ctx has ended.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-s.decided:
	case <-ctx.Done():
		select {
		case <-s.decided:
		default:
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.form.Err(); err != nil {
		return fmt.Errorf("the world did not form: %w", err)
	}
	return nil
}

// Close ends the seed. Nodes that wait for the world are told that it will not
// form; a world that has formed goes on without it, until a node fails.
func (s *Server) Close() error {
	s.close()
	s.mu.Lock()
	if s.ruling != nil {
		s.ruling.Stop()
	}
	s.apply(s.form.Abort(fmt.Errorf("the seed was %w", ErrClosed)))
	for _, g := range s.guests {
		g.out.close(nil)
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// A Status is how the world stands.
type Status struct {
	Phase    member.Phase
	World    int
	Joined   int         // nodes that have a place
	View     member.View // empty until the world is full
	Attached int         // nodes that still have a conn to the seed
	Deadline time.Time   // zero: none, or past
	Err      error       // why the world did not form
}

// Status is how the world stands now.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Phase:    s.form.Phase(),
		World:    s.cfg.World,
		Joined:   s.form.Joined(),
		View:     s.state.View(),
		Attached: len(s.guests),
		Err:      s.form.Err(),
	}
	if at, ok := s.form.Deadline(); ok {
		st.Deadline = at
	}
	return st
}

// acceptAll gives every conn a goroutine of its own.
func (s *Server) acceptAll() {
	for {
		conn, err := s.cfg.Transport.Accept(s.open)
		if err != nil {
			if s.open.Err() == nil {
				s.log.Error("seed can no longer be reached", "err", err)
				s.step(func(time.Time) member.Step {
					return s.form.Abort(fmt.Errorf("the seed can no longer be reached: %w", err))
				})
			}
			return
		}
		place, pushed, err := s.gate.enter(s.open, conn)
		if err != nil {
			conn.Close()
			return
		}
		if pushed != nil {
			s.warnOfStranger("client pushed out", pushed.conn.RemoteAddr(), "too many have not shown a token, and this was the oldest")
		}
		s.wg.Go(func() { s.serve(conn, place) })
	}
}

// watchClock fails a formation that takes too long.
func (s *Server) watchClock() {
	s.mu.Lock()
	at, ok := s.form.Deadline()
	s.mu.Unlock()
	if !ok {
		return
	}
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		s.step(s.form.Tick)
	case <-s.decided:
	case <-s.open.Done():
	}
}

// step carries an input to the formation out, and what follows from it.
func (s *Server) step(input func(now time.Time) member.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply(input(time.Now()))
}

// apply tells everyone what has changed. The lock is held.
func (s *Server) apply(step member.Step) {
	if step.Form != nil {
		view, err := s.state.Apply(*step.Form)
		var b []byte
		if err == nil {
			b, err = wire.AppendJoin(nil, viewMessage(view))
		}
		if err != nil {
			s.apply(s.form.Abort(fmt.Errorf("making the first view: %w", err)))
			return
		}
		s.view = view
		s.log.Info("world is full, its nodes connect to each other", "epoch", view.Epoch, "nodes", view.Size())
		s.tell(b)
	}
	if step.Formed {
		s.log.Info("world has formed", "epoch", s.view.Epoch, "nodes", s.view.Size())
		s.tell(frame(wire.JoinFormed{Epoch: s.view.Epoch}))
		s.council = member.NewCouncil(s.view, s.lobby)
		close(s.decided)
		s.hear(func(time.Time) {})
	}
	if step.Err != nil {
		// Whoever runs the seed gets it as an error of Wait, too.
		s.log.Info("world did not form", "err", step.Err)
		b := frame(wire.JoinFailed{Text: step.Err.Error()})
		for _, g := range s.guests {
			g.out.close(b)
		}
		close(s.decided)
	}
}

// tell sends a frame to all nodes of the view.
func (s *Server) tell(b []byte) {
	for _, n := range s.view.Nodes {
		s.send(n.ID, b, false)
	}
}

func viewMessage(v member.View) wire.JoinView {
	return wire.JoinView{Epoch: v.Epoch, Nodes: nodesMessage(v.Nodes)}
}

func nodesMessage(nodes []member.Node) (list []wire.JoinNode) {
	for _, n := range nodes {
		list = append(list, wire.JoinNode{ID: n.ID, Addrs: n.Addrs, Host: n.Host, Name: n.Name})
	}
	return list
}

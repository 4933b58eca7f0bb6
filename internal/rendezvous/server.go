// Package rendezvous brings a world together.
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
// Several seeds may keep what they decide alike (Quorum): then one of them leads,
// which others send nodes on to, and a view is agreed on before anybody hears of it.
// Whoever leads next has nothing but the record that they share, and what nodes say
// again. A Session whose seed lasts looks for that one by itself.
//
// A Server and a Session may be used by several goroutines.
package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
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
	// closes it after the Server. The Server gives every conn a few seconds to
	// prove the token; how many have not done so yet is for the Transport to
	// bound, which learns of the proof if its conns are transport.Provers.
	Transport transport.Transport

	// Authority signs the nodes' certificates.
	Authority *pki.Authority

	// Quorum, if not nil, says with which other seeds this one keeps what it decides.
	// Then Authority is only what it proposes: the first of them that leads decides.
	Quorum *Quorum

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
	open    context.Context // ends when Close is called
	close   context.CancelFunc
	began   time.Time
	decided chan struct{} // closed when the world has formed or failed
	over    chan struct{} // closed when it has failed, or all its nodes have gone
	wg      sync.WaitGroup

	throttle throttle
	events   *events
	askers   chan struct{} // a token for each who is told where the nodes are
	peers    *peers        // the other seeds; nil: this one decides alone

	mu     sync.Mutex // guards the rest; nothing waits while it is held
	record record
	err    error // why the world did not form
	broken error // why this seed cannot go on
	office office
	form   *membership.Formation // of the last time in office
	guests map[membership.NodeID]*guest
	pending  *membership.PendingJoins
	// What is asked of all nodes:
	polling *poll     // under way; nil: none
	polled  time.Time // when the last one began
	polls   uint64    // how many there were
	// Once the world has formed:
	arbiter *membership.Arbiter
	decision  *time.Timer // when the arbiter is to decide
}

// Serve starts to admit nodes.
func Serve(cfg Config) (*Server, error) {
	if cfg.Transport == nil || cfg.Authority == nil {
		return nil, errors.New("Config needs a Transport and an Authority")
	}
	if err := cfg.Token.Check(cfg.Transport.Addr()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if cfg.FormTimeout == 0 {
		cfg.FormTimeout = FormTimeout
	}
	if cfg.Min > cfg.World || cfg.Max > 0 && cfg.Max < cfg.World {
		return nil, fmt.Errorf("a world of %d nodes cannot have at least %d and at most %d", cfg.World, cfg.Min, cfg.Max)
	}
	form, err := membership.NewFormation(cfg.World, cfg.FormTimeout, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	s := &Server{
		cfg:     cfg,
		log:     cfg.Log,
		lim:     cfg.limits.withDefaults(cfg.Quorum != nil),
		began:   time.Now(),
		decided: make(chan struct{}),
		over:    make(chan struct{}),
		form:    form,
		guests:  make(map[membership.NodeID]*guest),
		pending:   membership.NewPendingJoins(membership.Policy{}, 0),
		events:  newEvents(),
		askers:  make(chan struct{}, askersMax),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.open, s.close = context.WithCancel(context.Background())
	if err := s.constitute(); err != nil {
		s.close()
		return nil, err
	}
	s.wg.Go(s.acceptAll)
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
	switch {
	case s.broken != nil:
		return s.broken
	case s.err != nil:
		return fmt.Errorf("the world did not form: %w", s.err)
	}
	return nil
}

// Broken is why this seed cannot go on, if it has ended for that.
func (s *Server) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Close ends the seed. Nodes that wait for the world are told that it will not
// form; a world that has formed goes on without it, until a node fails. If this seed
// lasts or there are others, nodes wait for it or turn to them.
func (s *Server) Close() error {
	s.close()
	s.mu.Lock()
	s.retire()
	if s.peers == nil {
		s.apply(s.form.Abort(fmt.Errorf("the seed was %w", ErrClosed)))
	}
	for _, g := range s.guests {
		g.out.close(nil)
	}
	s.mu.Unlock()
	if s.peers != nil {
		s.peers.ledger().Close()
		s.mu.Lock()
		s.retire() // what the log has led to meanwhile
		s.mu.Unlock()
	}
	s.wg.Wait()
	return nil
}

// A Status is how the world stands.
type Status struct {
	Phase    membership.Phase
	World    int
	Joined   int             // nodes that have a place
	View     membership.View // empty until the world is full
	Attached int             // nodes that still have a conn to the seed
	Deadline time.Time       // zero: none, or past
	Err      error           // why the world did not form
}

// Status is how the world stands now.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Phase:    s.form.Phase(),
		World:    s.cfg.World,
		Joined:   s.form.Joined(),
		View:     s.record.view,
		Attached: len(s.guests),
		Err:      s.err,
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
				s.step(func(time.Time) membership.Step {
					return s.form.Abort(fmt.Errorf("the seed can no longer be reached: %w", err))
				})
			}
			return
		}
		s.wg.Go(func() { s.serve(conn) })
	}
}

// step carries an input to the formation out, and what follows from it.
func (s *Server) step(input func(now time.Time) membership.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.office.held {
		s.apply(input(time.Now()))
	}
}

// apply has what a formation has come to agreed on, and tells everyone if it has
// failed. The lock is held.
func (s *Server) apply(step membership.Step) {
	if step.Form != nil {
		// That it is too long to be handed out must show before it is agreed on.
		if _, err := wire.AppendJoin(nil, viewMessage(membership.View{Nodes: step.Form.Nodes})); err != nil {
			s.apply(s.form.Abort(fmt.Errorf("making the first view: %w", err)))
			return
		}
		s.propose(change{Kind: changeView, Entries: []membership.Entry{*step.Form}})
	}
	if step.Formed {
		// From now on it takes note of what nodes say.
		s.arbiter = membership.NewArbiter(s.record.view, s.pending)
		s.propose(change{Kind: changeFormed})
		s.hear(func(time.Time) {})
	}
	if step.Err != nil {
		s.fail(step.Err)
	}
}

// fail has it agreed on that the world will not form. The lock is held.
func (s *Server) fail(err error) {
	s.log.Info("world did not form", "err", err)
	if s.peers == nil {
		s.err = err // Whoever runs the seed gets it as an error of Wait, too.
	}
	s.propose(change{Kind: changeOver, Failure: err.Error()})
}

// tell sends a frame to all nodes of the view.
func (s *Server) tell(b []byte) {
	for _, n := range s.record.view.Nodes {
		s.send(n.ID, b, false)
	}
}

func viewMessage(v membership.View) wire.JoinView {
	return wire.JoinView{Epoch: v.Epoch, Nodes: nodesMessage(v.Nodes)}
}

func nodesMessage(nodes []membership.Node) (list []wire.JoinNode) {
	for _, n := range nodes {
		list = append(list, wire.JoinNode{
			ID: n.ID, Addrs: n.Addrs, Host: n.Host, Name: n.Name, Endpoints: endpointsMessage(n.Endpoints),
		})
	}
	return list
}

// Package client is the node's side of joining: [Seeds.Join] finds the seed that leads and
// returns a [Session], which gets the views of the world from it.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Session is a node's membership in a world that forms or has formed. It
// keeps the conn to the seed, answers the seed's pings, and renews the node's
// certificate in good time. If the conn ends and the seed is durable, or there are others,
// it looks for the one that leads, and repeats the reports of this node about its view.
type Session struct {
	Identity *pki.Identity
	ID       membership.NodeID
	Observed string // the address that the seed sees this node at
	World    int    // how many nodes the world will have

	conn    *handshake.Conn // of the goroutine that attends it, as are those up to log
	seed    string          // its address
	req     Request
	durable bool
	log     *slog.Logger
	lim     handshake.Limits
	wg      sync.WaitGroup

	certificate []byte // that it was admitted with

	joined  atomic.Uint32   // how many nodes have joined, as far as is known
	viewed  chan struct{}   // closed when view is set
	formed  chan struct{}   // closed when the world has formed
	life    context.Context // ends with the conn to the seed, and with its reason
	end     context.CancelCauseFunc
	ended   chan struct{} // closed when the conn to the seed has ended, after err is set
	closing chan struct{} // closed by Close
	once    sync.Once
	err     error // why the conn ended

	expect func(nodes []membership.Node)
	forget func(id membership.NodeID)
	status func() []byte

	mu        sync.Mutex
	out       *handshake.Outbox
	reports   []wire.JoinMessage // about the view, which another seed has to hear
	away      error              // why there is no conn to a seed; nil: there is one
	absent    chan struct{}      // closed when there has been none for a while
	at        string             // where the seed is, as in seed
	view      membership.View    // the newest
	tooSmall  *wire.JoinProgress // the size of a world that is too small for the next view; nil: it is not
	invited   Invitation         // the newest
	called    uint64             // the epoch of the newest view whose nodes are called to rest
	changed   chan struct{}      // closed when there is a newer view or invitation
	polled    uint64             // the number of the newest status poll
	answering bool               // a goroutine answers it

	expected map[membership.NodeID]bool // nodes that join, as the seed has told this one
	links    map[membership.NodeID]bool // to nodes that join, that stand
}

func newSession(conn transport.Conn, req Request) *Session {
	s := &Session{
		conn:    handshake.New(conn),
		seed:    conn.RemoteAddr(),
		req:     req,
		log:     req.Log,
		lim:     req.Limits.WithDefaults(false),
		absent:  make(chan struct{}),
		at:      conn.RemoteAddr(),
		out:     handshake.NewOutbox(),
		viewed:  make(chan struct{}),
		formed:  make(chan struct{}),
		ended:   make(chan struct{}),
		closing: make(chan struct{}),
		changed: make(chan struct{}),
		expect:  req.Expect,
		forget:  req.Forget,
		status:  req.Status,

		expected: make(map[membership.NodeID]bool), links: make(map[membership.NodeID]bool),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// start begins to listen to the seed.
func (s *Session) start() { s.wg.Go(s.keepConnected) }

// View waits until the world is full, and returns its first view.
func (s *Session) View(ctx context.Context) (membership.View, error) {
	if err := s.wait(ctx, s.viewed); err != nil {
		return membership.View{}, err
	}
	v, _ := s.latest()
	return v, nil
}

// latest is the newest view, and a channel that is closed when there is a newer
// one.
func (s *Session) latest() (v membership.View, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view, s.changed
}

// Newest is the newest view that the seed has sent. Its epoch is 0 if there is none.
func (s *Session) Newest() membership.View {
	v, _ := s.latest()
	return v
}

// Next waits for a view that is newer than epoch. A *RemovedError says that this
// node is not in it, and ErrSeedGone that there will be none.
func (s *Session) Next(ctx context.Context, epoch uint64) (membership.View, error) {
	for {
		v, changed := s.latest()
		if isClosed(s.ended) {
			if _, removed := errors.AsType[*RemovedError](s.err); removed || s.err == ErrLeft {
				return membership.View{}, s.err // in spite of earlier views
			}
		}
		if v.Epoch > epoch {
			return v, nil
		}
		select {
		case <-changed:
		case <-s.Ended():
			if !isClosed(s.ended) {
				return membership.View{}, s.absence(nil)
			}
			if isClosed(s.closing) {
				return membership.View{}, handshake.ErrClosed
			}
			if v, _ := s.latest(); v.Epoch <= epoch {
				return membership.View{}, s.err
			}
		case <-s.closing:
			return membership.View{}, handshake.ErrClosed
		case <-ctx.Done():
			return membership.View{}, s.absence(s.tooFew(context.Cause(ctx)))
		}
	}
}

// tooFew adds to a cause that the world waits for others, if it does.
func (s *Session) tooFew(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tooSmall == nil {
		return cause
	}
	return fmt.Errorf("%w: the world has %d of at least %d nodes, and waits for others", cause, s.tooSmall.Joined, s.tooSmall.World)
}

// absence adds to a cause that there is no conn to a seed, if there is none.
func (s *Session) absence(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away == nil:
		return cause
	case cause == nil:
		return s.away
	}
	return fmt.Errorf("%w: %w", cause, s.away)
}

// Lost reports that this node has lost its link to a peer, and why. It does not
// wait.
func (s *Session) Lost(peer membership.NodeID, cause error) {
	v, _ := s.latest()
	s.say(wire.JoinUnable{Epoch: v.Epoch, Peer: peer, Text: cause.Error()})
}

// Left says that a peer has said goodbye to this node. The peer has told the seed so
// itself, but that seed may die before the others know. So this node repeats it to a
// seed that takes its place.
func (s *Session) Left(peer membership.NodeID) {
	v, _ := s.latest()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.durable {
		s.reports = append(s.reports, wire.JoinUnable{Epoch: v.Epoch, Peer: peer, Left: true, Text: "it has left"})
	}
}

// Ready reports that this node is connected to all others of the view, and
// waits until each of them has reported the same: the world has formed. A
// *FailedError says that it will not, and names the culprit.
func (s *Session) Ready(ctx context.Context) error {
	if err := s.wait(ctx, s.viewed); err != nil {
		return err
	}
	v, _ := s.latest()
	s.say(wire.JoinReady{Epoch: v.Epoch})
	return s.wait(ctx, s.formed)
}

// Unable reports that this node cannot reach peer, and why. All others are
// told; so is the caller, by the *FailedError that Unable returns.
func (s *Session) Unable(ctx context.Context, peer membership.NodeID, cause error) error {
	if err := s.wait(ctx, s.viewed); err != nil {
		return err
	}
	s.Lost(peer, cause)
	if err := s.wait(ctx, s.formed); err != nil {
		return err
	}
	return fmt.Errorf("the world had formed before this node could say that it cannot reach %v: %w", peer, cause)
}

// Close gives this node's place up, or, if the world has formed, tells the
// seed that it leaves in good order. It waits for the Session's goroutines.
func (s *Session) Close() error {
	s.once.Do(func() { close(s.closing) })
	s.mu.Lock()
	s.out.Close(handshake.Frame(wire.JoinLeave{}))
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// While returns a context that ends with ctx, or with the Session, as when the seed has said
// that the world will not form.
func (s *Session) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// wait waits for an event of the Session, or for an error that makes it impossible.
func (s *Session) wait(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	default:
	}
	select {
	case <-event:
		return nil
	case <-s.Ended():
		if !isClosed(s.ended) {
			return s.absence(nil)
		}
		// What came before the end counts.
		select {
		case <-event:
			return nil
		default:
			return s.err
		}
	case <-s.closing:
		return fmt.Errorf("joining at seed %s: %w", s.where(), handshake.ErrClosed)
	case <-ctx.Done():
		return s.absence(s.late(context.Cause(ctx)))
	}
}

// late adds to a timeout the event that this node has waited for.
func (s *Session) late(cause error) error {
	s.mu.Lock()
	invited, seed, world := s.invited.Number > 0, s.at, s.World
	s.mu.Unlock()
	switch joined := int(s.joined.Load()); {
	case invited && !isClosed(s.viewed):
		return fmt.Errorf("%w: the world at seed %s has formed without this node, which waits for its next checkpoint, and for room in it", cause, seed)
	case joined == world && !isClosed(s.viewed):
		return fmt.Errorf("%w: the world at seed %s has all its %d nodes, and this one waits until there is room for it", cause, seed, world)
	}
	if isClosed(s.viewed) {
		return fmt.Errorf("%w: all %d nodes have joined, but seed %s has not said that they have reached each other", cause, world, seed)
	}
	return fmt.Errorf("%w: %d of %d nodes had joined when seed %s told last", cause, s.joined.Load(), world, seed)
}

func (s *Session) handle(m wire.JoinMessage) error {
	switch m := m.(type) {
	case wire.JoinPing:
		s.Post(m)
	case wire.JoinProgress:
		s.setProgress(m)
	case wire.JoinView:
		return s.setView(m)
	case wire.JoinFormed:
		v, _ := s.latest()
		if isClosed(s.formed) && s.durable {
			return nil // A seed cannot know whether another has said it.
		}
		if isClosed(s.formed) || !isClosed(s.viewed) || m.Epoch != v.Epoch {
			return fmt.Errorf("seed %s says that view %d has formed, which it has not handed out", s.seed, m.Epoch)
		}
		s.log.Info("world has formed", "epoch", m.Epoch, "nodes", v.Size())
		close(s.formed)
	case wire.JoinInvite, wire.JoinExpect, wire.JoinForget, wire.JoinCall:
		return s.handleGrowth(m)
	case wire.JoinAsk:
		s.answerPoll(m.Number)
	case wire.JoinFailed:
		return s.failed(m)
	case wire.JoinLeave:
		return ErrLeft
	case wire.JoinElsewhere:
		if !s.durable {
			return fmt.Errorf("seed %s sends this node to seed %s", s.seed, m.Leader)
		}
		return &handshake.ElsewhereError{Seed: s.seed, Leader: m.Leader}
	case wire.JoinRenewed:
		if err := s.Identity.Replace(m.Certificate); err != nil {
			s.log.Error("new certificate is of no use", "seed", s.seed, "err", err)
			return nil
		}
		s.log.Info("certificate renewed", "valid until", s.Identity.NotAfter())
	default:
		return fmt.Errorf("seed %s sent a %T", s.seed, m)
	}
	return nil
}

// setProgress takes note of how many nodes there are for the next view.
func (s *Session) setProgress(m wire.JoinProgress) {
	if !isClosed(s.formed) {
		s.joined.Store(m.Joined)
		s.log.Info("waiting for the world", "joined", m.Joined, "world", m.World)
		return
	}
	s.log.Warn("world has too few nodes, and waits for others", "nodes", m.Joined, "least", m.World)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tooSmall = &m
}

// failed returns the error for a node that the seed sends away.
func (s *Session) failed(m wire.JoinFailed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isClosed(s.formed):
		return &RemovedError{Seed: s.seed, Text: m.Text}
	case s.invited.Number > 0:
		return &DismissedError{Seed: s.seed, Text: m.Text}
	}
	return &FailedError{Seed: s.seed, Text: m.Text}
}

// setView keeps a view: the first when the world is full, the others once it has
// formed. The first of a node that was invited is of a world that has.
func (s *Session) setView(m wire.JoinView) error {
	v := membership.View{Epoch: m.Epoch, Nodes: nodesOf(m.Nodes)}
	if err := v.Check(); err != nil {
		return fmt.Errorf("seed %s sent a bad view: %w", s.seed, err)
	}
	rank, ok := v.Rank(s.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	first, joins := s.view.Epoch == 0, s.invited.Number > 0
	if !ok || v.Epoch <= s.view.Epoch || first != !isClosed(s.formed) || first && !joins && v.Size() != s.World {
		return fmt.Errorf("seed %s sent view %d of %d nodes after view %d, in a world of %d (this node in it: %v)",
			s.seed, v.Epoch, v.Size(), s.view.Epoch, s.World, ok)
	}
	s.view, s.tooSmall = v, nil
	s.setEntered(v)
	// What it has lost is lost in this view, too.
	s.reports = slices.DeleteFunc(s.reports, func(m wire.JoinMessage) bool {
		lost, is := m.(wire.JoinUnable)
		_, in := v.Rank(lost.Peer)
		return !is || !in
	})
	close(s.changed)
	s.changed = make(chan struct{})
	if first && joins {
		close(s.formed)
	}
	if first {
		s.log.Info("world is full", "epoch", v.Epoch, "nodes", v.Size(), "rank", rank)
		close(s.viewed)
	} else {
		s.log.Info("world has changed", "epoch", v.Epoch, "nodes", v.Size(), "rank", rank)
	}
	return nil
}

// newRenewal returns the function that is called at every interval: it asks for the next
// certificate when two thirds of the life of the present one are over.
func (s *Session) newRenewal(life time.Duration) func() {
	return func() {
		if time.Until(s.Identity.NotAfter()) > life/3 {
			return
		}
		csr, err := s.Identity.Request()
		if err != nil {
			s.log.Error("certificate cannot be renewed", "err", err)
			return
		}
		s.Post(wire.JoinRenew{CSR: csr})
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

// Abandon ends the Session as the death of the process would: without a goodbye, and
// without looking for another seed.
func (s *Session) Abandon() {
	s.once.Do(func() { close(s.closing) })
	s.Break()
}

// Break ends the connection to the seed, as a failure of the network would.
func (s *Session) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.Close()
}

// Package client lets a node join a cluster: [Seeds.Join] finds the seed that leads and returns a
// [Session], which receives the views of the world from that seed.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Session is the membership of a node in a world that forms or has formed. It keeps the
// connection to the seed, answers pings, and renews the certificate before it expires. If the
// connection ends, the Session connects to the seed that leads then, and repeats the reports of this node about its view. It ends
// when a seed without state does not answer after it has ended the connection.
//
// Its methods may be called by several goroutines. Methods without a context do not block, except Close.
type Session struct {
	Identity *pki.Identity
	ID       membership.NodeID
	Observed string // the address at which the seed sees this node
	World    int    // the initial size of the world

	// keepConnected owns these fields and changes them under mu.
	conn        *handshake.Conn
	seed        string // its address
	req         Request
	durable     bool
	silent      bool   // the last connection has ended because the seed was silent
	certificate []byte // with which the node was admitted
	lim         handshake.Limits

	log       *slog.Logger
	wg        sync.WaitGroup
	closing   context.Context // ends with Close
	close     context.CancelFunc
	hasFailed bool            // guarded by mu; see Fail
	life      context.Context // ends with the membership; its cause is the reason
	end       context.CancelCauseFunc

	sendingViews sync.Mutex // held by withViews; locked before mu

	mu        sync.Mutex
	changed   wake.Signal // when the state that calls wait for changes
	out       *handshake.Outbox
	reports   []wire.JoinMessage // about the view, to be repeated to another seed
	away      error              // why there is no connection to a seed; nil if there is one
	absent    context.Context    // ends when no seed was reachable within Request.Patience
	setAbsent context.CancelFunc
	view      membership.View // the newest; epoch 0: none
	views     *membership.ViewForwarder
	expiry    []*time.Timer         // warn of the expiry of the certificate, while no seed answers
	viewTimer *time.Timer           // until views has something to do; nil: nothing
	formed    bool                  // the world has formed
	progress  membership.Progress   // the latest of the formation; World is 0 until the seed has sent one
	unlinked  func() string         // names the nodes that the forming of this node's links waits for; may be nil
	tooSmall  *wire.JoinProgress    // the size of a world that is too small for the next view, or nil
	invited   Invitation            // the newest
	quiescing uint64                // epoch of the newest view with a request to quiesce
	polled    wire.JoinTraceRequest // the newest status poll
	answering bool                  // a goroutine answers it

	expected map[membership.NodeID]bool // joining nodes that the seed has announced
	links    map[membership.NodeID]bool // joining nodes with a link to this one
}

func newSession(conn transport.Conn, req Request) *Session {
	if req.Log == nil {
		req.Log = slog.New(slog.DiscardHandler)
	}
	s := &Session{
		conn:     handshake.New(conn),
		seed:     conn.RemoteAddr(),
		req:      req,
		log:      req.Log,
		lim:      req.Limits.WithDefaults(false),
		out:      handshake.NewOutbox(),
		changed:  wake.NewSignal(),
		expected: make(map[membership.NodeID]bool),
		links:    make(map[membership.NodeID]bool),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.absent, s.setAbsent = context.WithCancel(context.Background())
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// Seed returns the address of the seed.
func (s *Session) Seed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seed
}

// notifyLocked wakes all calls of await.
func (s *Session) notifyLocked() {
	s.changed.Send()
}

// await blocks until done returns true. It calls done under the lock. It returns an error if the
// Session ends, if no seed is reachable within Request.Patience, or if ctx ends: then the error
// is explain of the cause.
func (s *Session) await(ctx context.Context, done func() bool, explain func(cause error) error) error {
	for {
		s.mu.Lock()
		ok, changed, absent, away, seed := done(), s.changed.Next(), s.absent.Err() != nil, s.away, s.seed
		s.mu.Unlock()
		switch {
		case ok:
			return nil
		case s.isRemoved():
			return context.Cause(s.life)
		case s.closing.Err() != nil:
			return fmt.Errorf("session with seed %s: %w", seed, handshake.ErrClosed)
		case s.life.Err() != nil:
			return context.Cause(s.life)
		case absent:
			return away
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := explain(context.Cause(ctx))
			if away != nil {
				err = fmt.Errorf("%w: %w", err, away)
			}
			return err
		}
	}
}

// View blocks until the world is full, and returns the newest view.
func (s *Session) View(ctx context.Context) (membership.View, error) {
	if err := s.await(ctx, s.hasViewLocked, s.late); err != nil {
		return membership.View{}, err
	}
	return s.Newest(), nil
}

func (s *Session) hasViewLocked() bool { return s.view.Epoch > 0 }

func (s *Session) hasFormedLocked() bool { return s.formed }

// Newest returns the newest view from the seed. Its epoch is 0 if there is none.
func (s *Session) Newest() membership.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

// Next blocks until there is a view that is newer than epoch. A [*RemovedError] or [ErrLeft] says
// that this node is no longer in the world, and [ErrSeedGone] that no seed was reachable.
func (s *Session) Next(ctx context.Context, epoch uint64) (v membership.View, err error) {
	err = s.await(ctx, func() bool {
		v = s.view
		return v.Epoch > epoch && !s.isRemoved()
	}, s.tooFew)
	if err != nil {
		return membership.View{}, err
	}
	return v, nil
}

// Trial blocks until the seed has answered a request with Request.Trial, and returns the progress
// of the world that the node could join.
func (s *Session) Trial(ctx context.Context) (p membership.Progress, err error) {
	err = s.await(ctx, func() bool {
		p = s.progress
		return p.World > 0
	}, func(cause error) error { return fmt.Errorf("seed %s has not answered: %w", s.seed, cause) })
	return p, err
}

// isRemoved reports whether the seed has said that this node is no longer in the world.
func (s *Session) isRemoved() bool {
	_, removed := errors.AsType[*RemovedError](context.Cause(s.life))
	return removed || errors.Is(context.Cause(s.life), ErrLeft)
}

// tooFew adds to the cause of an ended context that the world waits for more nodes, if it does.
func (s *Session) tooFew(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tooSmall == nil {
		return cause
	}
	return fmt.Errorf("%w: the world has %d of at least %d nodes, and waits for others", cause, s.tooSmall.Joined, s.tooSmall.World)
}

// late adds to the cause of an ended context the event that this node was waiting for.
func (s *Session) late(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.hasViewLocked():
		return fmt.Errorf("%w: all %d nodes have joined, but seed %s has not reported that they are connected to each other", cause, s.World, s.seed)
	case s.invited.Number > 0:
		return fmt.Errorf("%w: the world at seed %s has formed without this node, which waits for a reconfiguration of the world and for room in it", cause, s.seed)
	case int(s.progress.Joined) == s.World:
		return fmt.Errorf("%w: the world at seed %s has all its %d nodes, and this one waits until there is room for it", cause, s.seed, s.World)
	}
	p := s.progress
	p.World = uint32(s.World)
	return &WaitingError{Seed: s.seed, Progress: p, Err: cause}
}

// Lost reports to the seed that this node has lost its link to a peer, and why.
func (s *Session) Lost(peer membership.NodeID, cause error) {
	s.LinksOf(latest).Lost(peer, cause)
}

// lostLink reports the end of a link that was made for an invitation.
func (s *Session) lostLink(number uint64, peer membership.NodeID, kind wire.Loss, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A joining node says goodbye when it gives up its links for another invitation.
	if _, in := s.view.Rank(peer); !s.isObsoleteLocked(number) && (in || kind != wire.LossLeft) {
		s.reportLocked(wire.JoinUnreachable{Epoch: s.view.Epoch, Peer: peer, Kind: kind, Text: text})
	}
}

// Exclude asks the seed to remove a peer from the world.
func (s *Session) Exclude(peer membership.NodeID) {
	s.report(wire.JoinExclude{Epoch: s.Newest().Epoch, Peer: peer})
}

// Ready reports to the seed that this node is connected to all others of the view, and blocks until
// all of them have reported the same: the world has formed. A [*FailedError] says that it will not
// form, and names the cause.
func (s *Session) Ready(ctx context.Context) error {
	v, err := s.View(ctx)
	if err != nil {
		return err
	}
	s.report(wire.JoinReady{Epoch: v.Epoch})
	return s.await(ctx, s.hasFormedLocked, s.late)
}

// AwaitFailure blocks until the seed has ended the formation, and returns the [*FailedError] that all nodes get. This node has reported before that it
// cannot reach peer ([Links.Lost]).
func (s *Session) AwaitFailure(ctx context.Context, peer membership.NodeID, cause error) error {
	if err := s.await(ctx, s.hasFormedLocked, s.late); err != nil {
		return err
	}
	return fmt.Errorf("the world had formed before this node could report that it cannot reach %v: %w", peer, cause)
}

// Close tells the seed that this node leaves the world, formed or not. It blocks until the
// goroutines of the Session have ended. It always returns nil.
func (s *Session) Close() error {
	s.close()
	s.mu.Lock()
	s.notifyLocked()
	s.stopViewsLocked()
	s.stopExpiryLocked()
	s.out.Close(s.lastLocked())
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// Fail is Close for a node that has failed: it does not tell the seed that it leaves.
func (s *Session) Fail() error {
	s.mu.Lock()
	s.hasFailed = true
	s.mu.Unlock()
	return s.Close()
}

// lastLocked returns the last message of the node.
func (s *Session) lastLocked() []byte {
	if s.hasFailed {
		return nil
	}
	return handshake.Frame(wire.JoinLeave{})
}

// Post queues a message to the seed. The message is lost if the connection has ended.
func (s *Session) Post(m wire.JoinMessage) { s.postFrame(handshake.Frame(m)) }

// report posts a report about the view. The Session repeats it to the next seed until a newer
// view makes it obsolete.
func (s *Session) report(m wire.JoinMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reportLocked(m)
}

func (s *Session) reportLocked(m wire.JoinMessage) {
	s.reports = append(s.reports, m)
	s.out.Post(handshake.Frame(m))
}

// Gone reports whether the channel of Ended is closed.
func (s *Session) Gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent.Err() != nil
}

// Ended returns a channel that is closed when no seed is reachable: the connection has ended
// and no other has been made within Request.Patience, or the Session has ended. If a seed is
// reachable again later, the next call returns another channel.
func (s *Session) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent.Done()
}

// Break ends the connection to the seed like a failure of the network.
func (s *Session) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.Close()
}

// handle handles a message of the seed. An error ends the connection and, unless it is a
// [*handshake.RedirectError], the membership.
func (s *Session) handle(m wire.JoinMessage) error {
	switch m := m.(type) {
	case wire.JoinPing:
		s.Post(m)
		s.withViews(func(f *membership.ViewForwarder) { f.Newer(time.Now(), m.Epoch) })
	case wire.JoinProgress:
		s.setProgress(m)
	case wire.JoinView:
		return s.setView(m)
	case wire.JoinDifference:
		if err := s.setDifference(membership.NodeID{}, m); err != nil {
			return fmt.Errorf("seed %s sent a %w", s.seed, err)
		}
	case wire.JoinFormed:
		return s.setFormed(m.Epoch)
	case wire.JoinInvite:
		return s.setInvitation(m)
	case wire.JoinExpect:
		return s.setExpected(m)
	case wire.JoinForget:
		s.setForgotten(m.Peer)
	case wire.JoinQuiesce:
		s.mu.Lock()
		s.quiescing = m.Epoch
		s.mu.Unlock()
		s.log.Info("nodes wait to join at the next reconfiguration", "epoch", m.Epoch)
	case wire.JoinTraceRequest:
		s.answerPoll(m)
	case wire.JoinFailed:
		return s.failed(m)
	case wire.JoinExcluded:
		return &RemovedError{Seed: s.seed, Text: m.Text, Excluded: true}
	case wire.JoinRefusal:
		return &handshake.RefusedError{Seed: s.seed, Code: m.Code, Text: m.Text}
	case wire.JoinLeave:
		return ErrLeft
	case wire.JoinRedirect:
		if !s.durable {
			return fmt.Errorf("seed %s redirects this node to seed %s, but the cluster has only one seed", s.seed, m.Leader)
		}
		return &handshake.RedirectError{Seed: s.seed, Leader: m.Leader}
	case wire.JoinRenewed:
		if err := s.Identity.Replace(m.Certificate); err != nil {
			s.log.Error("new certificate cannot be used", "seed", s.seed, "err", err)
			return nil
		}
		s.log.Info("certificate renewed", "valid until", s.Identity.NotAfter())
	default:
		return fmt.Errorf("seed %s sent a %T", s.seed, m)
	}
	return nil
}

// setFormed records that the world has formed.
func (s *Session) setFormed(epoch uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.formed {
		return nil // A seed repeats it over each new connection.
	}
	if !s.hasViewLocked() || epoch != s.view.Epoch {
		return fmt.Errorf("seed %s says that view %d has formed, but view %d is the newest", s.seed, epoch, s.view.Epoch)
	}
	s.log.Info("world has formed", "epoch", epoch, "nodes", s.view.Size())
	s.formed = true
	s.notifyLocked()
	return nil
}

// failed returns the error for a node that the seed dismisses.
func (s *Session) failed(m wire.JoinFailed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.formed:
		return &RemovedError{Seed: s.seed, Text: m.Text}
	case s.invited.Number > 0:
		return &DismissedError{Seed: s.seed, Text: m.Text}
	}
	return &FailedError{Seed: s.seed, Text: m.Text, Progress: membership.Progress{Joined: m.Joined, World: m.World, Candidates: m.Candidates}}
}

// setView adopts a whole view: the first when the world is full, the others once it has formed. The first view of an
// invited node is of a world that has formed. A view that has reached this node from another one already is ignored.
func (s *Session) setView(m wire.JoinView) error {
	v := membership.View(m)
	if err := v.Check(); err != nil {
		return fmt.Errorf("seed %s sent a bad view: %w", s.seed, err)
	}
	_, in := v.Rank(s.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.formed && v.Epoch <= s.view.Epoch {
		return nil
	}
	first, invited := !s.hasViewLocked(), s.invited.Number > 0
	if !in || v.Epoch <= s.view.Epoch || first == s.formed || first && !invited && v.Size() != s.World {
		return fmt.Errorf("seed %s sent view %d of %d nodes after view %d, in a world of %d (this node in it: %v)",
			s.seed, v.Epoch, v.Size(), s.view.Epoch, s.World, in)
	}
	s.views.Set(v)
	s.adoptLocked(v, s.seed)
	return nil
}

// adoptLocked makes v the newest view. from is the seed or the node that has sent it.
func (s *Session) adoptLocked(v membership.View, from string) {
	first := !s.hasViewLocked()
	rank, _ := v.Rank(s.ID)
	s.Identity.SetMembers(v)
	s.view, s.tooSmall, s.formed = v, nil, s.formed || s.invited.Number > 0
	for _, n := range v.Nodes {
		delete(s.expected, n.ID)
		delete(s.links, n.ID)
	}
	// Reports about lost links and exclusions hold in this view, too.
	s.reports = slices.DeleteFunc(s.reports, func(m wire.JoinMessage) bool {
		in := false
		switch m := m.(type) {
		case wire.JoinUnreachable:
			_, in = v.Rank(m.Peer)
		case wire.JoinExclude:
			_, in = v.Rank(m.Peer)
		}
		return !in
	})
	event := "world has changed"
	if first {
		event = "world is full"
	}
	s.log.Info(event, "epoch", v.Epoch, "nodes", v.Size(), "rank", rank, "from", from)
	s.notifyLocked()
}

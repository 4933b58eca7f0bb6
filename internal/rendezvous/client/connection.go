package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// seedPatience is how long a durable seed may be away, if nothing else is said.
const seedPatience = 30 * time.Second

// keepConnected keeps a conn to the seed: when one ends and the seed is durable, it makes the
// next.
func (s *Session) keepConnected() {
	defer s.finish()
	for {
		left := time.Until(s.Identity.NotAfter())
		interval := min(max(left/12, 20*time.Millisecond), time.Minute)
		if s.durable {
			s.lim.Silence = min(s.lim.Silence, handshake.DurableSilence)
		}
		out := s.outbox()
		var writer sync.WaitGroup
		writer.Go(func() { s.conn.Run(out, s.lim, interval, s.newRenewal(left)) })
		ended := s.listen()
		out.Close(nil)
		writer.Wait()
		if !ended || !s.durable {
			return
		}
		if s.err = s.lookForSeed(); s.err != nil {
			return
		}
	}
}

// finish ends all waiting for the seed, for the reason that is in err.
func (s *Session) finish() {
	s.end(s.err)
	close(s.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isClosed(s.absent) {
		close(s.absent)
	}
}

func (s *Session) outbox() *handshake.Outbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out
}

// where is where the seed is.
func (s *Session) where() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Post sends a message to the seed, if there is a connection. The methods that are named after
// messages check more.
func (s *Session) Post(m wire.JoinMessage) { s.outbox().Post(handshake.Frame(m)) }

// say posts a report about the view. The Session repeats it to the next seed as long as the
// view is the same.
func (s *Session) say(m wire.JoinMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, m)
	s.out.Post(handshake.Frame(m))
}

// listen handles messages of the seed until the connection ends. It reports whether another
// connection makes sense.
func (s *Session) listen() (ended bool) {
	for {
		m, err := s.conn.ReadWithin(s.lim.Silence)
		if err != nil {
			s.err = s.lost(err)
			return !isClosed(s.closing)
		}
		s.err = s.handle(m)
		if e, sent := s.err.(*handshake.ElsewhereError); sent {
			s.err = s.leave(e)
			return !isClosed(s.closing)
		}
		if s.err != nil {
			if s.err != ErrLeft {
				s.log.Error("joining failed", "seed", s.seed, "err", s.err)
			}
			return false
		}
	}
}

// lost says that the seed is gone. Once the world has formed, it can do without.
func (s *Session) lost(err error) error {
	reason := s.conn.Reason(err)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = fmt.Sprintf("silent for %v", s.lim.Silence)
	case errors.Is(err, io.EOF):
		reason = "it ended the conn"
	}
	gone := fmt.Errorf("seed %s %w: %s", s.seed, ErrSeedGone, reason)
	if errors.Is(err, transport.ErrPeerClosed) && !s.durable {
		gone = fmt.Errorf("seed %s %w: it has ended the conn, as it does when this node was silent and others have lost it", s.seed, ErrSeedGone)
	}
	if !isClosed(s.formed) {
		gone = fmt.Errorf("seed %s %w before the world had formed: %s", s.seed, ErrSeedGone, reason)
	}
	if isClosed(s.closing) {
		return gone // This side has ended it.
	}
	switch {
	case s.durable:
		s.log.Warn("conn to the seed has ended, looking for one", "seed", s.seed, "reason", reason)
	case isClosed(s.formed):
		s.log.Warn("seed is gone; the world goes on without it until a node fails, but certificates are no longer renewed",
			"seed", s.seed, "reason", reason, "valid until", s.Identity.NotAfter())
	default:
		s.log.Error("seed is gone before the world had formed", "seed", s.seed, "reason", reason)
	}
	return gone
}

// leave turns to the seed that leads.
func (s *Session) leave(e *handshake.ElsewhereError) error {
	s.log.Info("the seed does not lead any more", "seed", s.seed, "but", e.Leader)
	return fmt.Errorf("seed %s %w: it does not lead any more", s.seed, ErrSeedGone)
}

// closePatience is how long a Session that is closed without a conn looks for a seed,
// to tell it that this node leaves.
const closePatience = time.Second

const (
	// lookAttempt bounds one attempt to reach a seed, when another one has gone.
	lookAttempt = 3 * time.Second
	// lookPause is the longest pause between two.
	lookPause = time.Second
)

// lookForSeed makes a conn to the seed that leads, however long that takes. Its error
// says that this is useless, or that the Session was closed.
func (s *Session) lookForSeed() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	closing := make(chan struct{})
	defer close(closing)
	s.wg.Go(func() {
		select {
		case <-closing:
			return
		case <-s.closing:
		}
		t := time.NewTimer(closePatience)
		defer t.Stop()
		select {
		case <-closing:
		case <-t.C:
			cancel()
		}
	})
	cause := s.err
	s.setAway(cause)
	if late := s.patience(cause); late != nil {
		defer late.Stop()
	}
	v, _ := s.latest()
	req := s.req
	req.epoch = v.Epoch
	seeds := req.seeds
	seeds.Timeout, seeds.Attempt, seeds.MaxPause, seeds.once = -1, lookAttempt, lookPause, false
	// The first may be the one that has gone.
	seeds.Addrs = slices.Clone(seeds.Addrs)
	rand.Shuffle(len(seeds.Addrs), func(i, j int) { seeds.Addrs[i], seeds.Addrs[j] = seeds.Addrs[j], seeds.Addrs[i] })
	err := seeds.search(ctx, req.Token, func(ctx context.Context, conn transport.Conn) error {
		next := newSession(conn, req)
		if err := next.admit(ctx, req); err != nil {
			return err
		}
		return s.take(next)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return cause
	case isClosed(s.formed):
		return fmt.Errorf("seed %s %w, and there is no other: %w", s.seed, ErrSeedGone, err)
	}
	return err
}

// patience closes absent when the seed has been away for long.
func (s *Session) patience(cause error) *time.Timer {
	after := s.req.Patience
	switch {
	case after < 0:
		return nil
	case after == 0:
		after = seedPatience
	}
	return time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.away == cause && !isClosed(s.absent) {
			s.log.Warn("no seed has been back; the world goes on until a node fails", "within", after, "reason", cause)
			s.away = fmt.Errorf("%w; no seed has been back within %v", cause, after)
			close(s.absent)
		}
	})
}

func (s *Session) setAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

// take goes on with the conn of another session of this node, which is not used any
// further.
func (s *Session) take(next *Session) error {
	if got, want := next.Identity.Cluster(), s.Identity.Cluster(); got != want {
		next.conn.Close()
		return fmt.Errorf("%w: seed %s is of cluster %s, this node of %s", handshake.ErrFalseSeed, next.seed, got, want)
	}
	if err := s.Identity.Replace(next.certificate); err != nil {
		s.log.Error("new certificate is of no use", "seed", next.seed, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.seed, s.at, s.out = next.conn, next.seed, next.seed, next.out
	s.World = next.World
	s.away = nil
	if isClosed(s.absent) {
		s.absent = make(chan struct{})
	}
	for _, m := range s.reports {
		s.out.Post(handshake.Frame(m))
	}
	s.sayLinks()
	if isClosed(s.closing) {
		s.out.Close(handshake.Frame(wire.JoinLeave{}))
	}
	s.log.Info("seed is back", "seed", s.seed)
	return nil
}

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

// keepConnected serves the connection to the seed. When it ends, the node rejoins over a new connection. The membership ends if a seed
// without state has ended as well.
func (s *Session) keepConnected() {
	var err error
	for rejoin := true; rejoin; {
		rejoin, err = s.serveConnection()
		s.seedSilent()
		if rejoin {
			rejoin, err = s.rejoin(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(err)
	s.stopViewsLocked()
	s.setAbsent()
	s.notifyLocked()
}

// serveConnection serves the connection until it ends, and returns the reason. rejoin reports
// whether the node can rejoin.
func (s *Session) serveConnection() (rejoin bool, err error) {
	left := time.Until(s.Identity.NotAfter())
	interval := min(max(left/12, 20*time.Millisecond), time.Minute)
	if s.durable {
		s.lim.Silence = min(s.lim.Silence, handshake.DurableSilence)
	}
	out := s.out // Only this goroutine changes it.
	var writer sync.WaitGroup
	writer.Go(func() { s.conn.Run(out, s.lim, interval, func() { s.renew(left / 3) }) })
	defer writer.Wait()
	defer out.Close(nil)
	for {
		m, err := s.conn.ReadWithin(s.lim.Silence)
		if err != nil {
			return s.mayReturn(), s.lost(err)
		}
		switch err := s.handle(m).(type) { //nolint:errorlint // handle returns its errors unwrapped
		case nil:
		case *handshake.RedirectError:
			s.log.Info("the seed no longer leads", "seed", s.seed, "leader", err.Leader)
			return s.closing.Err() == nil, fmt.Errorf("seed %s %w: it no longer leads", s.seed, ErrSeedGone)
		case *handshake.RefusedError:
			s.conn.Close() // The seed waits for that.
			return false, err
		default:
			// Before this connection is closed, which takes a while: the other nodes close theirs to this one at the same time.
			if removed, ok := errors.AsType[*RemovedError](err); ok && s.req.Removed != nil {
				s.req.Removed(removed)
			}
			if !errors.Is(err, ErrLeft) {
				s.log.Error(s.inWords("joining failed", "this node is no longer in the world"), "seed", s.seed, "err", err)
			}
			return false, err
		}
	}
}

// inWords returns the words for the state of the node, before the world has formed or after it.
func (s *Session) inWords(before, after string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.formed {
		return after
	}
	return before
}

// mayReturn reports whether the seed may serve this node again after the end of the connection. One without state may have been suspended, or
// may have removed this node and know the reason.
func (s *Session) mayReturn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing.Err() == nil && (s.durable || s.formed)
}

// renew requests the next certificate once the current one is valid for at most left.
func (s *Session) renew(left time.Duration) {
	if time.Until(s.Identity.NotAfter()) > left {
		return
	}
	csr, err := s.Identity.Request()
	if err != nil {
		s.log.Error("certificate cannot be renewed", "err", err)
		return
	}
	s.Post(wire.JoinRenew{CSR: csr})
}

// lost logs the loss of the seed and returns the error for it. A formed world continues without
// the seed.
func (s *Session) lost(err error) error {
	reason := s.conn.Reason(err)
	s.silent = errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case s.silent:
		reason = fmt.Sprintf("silent for %v", s.lim.Silence)
	case errors.Is(err, io.EOF):
		reason = "it closed the connection"
	}
	s.mu.Lock()
	formed := s.formed
	s.mu.Unlock()
	gone := fmt.Errorf("seed %s %w: %s", s.seed, ErrSeedGone, reason)
	if !formed {
		gone = fmt.Errorf("seed %s %w before the world had formed: %s", s.seed, ErrSeedGone, reason)
	}
	switch {
	case s.closing.Err() != nil: // This side has ended it.
	case s.durable:
		s.log.Warn("connection to the seed has ended; searching for a seed", "seed", s.seed, "reason", reason)
	case formed && s.silent:
		s.warnGone(gone)
	case formed:
		s.log.Info("connection to the seed has ended; asking it for the reason", "seed", s.seed, "reason", reason)
	default:
		s.log.Error("seed is gone before the world had formed", "seed", s.seed, "reason", reason)
	}
	return gone
}

func (s *Session) warnGone(reason error) {
	s.log.Warn("seed is gone; the world continues without it until a node fails, but certificates are no longer renewed",
		"seed", s.seed, "reason", reason, "valid until", s.Identity.NotAfter())
}

// rejoin connects to the leading seed after the connection has ended for the reason cause. It
// retries until it succeeds, the Session is closed, or a seed refuses the node. A seed without state that has ended the connection is asked once.
func (s *Session) rejoin(cause error) (ok bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience := time.Duration(0)
	if s.durable {
		patience = s.lim.Linger / 2 // to report that this node leaves
	}
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(patience, cancel) })
	defer stop()
	s.mu.Lock()
	s.away = cause
	formed := s.formed
	req := s.req
	req.epoch = s.view.Epoch
	s.mu.Unlock()
	seeds := req.seeds
	seeds.waiting = s.inWords("no seed answers, and the world cannot form without one", "no seed answers; this node goes on without one until a node fails")
	seeds.Timeout, seeds.Attempt, seeds.MaxPause, seeds.once = -1, handshake.ReachTimeout, handshake.PauseMax, false
	switch after := req.Patience; {
	case !s.durable && !s.silent:
		seeds.once = true
	case !s.durable: // It was silent for longer than that.
		seeds.MaxPause = s.lim.Away / 3 // It has probably ended. If it was suspended, it grants its nodes Away.
		s.mu.Lock()
		s.giveUpLocked(cause)
		s.mu.Unlock()
	case after > 0:
		late := time.AfterFunc(after, func() { s.endPatience(cause, after) })
		defer late.Stop()
	}
	// Addrs may begin with the lost seed.
	seeds.Addrs = slices.Clone(seeds.Addrs)
	rand.Shuffle(len(seeds.Addrs), func(i, j int) { seeds.Addrs[i], seeds.Addrs[j] = seeds.Addrs[j], seeds.Addrs[i] })
	err = seeds.search(ctx, req.Token, func(ctx context.Context, conn transport.Conn) error {
		next := newSession(conn, req)
		if err := next.admit(ctx, req); err != nil {
			return err
		}
		return s.take(next)
	})
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, cause
	case formed:
		err = fmt.Errorf("%w, and there is no other: %w", cause, err)
		if !s.durable && !s.silent {
			s.warnGone(err)
		}
	}
	return false, err
}

// endPatience ends the calls that wait for a seed, since none was reachable for the time after.
func (s *Session) endPatience(cause error, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != cause || //nolint:errorlint // the same outage, not one of the same kind
		s.absent.Err() != nil {
		return
	}
	s.log.Warn("no seed is reachable; the world continues until a node fails", "within", after, "reason", cause)
	s.giveUpLocked(fmt.Errorf("%w; no seed was reachable within %v", cause, after))
}

// giveUpLocked ends the calls that wait for a seed.
func (s *Session) giveUpLocked(cause error) {
	s.away = cause
	s.setAbsent()
	s.notifyLocked()
}

// take adopts the connection of next, another Session of this node, and repeats the reports of
// this node.
func (s *Session) take(next *Session) error {
	if got, want := next.Identity.Cluster(), s.Identity.Cluster(); got != want {
		next.conn.Close()
		return fmt.Errorf("%w: seed %s is of cluster %s, this node of %s", handshake.ErrFalseSeed, next.seed, got, want)
	}
	if err := s.Identity.Replace(next.certificate); err != nil {
		s.log.Error("new certificate cannot be used", "seed", next.seed, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.seed, s.out = next.conn, next.seed, next.out
	s.World = next.World
	s.away = nil
	s.seedAnswersLocked()
	if s.absent.Err() != nil {
		s.absent, s.setAbsent = context.WithCancel(context.Background())
	}
	for _, m := range s.reports {
		s.out.Post(handshake.Frame(m))
	}
	for peer := range s.links {
		s.out.Post(handshake.Frame(wire.JoinLink{Peer: peer, Up: true}))
	}
	if s.closing.Err() != nil {
		s.out.Close(s.lastLocked())
	}
	s.log.Info("connected to a seed again", "seed", s.seed)
	return nil
}

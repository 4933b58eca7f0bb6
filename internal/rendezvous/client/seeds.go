package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

// Seeds finds a seed of the cluster. A node may start before the seeds do, and some of them may
// be down.
type Seeds struct {
	// Addrs are tried in turn.
	Addrs []string

	// Dial connects to one of them, with the credentials pki.Joining.
	Dial func(ctx context.Context, addr string) (transport.Conn, error)

	// Timeout bounds the search. Zero means one minute, a negative value no limit.
	Timeout time.Duration

	// Attempt bounds one attempt at one address. Zero means 10 seconds.
	Attempt time.Duration

	// Log receives events. Nil discards them.
	Log *slog.Logger

	// once ends the search after one round, unless a seed is busy.
	once bool

	// MinPause and MaxPause bound the pause between two rounds, which doubles from one to
	// the other. Zero means 50 ms and 2 s. Half of each pause is random.
	MinPause, MaxPause time.Duration
}

// Join joins at the first seed that answers. While all seeds are busy or unreachable, it tries
// again. When ctx ends or Timeout has passed, it returns an error with the reason for each seed.
// It returns at once if a seed refuses the node or does not have the token.
func (d Seeds) Join(ctx context.Context, req Request) (s *Session, err error) {
	req.seeds = d
	err = d.search(ctx, req.Token, func(ctx context.Context, conn transport.Conn) (err error) {
		s, err = Join(ctx, conn, req)
		return err
	})
	return s, err
}

// search calls f with connections to seeds until f succeeds or its error is final. f owns the
// connection.
func (d Seeds) search(ctx context.Context, token pki.Token, f func(context.Context, transport.Conn) error) error {
	if len(d.Addrs) == 0 {
		return errors.New("no address of a seed is known")
	}
	if err := token.Check(d.Addrs...); err != nil {
		if token.IsZero() {
			return fmt.Errorf("%w: NEXAR_CLUSTER_TOKEN is not set, use that of the seed: %w", handshake.ErrToken, err)
		}
		return fmt.Errorf("%w: %w", handshake.ErrToken, err)
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if timeout := cmp.Or(d.Timeout, time.Minute); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	last := make([]error, len(d.Addrs))
	var mu sync.Mutex // protects last, next and attempts from the reminder
	attempts, next := 0, ""
	if !d.once {
		reminder := remind(func(waited time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			d.Log.Warn("no seed reached yet", "waited", waited, "tried", strings.Join(d.tried(ctx, last), ", "), "attempts", attempts, "next", next)
		})
		defer reminder.stop()
	}
	pause := cmp.Or(d.MinPause, 50*time.Millisecond)
	for {
		again := !d.once
		mu.Lock()
		attempts++
		mu.Unlock()
		for i, addr := range d.Addrs {
			mu.Lock()
			next = addr
			mu.Unlock()
			err := d.follow(ctx, addr, f)
			if err == nil || IsFinal(err) {
				return err
			}
			again = again || answered(err)
			// A timeout, of this attempt or of the search, says less than an answer.
			mu.Lock()
			if last[i] == nil || !isTimeout(err) {
				last[i] = err
			}
			next = d.Addrs[(i+1)%len(d.Addrs)]
			mu.Unlock()
			d.Log.Debug("seed not reached", "addr", addr, "attempt", attempts, "err", err)
			if ctx.Err() != nil {
				return d.failed(ctx, attempts, last)
			}
		}
		// The pause is random, so that nodes that started together do not try again together.
		if !again || !handshake.Sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return d.failed(ctx, attempts, last)
		}
		pause = min(2*pause, cmp.Or(d.MaxPause, 2*time.Second))
	}
}

// followMax is how often one attempt follows a redirect: two seeds that disagree must not
// redirect a node for ever.
const followMax = 3

// follow tries a seed, and the leader if the seed redirects.
func (d Seeds) follow(ctx context.Context, addr string, f func(context.Context, transport.Conn) error) error {
	err := d.try(ctx, addr, f)
	for range followMax {
		r, ok := errors.AsType[*handshake.RedirectError](err)
		if !ok || r.Leader == "" {
			return err
		}
		if err = d.try(ctx, r.Leader, f); err != nil && !IsFinal(err) {
			err = fmt.Errorf("%w, but it cannot be reached: %w", r, err)
		}
	}
	return err
}

func (d Seeds) try(ctx context.Context, addr string, f func(context.Context, transport.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.Attempt, 10*time.Second))
	defer cancel()
	conn, err := d.Dial(ctx, addr)
	if err == nil {
		err = f(ctx, conn)
	}
	if errors.Is(err, transport.ErrBusy) {
		// The seed has too many unauthenticated connections: it has refused or evicted this one.
		return fmt.Errorf("seed %s is %w: %w", addr, handshake.ErrBusy, err)
	}
	return err
}

// IsFinal reports whether another attempt would return the same error.
func IsFinal(err error) bool {
	if _, ok := errors.AsType[*handshake.RefusedError](err); ok {
		return !errors.Is(err, handshake.ErrBusy)
	}
	return errors.Is(err, handshake.ErrFalseSeed) || errors.Is(err, handshake.ErrToken) || errors.Is(err, handshake.ErrRequest) ||
		errors.Is(err, transport.ErrIdentity)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// tried returns the address of each seed with the reason why it was not reached.
func (d Seeds) tried(ctx context.Context, last []error) []string {
	tried := make([]string, len(d.Addrs))
	for i, addr := range d.Addrs {
		reason := "not tried"
		switch err := last[i]; {
		case err == nil:
		case isTimeout(err) || errors.Is(err, context.Cause(ctx)):
			reason = "no answer"
		case errors.Is(err, syscall.ECONNREFUSED):
			reason = "nothing listens there"
		default:
			reason = err.Error()
		}
		tried[i] = fmt.Sprintf("%s (%s)", addr, reason)
	}
	return tried
}

// failed returns the error of a search, with the last error of each seed.
func (d Seeds) failed(ctx context.Context, attempts int, last []error) error {
	in := ""
	if attempts > 1 {
		in = fmt.Sprintf(" in %d attempts", attempts)
	}
	format := "no seed could be reached%s; is one running? %s"
	if slices.ContainsFunc(last, answered) {
		format = "no seed has admitted this node%s: %s"
	}
	err := fmt.Errorf(format, in, strings.Join(d.tried(ctx, last), ", "))
	if slices.ContainsFunc(last, func(err error) bool { return errors.Is(err, handshake.ErrBusy) }) {
		err = busyError(err.Error())
	}
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("%w (%w)", err, context.DeadlineExceeded)
}

// A busyError contains the reasons of several seeds, of which at least one is busy.
type busyError string

func (e busyError) Error() string { return string(e) }
func (e busyError) Unwrap() error { return handshake.ErrBusy }

// answered reports whether an error is the answer of a seed.
func answered(err error) bool {
	_, redirected := errors.AsType[*handshake.RedirectError](err)
	return redirected || errors.Is(err, handshake.ErrBusy)
}

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

// Seeds are where a node looks for a seed: it may start before they do, and
// some of them may be down.
type Seeds struct {
	// Addrs are tried in turn.
	Addrs []string

	// Dial connects to one of them, under the credentials pki.Joining.
	Dial func(ctx context.Context, addr string) (transport.Conn, error)

	// Timeout bounds the search. Zero means a minute, a negative value that
	// there is no limit.
	Timeout time.Duration

	// Attempt bounds one attempt at one address. Zero means 10 seconds.
	Attempt time.Duration

	// Log receives events. Nil discards them.
	Log *slog.Logger

	// once gives up after one round, unless a seed is busy.
	once bool

	// MinPause and MaxPause bound the pause between two rounds, which doubles from one to
	// the other. Zero means 50 ms and 2 s. Half of each pause is random.
	MinPause, MaxPause time.Duration
}

// Join joins at the first seed that answers. It goes on as long as seeds
// cannot be reached or are busy, until ctx ends or Timeout is over, and then
// returns an error with the reason for each seed. A seed that answers and
// refuses, or that turns out to be false, is the end of it.
func (d Seeds) Join(ctx context.Context, req Request) (s *Session, err error) {
	req.seeds = d
	err = d.search(ctx, req.Token, func(ctx context.Context, conn transport.Conn) (err error) {
		s, err = Join(ctx, conn, req)
		return err
	})
	return s, err
}

// search looks for a seed with which f, that takes its conn over, succeeds.
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
	d = d.withDefaults()
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	last := make([]error, len(d.Addrs))
	pause := d.MinPause
	for attempts := 1; ; attempts++ {
		again := !d.once
		for i, addr := range d.Addrs {
			err := d.follow(ctx, addr, f)
			if err == nil || IsFinal(err) {
				return err
			}
			_, elsewhere := errors.AsType[*handshake.RedirectError](err)
			again = again || errors.Is(err, handshake.ErrBusy) || elsewhere
			// That the time was up, for this attempt or for all, says less
			// than an answer.
			if last[i] == nil || !isTimeout(err) {
				last[i] = err
			}
			d.Log.Debug("seed not reached", "addr", addr, "attempt", attempts, "err", err)
			if ctx.Err() != nil {
				return d.failed(ctx, attempts, last)
			}
		}
		if !again {
			return d.failed(ctx, attempts, last)
		}
		// Between half of it and the whole: nodes that started together
		// shall not come back together.
		if !handshake.Sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return d.failed(ctx, attempts, last)
		}
		pause = min(2*pause, d.MaxPause)
	}
}

func (d Seeds) withDefaults() Seeds {
	set := func(v *time.Duration, to time.Duration) {
		if *v == 0 {
			*v = to
		}
	}
	set(&d.Timeout, time.Minute)
	set(&d.Attempt, 10*time.Second)
	set(&d.MinPause, 50*time.Millisecond)
	set(&d.MaxPause, 2*time.Second)
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return d
}

// followMax is how often one attempt goes on to the seed that leads: two seeds that
// disagree must not send a node back and forth.
const followMax = 3

// follow tries a seed, and the one that it says leads.
func (d Seeds) follow(ctx context.Context, addr string, f func(context.Context, transport.Conn) error) error {
	err := d.try(ctx, addr, f)
	for range followMax {
		e, ok := errors.AsType[*handshake.RedirectError](err)
		if !ok || e.Leader == "" {
			return err
		}
		if err = d.try(ctx, e.Leader, f); err != nil && !IsFinal(err) {
			err = fmt.Errorf("%w, where there is no answer: %w", e, err)
		}
	}
	return err
}

func (d Seeds) try(ctx context.Context, addr string, f func(context.Context, transport.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.Attempt)
	defer cancel()
	conn, err := d.Dial(ctx, addr)
	if err == nil {
		err = f(ctx, conn)
	}
	if errors.Is(err, transport.ErrBusy) {
		// It refuses connections before they are authenticated, or has evicted this one
		// to admit another.
		return fmt.Errorf("seed %s is %w: %w", addr, handshake.ErrBusy, err)
	}
	return err
}

// IsFinal reports whether err will be the same at the next attempt.
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

func (d Seeds) failed(ctx context.Context, attempts int, last []error) error {
	var tried []string
	for i, addr := range d.Addrs {
		switch {
		case last[i] != nil && (isTimeout(last[i]) || errors.Is(last[i], context.Cause(ctx))):
			tried = append(tried, addr+" (no answer)")
		case errors.Is(last[i], syscall.ECONNREFUSED):
			tried = append(tried, addr+" (nothing listens there)")
		case last[i] != nil:
			tried = append(tried, fmt.Sprintf("%s (%v)", addr, last[i]))
		default:
			tried = append(tried, addr+" (not tried)")
		}
	}
	in := ""
	if attempts > 1 {
		in = fmt.Sprintf(" in %d attempts", attempts)
	}
	what := "no seed could be reached%s; does one run there? %s"
	if slices.ContainsFunc(last, answered) {
		what = "no seed has let this node in%s: %s"
	}
	err := fmt.Errorf(what, in, strings.Join(tried, ", "))
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

// A busyError lists the reasons of several seeds, at least one of them busy.
type busyError string

func (e busyError) Error() string { return string(e) }
func (e busyError) Unwrap() error { return handshake.ErrBusy }

// answered reports whether it is a seed that says so.
func answered(err error) bool {
	_, elsewhere := errors.AsType[*handshake.RedirectError](err)
	return elsewhere || errors.Is(err, handshake.ErrBusy)
}

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/transport"
)

// Seeds finds a seed of the cluster. A node may start before the seeds do, and some of them may
// be down.
type Seeds struct {
	// Addrs are dialed in this order, each one [eyeballs.Delay] after the one before, or when that has failed.
	Addrs []string

	// Dial connects to one of them, with the credentials pki.Joining.
	Dial func(ctx context.Context, addr string) (transport.Conn, error)

	// Timeout bounds the search. Zero means one minute, a negative value no limit.
	Timeout time.Duration

	// Attempt bounds a dial of the first round, and the answer of a seed after it. In each of the next two rounds it doubles, since a
	// handshake on a busy host may take longer. Zero means 10 seconds.
	Attempt time.Duration

	// Log receives events. Nil discards them.
	Log *slog.Logger

	// Shared says that other programs may listen at some of Addrs, such as seeds of other clusters and of earlier worlds of this one. Only a
	// seed that has proved the token can end the search of a node that joins, unless its world has formed or ended.
	Shared bool

	// OthersWarn says that another process of this host warns that no seed is reached.
	OthersWarn bool

	// waiting is the warning while no seed is reached. Empty means that of a node that joins.
	waiting string

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
	if req.Key == nil {
		if req.Key, err = pki.NewKey(); err != nil {
			return nil, err
		}
	}
	if listen := req.Listen; listen != nil {
		var last string
		var started []membership.Endpoint
		req.Listen = func(ctx context.Context, cluster string, id membership.NodeID) (_ []membership.Endpoint, err error) {
			if started == nil || cluster != last {
				last = cluster
				started, err = listen(ctx, cluster, id)
			}
			return started, err
		}
	}
	err = d.search(ctx, req.Token, func(ctx context.Context, conn transport.Conn) (err error) {
		s, err = Join(ctx, conn, req)
		req.rejoin = true // The seed may have admitted the node, and the answer was lost.
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
	r := &search{Seeds: d, token: token, f: f, last: make([]error, len(d.Addrs))}
	if !d.once {
		reminder := wake.Remind(wake.RemindAfter, func(waited time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			level := slog.LevelWarn
			if d.OthersWarn && d.waiting == "" {
				level = slog.LevelInfo
			}
			d.Log.Log(ctx, level, cmp.Or(d.waiting, "no seed reached yet"), "waited", waited, "tried", strings.Join(d.tried(ctx, r.last), ", "), "attempts", r.attempts)
		})
		defer reminder.Stop()
	}
	pause := cmp.Or(d.MinPause, handshake.PauseMin)
	for {
		if over, err := r.round(ctx); over {
			return err
		}
		// The pause is random, so that nodes that started together do not try again together.
		if d.once && !r.answered || ctx.Err() != nil || !handshake.Sleep(ctx, pause/2+rand.N(pause/2+1)) {
			return d.failed(ctx, r.attempts, r.last)
		}
		pause = min(2*pause, cmp.Or(d.MaxPause, 2*handshake.PauseMax))
	}
}

// A search is a call of Seeds.search.
type search struct {
	Seeds
	token    pki.Token
	f        func(context.Context, transport.Conn) error
	answered bool // a seed has answered in this round

	mu       sync.Mutex // protects the fields below from the reminder
	attempts int        // rounds
	last     []error    // by address
}

// round tries each seed once, in the order in which they answer. It reports whether the search is over: f has succeeded, or err is final.
func (r *search) round(ctx context.Context) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx) // A race leaves the context of its winner to the caller.
	defer cancel()
	r.mu.Lock()
	r.attempts++
	r.mu.Unlock()
	r.answered = false
	left := make([]int, len(r.Addrs))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 && ctx.Err() == nil {
		race := eyeballs.Race[transport.Conn]{Discard: func(c transport.Conn) { c.Close() }, IsRefusal: r.isFinal}
		for _, i := range left {
			race.Attempts = append(race.Attempts, func(ctx context.Context, _ func()) (transport.Conn, error) { return r.dial(ctx, r.Addrs[i]) })
		}
		winner, conn, errs := race.Run(ctx)
		if winner >= 0 {
			errs[winner] = r.follow(ctx, r.Addrs[left[winner]], conn)
			if err := errs[winner]; err == nil || r.isFinal(err) {
				return true, err
			}
		} else if i := slices.IndexFunc(errs, r.isFinal); i >= 0 {
			return true, errs[i]
		}
		left = r.note(ctx, left, errs)
	}
	return false, nil
}

// note records the errors of seeds, given by their indices in Addrs, and returns the seeds without one.
func (r *search) note(ctx context.Context, tried []int, errs []error) (left []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, i := range tried {
		err := errs[k]
		if err == nil {
			left = append(left, i)
			continue
		}
		r.answered = r.answered || answered(err)
		// A timeout, of this attempt or of the search, says less than an answer.
		if r.last[i] == nil || !isTimeout(err) {
			r.last[i] = err
		}
		r.Log.Log(ctx, slog.LevelDebug, "seed not reached", "addr", r.Addrs[i], "attempt", r.attempts, "err", err)
	}
	return left
}

// followMax is how often one attempt follows a redirect: two seeds that disagree must not
// redirect a node for ever.
const followMax = 3

// follow tries a seed that has answered, and the leader if the seed redirects.
func (r *search) follow(ctx context.Context, addr string, conn transport.Conn) error {
	err := r.ask(ctx, addr, conn)
	for range followMax {
		redirect, ok := errors.AsType[*handshake.RedirectError](err)
		if !ok || redirect.Leader == "" {
			return err
		}
		leader := eyeballs.WithZone(redirect.Leader, conn.RemoteAddr())
		if next, failure := r.dial(ctx, leader); failure != nil {
			err = failure
		} else {
			conn, err = next, r.ask(ctx, leader, next)
		}
		if err != nil && !IsFinal(err) {
			err = fmt.Errorf("%w, but it cannot be reached: %w", redirect, err)
		}
	}
	return err
}

// dial connects to a seed.
func (r *search) dial(ctx context.Context, addr string) (transport.Conn, error) {
	ctx, cancel := r.attempt(ctx)
	defer cancel()
	conn, err := r.Dial(ctx, addr)
	return conn, busy(addr, err)
}

// ask calls f with the connection to a seed.
func (r *search) ask(ctx context.Context, addr string, conn transport.Conn) error {
	ctx, cancel := r.attempt(ctx)
	defer cancel()
	return busy(addr, r.f(ctx, conn))
}

func (r *search) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(r.Attempt, 10*time.Second)<<min(r.attempts-1, 2))
}

// busy names a seed that has too many unauthenticated connections: it has refused or evicted this one.
func busy(addr string, err error) error {
	if errors.Is(err, transport.ErrBusy) {
		return fmt.Errorf("seed %s is %w: %w", addr, handshake.ErrBusy, err)
	}
	return err
}

// isFinal reports whether err ends the search.
func (r *search) isFinal(err error) bool {
	if errors.Is(err, handshake.ErrToken) && len(r.token.Accepted()) > 1 {
		return false // The seed does not have the new file of the token yet.
	}
	if !IsFinal(err) || !r.Shared {
		return IsFinal(err)
	}
	refused, ok := errors.AsType[*handshake.RefusedError](err)
	isEarlier := r.waiting == "" && errors.Is(err, membership.ErrOver)
	return !(isEarlier || ok && refused.Unproved || errors.Is(err, handshake.ErrToken) || errors.Is(err, handshake.ErrFalseSeed) || errors.Is(err, transport.ErrIdentity))
}

// IsFinal reports whether another attempt would return the same error.
func IsFinal(err error) bool {
	if _, ok := errors.AsType[*handshake.RefusedError](err); ok {
		return !errors.Is(err, handshake.ErrBusy)
	}
	return errors.Is(err, handshake.ErrFalseSeed) || errors.Is(err, handshake.ErrToken) || errors.Is(err, handshake.ErrRequest) || errors.Is(err, handshake.ErrWorldSize) ||
		errors.Is(err, transport.ErrIdentity)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// tried returns the address of each seed with the reason why it was not reached, or once the name of a host that is not known.
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
		if unknown, ok := errors.AsType[*net.DNSError](last[i]); ok {
			tried[i] = unknown.Error()
		}
	}
	return slices.Compact(tried)
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
	_, refused := errors.AsType[*handshake.RefusedError](err)
	return redirected || refused || errors.Is(err, handshake.ErrBusy)
}

package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/transport"
)

const (
	// headStart is the time for a seed to answer over one transport before the next one is
	// dialed as well. RFC 8305 recommends it as the Connection Attempt Delay.
	headStart = 250 * time.Millisecond
	// graceMin is the least time for a seed to answer over a preferred transport after it has
	// answered over another one.
	graceMin = 500 * time.Millisecond
)

// A seedDialer dials seeds with one transport.
type seedDialer struct {
	name string
	// dial may call answered when the seed has answered, before the conn is complete.
	dial  func(ctx context.Context, addr string, answered func()) (transport.Conn, error)
	close func() error
}

// A dialed is the result of a dial.
type dialed struct {
	index int // of the dialer
	conn  transport.Conn
	err   error
	took  time.Duration
}

// A race dials an address with several transports at a time, as in "Happy Eyeballs" (RFC 8305). A
// dialer starts headStart after the previous one, or when that has failed. The conn of a
// dialer is used when all dialers before it have failed, or have got no answer for graceMin and twice
// the time that this dialer took.
type race struct {
	dialers []seedDialer
	addr    string
	results chan dialed
	dialing sync.WaitGroup

	started  int           // dialers that have started
	answered []atomic.Bool // by dialer
	failed   []error       // by dialer
	best     *dialed       // the conn of the first dialer in the list that has one
	late     bool          // the time for dialers before best is over
}

// dialFirst dials an address with several transports. On an error it returns that of the first
// transport, unless the peer has refused this process over another one. failed is the error of the
// first transport, if it has one.
func dialFirst(ctx context.Context, dialers []seedDialer, addr string) (won dialed, failed, err error) {
	if ctx.Err() != nil {
		return dialed{}, nil, context.Cause(ctx)
	}
	r := &race{
		dialers: dialers, addr: addr, results: make(chan dialed, len(dialers)),
		answered: make([]atomic.Bool, len(dialers)), failed: make([]error, len(dialers)),
	}
	dialing, cancel := context.WithCancel(ctx)
	defer r.closeOthers()
	defer cancel()

	next, grace := time.NewTimer(headStart), time.NewTimer(0)
	<-grace.C
	defer next.Stop()
	defer grace.Stop()
	r.startNext(dialing)
	if r.started == 0 { // ctx has ended meanwhile
		return dialed{}, nil, context.Cause(ctx)
	}
	for {
		select {
		case d := <-r.results:
			if r.take(d) {
				grace.Reset(max(graceMin, 2*d.took))
			}
			if d.err != nil && r.best == nil {
				r.startNext(dialing)
				next.Reset(headStart)
			}
		case <-next.C:
			if r.best == nil {
				r.startNext(dialing)
				next.Reset(headStart)
			}
		case <-grace.C:
			r.late = true
		}
		if over, err := r.over(ctx); over {
			if err != nil && r.best != nil {
				r.best.conn.Close()
			}
			if err != nil {
				return dialed{}, r.failed[0], err
			}
			return *r.best, r.failed[0], nil
		}
	}
}

// startNext starts the next dialer, if there is one and ctx has not ended.
func (r *race) startNext(ctx context.Context) {
	if r.started == len(r.dialers) || ctx.Err() != nil {
		return
	}
	i := r.started
	r.started++
	r.dialing.Go(func() {
		began := time.Now()
		c, err := r.dialers[i].dial(ctx, r.addr, func() { r.answered[i].Store(true) })
		r.results <- dialed{index: i, conn: c, err: err, took: time.Since(began)}
	})
}

// take records a result, and reports whether it is the first conn.
func (r *race) take(d dialed) (first bool) {
	switch {
	case d.err != nil:
		r.failed[d.index] = d.err
	case r.best == nil:
		r.best = &d
		return true
	case d.index < r.best.index:
		r.best.conn.Close()
		r.best = &d
	default:
		d.conn.Close()
	}
	return false
}

// over reports whether the race is over: best is the result, or err if there is none.
func (r *race) over(ctx context.Context) (over bool, err error) {
	for i := range r.started {
		switch {
		case r.best != nil && i == r.best.index:
			return true, nil
		case r.failed[i] == nil && (!r.late || r.answered[i].Load()):
			return false, nil // It may still succeed.
		case isRefusal(r.failed[i]):
			return true, r.failed[i]
		}
	}
	if r.started < len(r.dialers) && ctx.Err() == nil {
		return false, nil
	}
	return true, r.failed[0] // The error of the preferred transport is the most specific.
}

// isRefusal reports whether only the peer can have caused an error.
func isRefusal(err error) bool {
	return errors.Is(err, transport.ErrBusy) || errors.Is(err, transport.ErrIdentity)
}

// closeOthers waits for the dialers after the end of their context, and closes all conns but the best.
func (r *race) closeOthers() {
	r.dialing.Wait()
	close(r.results)
	for d := range r.results {
		if d.conn != nil {
			d.conn.Close()
		}
	}
}

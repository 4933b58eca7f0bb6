package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A fakeConn is a conn of fakeDialer.
type fakeConn struct {
	transport.Conn
	closed *int
}

func (c fakeConn) Close() error {
	*c.closed++
	return nil
}

// A fakeDialer answers after some time. 0 means never.
type fakeDialer struct {
	partly, after time.Duration // until the first answer, and until the conn or err
	err           error
}

// TestDialFirst: a seed that answers over a preferred transport in time is used over it. Otherwise it is
// used over the next one, after less than a second. All other conns are closed.
func TestDialFirst(t *testing.T) {
	const ms = time.Millisecond
	refused := errors.New("refused by the system")
	busy := fmt.Errorf("test: %w", transport.ErrBusy)
	for name, test := range map[string]struct {
		dialers []fakeDialer
		limit   time.Duration // of the context
		index   int           // of the winner
		err     error
		took    time.Duration
		closed  int
	}{
		"the first answers":                    {dialers: []fakeDialer{{after: 20 * ms}, {after: 10 * ms}}, index: 0, took: 20 * ms},
		"the first is silent":                  {dialers: []fakeDialer{{}, {after: 10 * ms}}, index: 1, took: 760 * ms},
		"the first is late":                    {dialers: []fakeDialer{{after: 700 * ms}, {after: 10 * ms}}, index: 0, took: 700 * ms, closed: 1},
		"the first answers slowly":             {dialers: []fakeDialer{{partly: 300 * ms, after: 2000 * ms}, {after: 10 * ms}}, index: 0, took: 2000 * ms, closed: 1},
		"the first answers partly, then fails": {dialers: []fakeDialer{{partly: 300 * ms, after: 2000 * ms, err: refused}, {after: 10 * ms}}, index: 1, took: 2000 * ms},
		"a slow network":                       {dialers: []fakeDialer{{after: 1500 * ms}, {after: 600 * ms}}, index: 0, took: 1500 * ms, closed: 1},
		"the first fails":                      {dialers: []fakeDialer{{after: 5 * ms, err: refused}, {after: 10 * ms}}, index: 1, took: 15 * ms},
		"the second fails":                     {dialers: []fakeDialer{{after: 900 * ms}, {after: 10 * ms, err: refused}}, index: 0, took: 900 * ms},
		"both fail":                            {dialers: []fakeDialer{{after: 10 * ms, err: refused}, {after: 10 * ms, err: errors.New("other")}}, err: refused, took: 20 * ms},
		"the first is busy":                    {dialers: []fakeDialer{{after: 300 * ms, err: busy}, {after: 10 * ms}}, err: transport.ErrBusy, took: 300 * ms, closed: 1},
		"the second is busy":                   {dialers: []fakeDialer{{after: 300 * ms, err: refused}, {after: 10 * ms, err: busy}}, err: transport.ErrBusy, took: 300 * ms},
		"none answers":                         {dialers: []fakeDialer{{}, {}}, limit: 3000 * ms, err: context.DeadlineExceeded, took: 3000 * ms},
		"the third answers":                    {dialers: []fakeDialer{{}, {}, {after: 10 * ms}}, index: 2, took: 1010 * ms},
		"no time":                              {dialers: []fakeDialer{{after: ms}, {after: ms}}, limit: -ms, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := 0
				var dialers []seedDialer
				for _, d := range test.dialers {
					dialers = append(dialers, seedDialer{dial: d.dial(&closed)})
				}
				ctx := t.Context()
				if test.limit != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				began := time.Now()
				winner, c, _, err := dialFirst(ctx, dialers, "seed:1")
				if took := time.Since(began); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if !errors.Is(err, test.err) || err == nil && (winner != test.index || c == nil) {
					t.Errorf("won by dialer %d (conn %v), error %v; want dialer %d, error %v", winner, c, err, test.index, test.err)
				}
				if closed != test.closed {
					t.Errorf("%d conns are closed, want %d", closed, test.closed)
				}
			})
		})
	}
}

func (d fakeDialer) dial(closed *int) func(context.Context, string, func()) (transport.Conn, error) {
	return func(ctx context.Context, _ string, answered func()) (transport.Conn, error) {
		if d.partly > 0 {
			time.AfterFunc(d.partly, answered)
		}
		var done <-chan time.Time
		if d.after > 0 {
			done = time.After(d.after)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if d.err != nil {
			return nil, d.err
		}
		return fakeConn{closed: closed}, nil
	}
}

// An endingContext ends after the first call of Err.
type endingContext struct {
	context.Context
	end context.CancelFunc
}

func (c endingContext) Err() error {
	defer c.end()
	return c.Context.Err()
}

// TestDialFirstEnds: a context that ends before the first dialer has started ends the race with its error.
func TestDialFirstEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed := 0
	dialers := []seedDialer{{dial: fakeDialer{after: time.Millisecond}.dial(&closed)}}
	if _, c, _, err := dialFirst(endingContext{ctx, cancel}, dialers, "seed:1"); !errors.Is(err, context.Canceled) || c != nil {
		t.Errorf("conn %v, error %v; want no conn and %v", c, err, context.Canceled)
	}
}

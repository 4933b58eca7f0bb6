package server

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/wake"
)

// A loop is the goroutine that owns the state of a seed, with its timers.
type loop struct {
	ctx     context.Context // ends when Close is called
	calls   chan func()
	quit    chan struct{} // closed when the loop is to end
	stopped chan struct{} // closed when it has ended

	changed wake.Signal     // when the fields that calls wait for change; the loop owns it
	timers  map[*timer]bool // running ones; the loop owns it
}

func newLoop(ctx context.Context) loop {
	return loop{
		ctx: ctx, calls: make(chan func()), quit: make(chan struct{}), stopped: make(chan struct{}),
		changed: wake.NewSignal(), timers: make(map[*timer]bool),
	}
}

// run passes the functions of call and post to turn, one after the other.
func (l *loop) run(turn func(f func())) {
	defer close(l.stopped)
	for {
		select {
		case f := <-l.calls:
			turn(f)
		case <-l.quit:
			return
		}
	}
}

func (l *loop) stopLoop() {
	close(l.quit)
	<-l.stopped
}

// post has the loop run f. It reports false if the loop has ended.
func (l *loop) post(f func()) bool {
	select {
	case l.calls <- f:
		return true
	case <-l.stopped:
		return false
	}
}

// call has the loop run f, and waits for it.
func (l *loop) call(f func()) bool {
	done := make(chan struct{})
	if !l.post(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// read has f read the state, even if the loop has ended.
func (l *loop) read(f func()) {
	if !l.call(f) {
		f()
	}
}

// notify wakes all calls of await.
func (l *loop) notify() {
	l.changed.Send()
}

// await waits until done, called in the loop, returns true. It reports false if ctx ends first.
func (l *loop) await(ctx context.Context, done func() bool) bool {
	for {
		var ok bool
		var changed <-chan struct{}
		l.read(func() { ok, changed = done(), l.changed.Next() })
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// A timer runs a function in the loop unless the loop stops it before.
type timer struct {
	t       *time.Timer
	d       time.Duration
	f       func()
	running map[*timer]bool
}

// after returns a timer that runs f after d, or nil if Close was called:
// connections that end during Close start no timers.
func (l *loop) after(d time.Duration, f func()) *timer {
	if l.ctx.Err() != nil {
		return nil
	}
	t := &timer{d: d, f: f, running: l.timers}
	t.running[t] = true
	t.t = time.AfterFunc(d, func() {
		l.post(func() {
			if t.running[t] {
				delete(t.running, t)
				f()
			}
		})
	})
	return t
}

// again replaces a running timer by one that begins now.
func (l *loop) again(t *timer) *timer {
	if !t.isRunning() {
		return t
	}
	t.stop()
	return l.after(t.d, t.f)
}

// isRunning reports whether a timer, which may be nil, will run its function.
func (t *timer) isRunning() bool { return t != nil && t.running[t] }

// stop stops a timer, which may be nil.
func (t *timer) stop() {
	if t != nil {
		t.t.Stop()
		delete(t.running, t)
	}
}

func (l *loop) stopTimers() {
	for t := range l.timers {
		t.stop()
	}
}

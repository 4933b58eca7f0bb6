package p2p

import (
	"context"

	"github.com/nexar-go/nexar/internal/poll"
)

// A background is how a send or receive in progress is followed. The lock of the Messages guards it.
type background struct {
	waiters  *Waiters  // nil if the goroutine in Wait is that of the program
	over     bool      // has ended, and its goroutine is about to be woken or has been
	follower *follower // nil if there is a goroutine in Wait
}

// Follow calls f with the results of [Receive.Wait], without a goroutine in Wait. The operation counts
// as one of the goroutines of w, which may be nil. Follow must be called at most once, in place of Wait. If the receive has
// ended without an error, f is called before Follow returns; if it ends so later, by the goroutine that
// ends it. Otherwise f is called on a goroutine of its own.
func (r *Receive) Follow(ctx context.Context, w *Waiters, f func(Received, error)) {
	if r.done.Has() && r.err == nil {
		f(r.Wait(ctx))
		return
	}
	r.messages.follow(ctx, &r.background, w, r.source, func() { f(r.Wait(ctx)) })
}

// Follow is as [Receive.Follow], with the result of [Send.Wait].
func (s *Send) Follow(ctx context.Context, w *Waiters, f func(error)) {
	s.messages.follow(ctx, &s.background, w, s.rank, func() { f(s.Wait(ctx)) })
}

// follow calls end once, when Wait no longer blocks or ctx has ended. Meanwhile the call counts as one that waits for
// rank.
func (m *Messages) follow(ctx context.Context, b *background, w *Waiters, rank int, end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.waiters = w
	if b.over {
		m.cfg.Owner.Spawn(end)
		return
	}
	f := &follower{messages: m, peers: m.peers(rank), end: end}
	if w != nil {
		w.follow(m, f.peers)
	}
	f.held = m.cfg.Poller.Hold(ctx, f.peers)
	if ctx.Done() != nil {
		f.stop = context.AfterFunc(ctx, f.expire)
	}
	b.follower = f
}

// A follower takes the place of a goroutine in Wait.
type follower struct {
	messages *Messages
	peers    []int
	held     poll.Held
	stop     func() bool // of the context; nil if that does not end
	end      func()
}

// ended is called when the operation has ended.
func (f *follower) ended() {
	if f.stop == nil || f.stop() {
		f.finish()
	}
}

// expire is called when the context has ended, if the operation has not.
func (f *follower) expire() { f.messages.cfg.Owner.Go(f.finish) }

func (f *follower) finish() {
	f.messages.cfg.Poller.Release(f.peers, f.held)
	f.end()
}

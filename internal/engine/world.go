package engine

import (
	"errors"
	"slices"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/wire"
)

// A WorldWait is a call of this rank that ends when the seed has decided the next view. It needs no frame of another rank.
type WorldWait struct {
	Op uint8 // of the fingerprint
	// Ordered says that the seed knows of the call and may end it, and that the ranks not in Without make the same call in place of
	// their next collective. Mismatched is called with the [MismatchError] if one of them makes another call. If Ordered is false,
	// only a change of the world that nobody has asked for ends the call, and other goroutines may make calls meanwhile.
	Ordered    bool
	Without    []int
	Limited    bool            // its context has a deadline
	Mismatched func(err error) // or nil

	begun int64 // by the clock of the engine
}

// AwaitWorld says that this rank is in a call, until done is called or the communicator is closed. There is one such call at a time.
func (c *Comm) AwaitWorld(w *WorldWait) (done func()) {
	c.update(func(fx *effects) {
		c.world, w.begun = w, c.engine.clock.Now()
		for f := c.early[c.seq+1]; f != nil; f = f.Next {
			if c.isReplacedLocked(f) {
				c.mismatchLocked(fx, c.worldCallLocked(), c.peerOf(f), f.Step.Call)
				return
			}
		}
	})
	c.engine.wakeWatchdog()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.world == w {
			c.world = nil
		}
	}
}

// isReplacedLocked reports whether this rank is in another call in place of the collective of a frame.
func (c *Comm) isReplacedLocked(f *exec.Frame) bool {
	w := c.world
	return w != nil && w.Ordered && f.Step.Call.Seq == c.seq+1 && !slices.Contains(w.Without, c.peerOf(f))
}

// peerOf returns the rank that has sent a frame, or -1.
func (c *Comm) peerOf(f *exec.Frame) int {
	if rank, ok := c.rankOf.Of(f.Link.Peer); ok {
		return rank
	}
	return -1
}

// worldCallLocked returns the fingerprint of the call that waits for the next view.
func (c *Comm) worldCallLocked() wire.Call {
	return wire.Call{Comm: c.id, Seq: c.seq + 1, Op: c.world.Op}
}

// worldFailsLocked tells the call that waits for the next view that the communicator has ended with err.
func (c *Comm) worldFailsLocked(fx *effects, err error) {
	_, differs := errors.AsType[*MismatchError](err)
	if w := c.world; differs && w != nil && w.Mismatched != nil {
		fx.calls = append(fx.calls, func() { w.Mismatched(err) })
	}
}

// collectWorldLocked adds the call that waits for the next view. The seed may end it if the seed knows of it, or if a rank has left.
// Otherwise each other rank may, by its failure or its end.
func (c *Comm) collectWorldLocked(w *waits, begun uint64) {
	if c.world == nil {
		return
	}
	w.busy = w.busy || c.world.Ordered || c.world.Limited || len(c.left) > 0
	n := wait{waitKey: waitKey{comm: c.id, kind: wire.WaitCollective}, comm: c, progress: begun}
	n.wire = wire.Wait{Kind: wire.WaitCollective, Any: true, Call: c.worldCallLocked()}
	c.addWaitLocked(w, n, c.sendersLocked())
}

// worldTraceLocked returns the trace of the call that waits for the next view.
func (c *Comm) worldTraceLocked(now int64) Trace {
	t := c.newTraceLocked(c.world.begun, now)
	t.Call = c.worldCallLocked()
	t.Seq = t.Call.Seq
	return t
}

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
	// other goroutines may make calls meanwhile. Then only a change of the world that nobody has asked for ends the call or, if Local is
	// true, calls of another goroutine of this rank. A Local call is in no deadlock: the other goroutine may be at work, or the call has a
	// limit of its own.
	Ordered, Local bool
	Without        []int
	Limited        bool            // its context has a deadline
	Mismatched     func(err error) // or nil

	begun int64 // by the clock of the engine
}

// AwaitWorld says that this rank is in a call, until done is called or the communicator is closed. There is one such call at a time that is
// Ordered.
func (c *Comm) AwaitWorld(w *WorldWait) (done func()) {
	c.update(func(fx *effects) {
		if w.begun == 0 { // Otherwise the call has begun in an earlier view.
			w.begun = c.engine.clock.Now()
		}
		c.worlds = append(c.worlds, w)
		for f := c.early[c.seq+1]; f != nil; f = f.Next {
			if c.replacesLocked(f) == w {
				c.mismatchLocked(fx, c.worldCallLocked(w), c.peerOf(f), f.Step.Call)
				return
			}
		}
	})
	c.engine.wakeWatchdog()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.worlds = slices.DeleteFunc(c.worlds, func(o *WorldWait) bool { return o == w })
	}
}

// replacesLocked returns the call that this rank is in in place of the collective of a frame, or nil.
func (c *Comm) replacesLocked(f *exec.Frame) *WorldWait {
	for _, w := range c.worlds {
		if w.Ordered && f.Step.Call.Seq == c.seq+1 && !slices.Contains(w.Without, c.peerOf(f)) {
			return w
		}
	}
	return nil
}

// peerOf returns the rank that has sent a frame, or -1.
func (c *Comm) peerOf(f *exec.Frame) int {
	if rank, ok := c.rankOf.Of(f.Link.Peer); ok {
		return rank
	}
	return -1
}

// worldCallLocked returns the fingerprint of a call that waits for the next view.
func (c *Comm) worldCallLocked(w *WorldWait) wire.Call {
	return wire.Call{Comm: c.id, Seq: c.seq + 1, Op: w.Op}
}

// worldFailsLocked tells the calls that wait for the next view that the communicator has ended with err.
func (c *Comm) worldFailsLocked(fx *effects, err error) {
	if _, differs := errors.AsType[*MismatchError](err); !differs {
		return
	}
	for _, w := range c.worlds {
		if w.Mismatched != nil {
			fx.calls = append(fx.calls, func() { w.Mismatched(err) })
		}
	}
}

// collectWorldLocked adds the calls that wait for the next view. The seed may end one if the seed knows of it, or if a rank has left. A Local
// one is kept apart. Otherwise each other rank may, by its failure or its end.
func (c *Comm) collectWorldLocked(w *waits, begun uint64) {
	for _, call := range c.worlds {
		n := wait{waitKey: waitKey{comm: c.id, kind: wire.WaitCollective}, comm: c, progress: begun}
		n.wire = wire.Wait{Kind: wire.WaitCollective, Any: true, Call: c.worldCallLocked(call)}
		if call.Local {
			n.wire.Rank = uint32(c.viewRankLocked(c.rank))
			w.local = append(w.local, n)
			continue
		}
		w.busy = w.busy || call.Ordered || call.Limited || len(c.left) > 0
		c.addWaitLocked(w, n, c.sendersLocked())
	}
}

// worldTraceLocked returns the trace of a call that waits for the next view.
func (c *Comm) worldTraceLocked(w *WorldWait, now int64) Trace {
	t := c.newTraceLocked(w.begun, now)
	t.Call = c.worldCallLocked(w)
	t.Seq = t.Call.Seq
	return t
}

package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// lingerTime bounds the time for a peer to close the connection after its goodbye, and that from the end of a pipe to the end of
// its connection. The peer closes when it has our acknowledgements, but the packets of the close may be lost.
const lingerTime = time.Second

// keepMax is the longest time that Config.Keep delays the answer to the goodbye of a peer that closes an idle connection, and keepTick the
// time between two calls.
const keepMax, keepTick = time.Second, 20 * time.Millisecond

// lanes is a set of lanes.
type lanes [wire.Lanes]bool

func (s *lanes) all() bool { return *s == lanes{true, true, true} }

// Close says goodbye on every lane and closes the connection when the peer has read
// everything, has byeSent goodbye as well, or ctx ends. The Handler is not notified. After Close
// has returned there are no calls of the Handler. If frames wait on a pending link, or it is about to
// get a connection, Close waits for that as well. It returns false if ctx has ended before the peer has read everything or has
// ended itself.
func (l *Link) Close(ctx context.Context) (delivered bool) {
	defer l.Abort()
	a := l.beginClose(ctx)
	if a == nil {
		return l.IsOver() || !l.IsPending() || !l.IsNeeded()
	}
	a.sayBye(false)
	select {
	case <-a.acked:
	case <-a.left:
	case <-a.done:
	case <-ctx.Done():
		return false
	}
	return true
}

// beginClose returns an attachment without a goodbye of this node, and marks it. It returns nil if the
// link is pending and needs no connection, or has ended.
func (l *Link) beginClose(ctx context.Context) *attachment {
	for l.awaitConnection(ctx) {
		l.ending.Lock()
		a := l.at.Load()
		if a != nil && !a.byeSent {
			l.closing, a.byeSent = true, true
			l.ending.Unlock()
			return a
		}
		l.ending.Unlock()
		if a == nil {
			continue
		}
		select { // The idle connection is being closed.
		case <-a.ended:
			if l.IsOver() {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// IsOver reports whether the channel of Done is closed.
func (l *Link) IsOver() bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.over
}

// sayBye sends our goodbye on every lane. If idle, the link stays, and the caller holds Link.ending and has checked shut: a later
// connection must not begin with it.
func (a *attachment) sayBye(idle bool) {
	x := a.link.exchange()
	a.link.fast.Store(false)
	x.data.bye(idle, false)
	x.control.bye(idle, x.bulk.sayBye(idle))
}

// Abort closes the connection immediately. Undelivered data is lost. After Abort has returned
// there are no calls of the Handler.
func (l *Link) Abort() {
	l.ending.Lock()
	l.closing = true
	l.stopLocked()
	l.ending.Unlock()
	l.awaitEnd()
}

// Detach lets both sides close the connection of a link that has been idle, so that it becomes pending
// again. It does nothing, and returns false, if frames or transfers wait, if the peer may send a
// payload for a grant, if this node waits for the peer ([Link.Wait]), or if the link has no Detached
// function. Nothing is lost: frames that are sent meanwhile wait for the next connection. Detach does
// not block.
func (l *Link) Detach() bool {
	return l.detachIf(func(x *exchange) bool {
		return l.waiters.Load() == 0 && x.grants.some.Load() == 0 && x.claims.some.Load() == 0 &&
			x.control.isIdle() && x.data.isIdle() && x.bulk.isIdle()
	})
}

// Release is [Link.Detach] for a link that is in use: earlier frames and transfers arrive over this connection, and
// later ones wait for the next one. If frames or goroutines of this node wait then, the link needs a
// connection at once. Release does nothing, and returns false, if the link is pending, if both sides have not agreed
// on its connection yet or already close it, or if it has no Detached function. It does not block.
func (l *Link) Release() bool {
	return l.detachIf(func(*exchange) bool { return true })
}

// detachIf lets both sides close the connection of a link that may become pending again, if may allows it.
func (l *Link) detachIf(may func(x *exchange) bool) bool {
	x := l.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	a := l.at.Load()
	detaches := a != nil && l.common.detached != nil && !l.over && !a.byeSent && !a.shut && l.settled != nil && isClosed(l.settled) && may(x)
	if detaches {
		a.sayIdleLocked()
	}
	return detaches
}

// IsDetaching reports whether both sides close the connection of the link, by [Link.Detach] or [Link.Release]: frames that are sent
// now wait for the next one.
func (l *Link) IsDetaching() bool { return l.detaching() != nil }

// Wait adds n to the number of goroutines of this node that wait for the peer. Detach keeps the
// connection while it is positive.
func (l *Link) Wait(n int) { l.waiters.Add(int32(n)) }

// bye handles the goodbye of the peer on a pipe. It acknowledges the goodbye of a lane after
// the last of its pipes; that of a bulk lane without pipes is on the control lane. After the last lane the peer closes the connection, and then the
// handler is notified. The first goodbye of a peer that closes an idle connection is answered by ours.
func (a *attachment) bye(lane wire.Lane, y wire.Bye) error {
	l := a.link
	unopened := y.Lane == wire.Bulk && lane == wire.Control
	if y.Lane != lane && !unopened {
		return fmt.Errorf("goodbye for the %v lane on the %v lane", y.Lane, lane)
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	switch {
	case a.byes[y.Lane]:
		return fmt.Errorf("a second goodbye of the %v lane", y.Lane)
	case y.Idle && l.common.detached == nil:
		return errors.New("it closes the connection as idle, and this link cannot become pending again")
	case (a.byes != lanes{} || a.pipes > 0) && y.Idle != a.idles:
		return errors.New("some of its goodbyes close an idle connection, and others say that it leaves")
	}
	if unopened {
		if err := a.named.endUnopened(); err != nil {
			return err
		}
	}
	a.idles = y.Idle
	if y.Idle && a.keeping == nil {
		a.answerIdleLocked(time.Now().Add(keepMax))
	}
	if lane == wire.Bulk {
		if a.pipes++; a.pipes < a.named.bulkPipes() {
			return nil
		}
	}
	a.byes[y.Lane] = true
	a.acknowledgeLocked()
	if a.byes.all() && !y.Idle {
		a.hasLeft = true
		close(a.left)
		a.linger = time.AfterFunc(lingerTime, a.expire)
	}
	a.endIdleLocked()
	return nil
}

// answerIdleLocked answers the goodbye of a peer that closes an idle connection when Config.Keep permits it, or at end.
func (a *attachment) answerIdleLocked(end time.Time) {
	if a.byeSent || a.shut {
		return
	}
	if a.cfg.Keep != nil && time.Now().Before(end) && a.cfg.Keep() {
		a.keeping = time.AfterFunc(keepTick, func() {
			a.link.ending.Lock()
			defer a.link.ending.Unlock()
			a.answerIdleLocked(end)
		})
		return
	}
	a.sayIdleLocked()
}

// sayIdleLocked says goodbye, and that the link stays.
func (a *attachment) sayIdleLocked() {
	a.byeSent, a.idle = true, true
	a.sayBye(true)
	a.acknowledgeLocked()
}

// acknowledgeLocked acknowledges the goodbyes of the peer. If the link stays, our goodbye is sent before: it marks the frames that end with
// the connection, as acknowledgements do. A peer that closes an idle connection needs no acknowledgements if this node leaves.
func (a *attachment) acknowledgeLocked() {
	if a.shut || a.idles && !a.byeSent { // If shut, the outbox has no pipe any more, or not that of this connection.
		return
	}
	for lane, said := range a.byes {
		if said && !a.replied[lane] {
			a.replied[lane] = true
			a.link.exchange().control.acknowledge(wire.Lane(lane))
		}
	}
}

// expire ends the link after the goodbye of a peer that has not closed the connection.
func (a *attachment) expire() {
	a.link.ending.Lock()
	defer a.link.ending.Unlock()
	a.link.finishLocked()
	a.cancel()
}

// endIdleLocked closes an idle connection when both sides have read everything.
func (a *attachment) endIdleLocked() {
	if a.isIdleLocked() && a.acks.all() {
		a.cancel()
	}
}

// byeAck handles the acknowledgement of our goodbye on a lane.
func (a *attachment) byeAck(y wire.Bye) error {
	a.link.ending.Lock()
	defer a.link.ending.Unlock()
	if !a.byeSent || a.acks[y.Lane] {
		return fmt.Errorf("an acknowledgement of a goodbye on the %v lane that was not sent", y.Lane)
	}
	a.acks[y.Lane] = true
	if a.acks.all() {
		close(a.acked)
	}
	a.endIdleLocked()
	return nil
}

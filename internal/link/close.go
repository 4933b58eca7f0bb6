package link

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
)

// Close waits until all transfers are delivered, says goodbye, and closes the connection when the peer has read
// everything, or ctx ends. A peer that has said goodbye as well reads the answer to that meanwhile, and would take the end of the connection for a break
// without it; Close waits for deadline.Linger then at most. The Handler is not notified. After Close
// has returned there are no calls of the Handler. If frames wait on a pending link, or it is about to
// get a connection, Close waits for that as well, and if the connection breaks, for the next one. It returns false if ctx has ended before the
// peer has read everything or has ended itself.
func (l *Link) Close(ctx context.Context) (delivered bool) {
	defer l.Abort()
	l.ending.Lock()
	l.closing = true
	l.ending.Unlock()
	isSaid := false
	for l.awaitConnection(ctx) {
		a := l.attached.Load()
		if a == nil {
			continue
		}
		select {
		case <-l.exchange().bulk.drain():
		case <-a.left: // The peer needs no transfer any more.
		case <-a.ended:
			continue
		case <-ctx.Done():
			return false
		}
		if !isSaid {
			isSaid = true
			l.sayBye()
		}
		select {
		case <-a.byeRead:
			return true
		case <-a.ended:
		case <-ctx.Done():
			return isClosed(a.left)
		}
	}
	return l.IsOver() || !l.IsPending() || !l.IsNeeded()
}

// IsOver reports whether the channel of Done is closed.
func (l *Link) IsOver() bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.over.hasHappened()
}

// sayBye sends our goodbye, on both lanes.
func (l *Link) sayBye() {
	x := l.exchange()
	x.leaving.Store(true)
	var y wire.Bye
	x.data.post(y.Append) // The peer has read all transient frames when it has read this one.
	y.Data, _ = x.data.position()
	if a := l.attached.Load(); a != nil && a.first.lasts() {
		y.Bulk = x.bulk.position()
	}
	x.control.post(y.Append)
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

// CloseIdle asks the peer to close the connection of a link that has been idle, so that it becomes pending
// again. It does nothing, and returns false, if frames or transfers wait, if the peer may send a
// payload for a grant, if this node waits for the peer ([Link.Wait]), if the connection lasts as long as the peer, or if the link has no Detached
// function. The peer ignores the request if it needs the connection. Nothing is lost: frames that are sent meanwhile wait for the next
// connection. CloseIdle does not block.
func (l *Link) CloseIdle() bool {
	a := l.attached.Load()
	if a == nil || !a.isIdle() {
		return false
	}
	l.ending.Lock()
	a.asked = true
	l.ending.Unlock()
	x := l.exchange()
	end, _ := x.data.position()
	i := wire.Idle{Control: x.in[wire.Control].State(), Data: x.in[wire.Data].State(), SentData: end}
	x.control.postTransient(i.Append(nil))
	return true
}

// isIdle reports whether nothing that this node knows of needs the connection.
func (a *attachment) isIdle() bool {
	l, x := a.link, a.link.exchange()
	l.ending.Lock()
	may := l.common.detached != nil && !a.first.lasts() && !l.over.hasHappened() && !x.leaving.Load() && !a.shut && l.settled.hasHappened()
	l.ending.Unlock()
	return may && l.waiters.Load() == 0 && x.grants.some.Load() == 0 && x.claims.some.Load() == 0 &&
		x.control.isIdle() && x.data.isIdle() && x.bulk.isIdle()
}

// idlePeer handles the request of the peer to close the connection.
func (a *attachment) idlePeer(i wire.Idle) error {
	l, x := a.link, a.link.exchange()
	if err := l.acknowledged(wire.Ack{Control: i.Control, Data: i.Data}); err != nil {
		return err
	}
	control, kept := x.control.position()
	data, more := x.data.position()
	if kept+more > 0 || control != i.Control || data != i.Data || i.SentData != x.in[wire.Data].Received() || !a.isIdle() {
		return nil
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	a.released = true
	a.cancel()
	return nil
}

// Disconnect closes the connection of a link that stays: the frames and transfers that the peer has not acknowledged, and later ones, wait for
// the next one. If there are any, or goroutines of this node wait, the link needs a connection at once. Disconnect does nothing, and
// returns false, if the link is pending, if its connection lasts as long as the peer, or if it has no Detached function. It does not block.
func (l *Link) Disconnect() bool { return l.disconnect(nil) }

// Break is Disconnect, but the link is dialed again, for the reason err.
func (l *Link) Break(err error) bool { return l.disconnect(err) }

func (l *Link) disconnect(why error) bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	a := l.attached.Load()
	may := a != nil && !a.first.lasts() && l.common.detached != nil && !l.over.hasHappened() && !a.shut
	if may {
		a.released, a.broke = a.released || why == nil, cmp.Or(a.broke, why)
		a.cancel()
	}
	return may
}

// Wait adds n to the number of goroutines of this node that wait for the peer. CloseIdle keeps the
// connection while it is positive.
func (l *Link) Wait(n int) { l.waiters.Add(int32(n)) }

// bye handles the goodbye of the peer.
func (a *attachment) bye(y wire.Bye) error {
	if !a.link.exchange().goodbye.CompareAndSwap(nil, &y) {
		return errors.New("a second goodbye")
	}
	a.noteRead()
	return nil
}

// noteRead answers the goodbye of the peer, if there is one, when this side has read everything. Then the peer closes the connection, and the handler
// is notified.
func (a *attachment) noteRead() {
	l, x := a.link, a.link.exchange()
	y := x.goodbye.Load()
	if y == nil {
		return
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	if isClosed(a.left) || x.in[wire.Data].Received() < y.Data || x.bulked.Load() < y.Bulk {
		return
	}
	close(a.left)
	a.linger = time.AfterFunc(deadline.Linger, a.expire) // The packets of the close may be lost.
	x.control.postTransient([]byte{byte(wire.TypeByeAck)})
}

// noteRead calls that of the current attachment.
func (l *Link) noteRead() {
	if l.exchange().goodbye.Load() != nil {
		if a := l.attached.Load(); a != nil {
			a.noteRead()
		}
	}
}

// expire ends the link after the goodbye of a peer that has not closed the connection.
func (a *attachment) expire() {
	a.link.ending.Lock()
	defer a.link.ending.Unlock()
	a.link.over.happen()
	a.cancel()
}

// byeAck handles the answer to our goodbye.
func (a *attachment) byeAck() error {
	a.link.ending.Lock()
	defer a.link.ending.Unlock()
	if !a.link.exchange().leaving.Load() || isClosed(a.byeRead) {
		return errors.New("an answer to a goodbye that was not sent")
	}
	close(a.byeRead)
	return nil
}

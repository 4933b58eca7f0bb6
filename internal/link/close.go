package link

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// lingerTime bounds the time for a peer to close the connection after its goodbye. It does so
// when it has our acknowledgements, but the packets of the close may be lost.
const lingerTime = time.Second

// lanes is a set of lanes.
type lanes [wire.Lanes]bool

func (s *lanes) all() bool { return *s == lanes{true, true, true} }

// Close says goodbye on every lane and closes the connection when the peer has read
// everything, has byeSent goodbye as well, or ctx ends. The Handler is not notified. After Close
// has returned there are no calls of the Handler. If frames wait on a pending link, or it is about to
// get a connection, Close waits for that as well.
func (l *Link) Close(ctx context.Context) {
	if !l.awaitConnection(ctx) {
		l.Abort()
		return
	}
	l.ending.Lock()
	l.closing, l.byeSent = true, true
	l.ending.Unlock()
	l.fast.Store(false)
	y := wire.Bye{Lane: wire.Data}
	l.data.commit(y.Append(l.data.begin(), wire.TypeBye))
	l.bulk.sayBye()
	y.Lane = wire.Control
	l.control.commit(y.Append(l.control.begin(), wire.TypeBye))
	select {
	case <-l.acked:
	case <-l.left:
	case <-l.done:
	case <-ctx.Done():
	}
	l.Abort()
}

// Abort closes the connection immediately. Undelivered data is lost. After Abort has returned
// there are no calls of the Handler.
func (l *Link) Abort() {
	l.ending.Lock()
	l.closing = true
	l.stopPendingLocked()
	l.ending.Unlock()
	l.cancel()
	<-l.ended
}

// bye handles the goodbye of the peer on a pipe. It acknowledges the goodbye of a lane after
// the last of its pipes. After the last lane the peer closes the connection, and then the
// handler is notified.
func (l *Link) bye(lane wire.Lane, y wire.Bye) error {
	if y.Lane != lane {
		return fmt.Errorf("goodbye for the %v lane on the %v lane", y.Lane, lane)
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.byes[lane] {
		return fmt.Errorf("a second goodbye on the %v lane", lane)
	}
	if lane == wire.Bulk {
		if l.pipes++; l.pipes < l.named.bulkPipes() {
			return nil
		}
	}
	l.byes[lane] = true
	l.control.commit(y.Append(l.control.begin(), wire.TypeByeAck))
	if l.byes.all() {
		l.linger = time.AfterFunc(lingerTime, l.cancel)
		close(l.left)
	}
	return nil
}

// byeAck handles the acknowledgement of our goodbye on a lane.
func (l *Link) byeAck(y wire.Bye) error {
	l.ending.Lock()
	defer l.ending.Unlock()
	if !l.byeSent || l.acks[y.Lane] {
		return fmt.Errorf("an acknowledgement of a goodbye on the %v lane that was not sent", y.Lane)
	}
	l.acks[y.Lane] = true
	if l.acks.all() {
		close(l.acked)
	}
	return nil
}

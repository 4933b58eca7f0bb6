package link

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// lingerTime is how long a peer that has said goodbye is given to close the
// connection. It does so when it has our acknowledgements; but the word of it
// may get lost on the way.
const lingerTime = time.Second

// lanes is a set of them.
type lanes [wire.Lanes]bool

func (s *lanes) all() bool { return *s == lanes{true, true, true} }

// Close says goodbye on every lane, waits until the peer has read everything
// before it, has said goodbye as well, or ctx ends, and closes the connection.
// The Handler is told nothing of that; when Close returns no call of it is
// under way, and none will come.
func (l *Link) Close(ctx context.Context) {
	l.ending.Lock()
	l.closing, l.said = true, true
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

// Abort closes the connection at once, as Close does in the end. What has not
// been delivered is lost.
func (l *Link) Abort() {
	l.ending.Lock()
	l.closing = true
	l.ending.Unlock()
	l.cancel()
	<-l.ended
}

// bye handles the peer's goodbye on a pipe. It acknowledges that of a lane when
// all of its pipes have come to theirs. After the last one the peer will close
// the connection, which is when the handler is told.
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

// byeAck notes on which lanes the peer has read our goodbye.
func (l *Link) byeAck(y wire.Bye) error {
	l.ending.Lock()
	defer l.ending.Unlock()
	if !l.said || l.acks[y.Lane] {
		return fmt.Errorf("it has read a goodbye on the %v lane that was not said", y.Lane)
	}
	l.acks[y.Lane] = true
	if l.acks.all() {
		close(l.acked)
	}
	return nil
}

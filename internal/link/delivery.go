package link

import (
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Delivery is what the connection before the current one has delivered of the frames and payloads that waited for it.
type Delivery struct {
	Stuck int       // bytes that waited on Lane, of which none has arrived; 0 if some have on each lane, or nothing waited
	Lane  wire.Lane // if Stuck > 0
	InRow int       // connections in a row with Stuck > 0, this one included
	Since time.Time // when the next one after the first of them began
}

// A waiting is what waits on the lanes when a connection begins, and how far the peer has received.
type waiting struct {
	bytes    [wire.Lanes]int
	received [wire.Lanes]uint64
}

// noteDelivery compares what the peer has received with the beginning of the connection before this one. [Link.ending] is held, and the lanes have
// resumed.
func (x *exchange) noteDelivery(r *wire.Resume) {
	now := waiting{received: [...]uint64{r.Received[wire.Control], r.Received[wire.Data], r.Bulk}}
	_, now.bytes[wire.Control] = x.control.position()
	_, now.bytes[wire.Data] = x.data.position()
	waited := x.began.bytes
	waited[wire.Bulk], now.bytes[wire.Bulk] = x.bulk.missing()
	var d Delivery
	for lane, n := range waited {
		if n > 0 && now.received[lane] == x.began.received[lane] {
			d.Stuck, d.Lane = n, wire.Lane(lane)
		}
	}
	if d.Stuck > 0 {
		if d.InRow, d.Since = x.delivery.InRow+1, x.delivery.Since; d.InRow == 1 {
			d.Since = time.Now()
		}
	}
	x.began, x.delivery = now, d
}

// missing returns the number of bytes of granted payloads that the peer has not received: of those that the connection before the current one
// was to deliver and that were not withdrawn, and of all.
func (b *bulk) missing() (waited, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, open := range b.transfers.All() {
		t := open.Of.(*Transfer)
		if all += t.rest(); t.waited {
			waited += t.rest()
		}
		t.waited = true
	}
	return waited, all
}

// LastDelivery returns the Delivery of the connection before the current one.
func (l *Link) LastDelivery() Delivery {
	x := l.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	return x.delivery
}

// ForgetDeliveries makes the connections before the current one not count in Delivery.InRow: they say nothing about others.
func (l *Link) ForgetDeliveries() {
	x := l.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	x.delivery = Delivery{}
}

package link

import "github.com/nexar-go/nexar/internal/wire"

// Traffic counts the bytes on the data and bulk lanes of a link. The control lane is excluded:
// heartbeats and queries continue while the application is idle.
type Traffic struct {
	// Sent counts the bytes given to the transport, and those that wait for room in a pipe or for the pipe
	// itself: while the bulk lane opens, transfers are in flight.
	Sent uint64
	// Received counts the bytes read. While it is less than Sent of the peer, the difference is
	// in flight.
	Received uint64
}

// Traffic returns the byte counts of the link in both directions. The two are not of the same
// instant.
func (l *Link) Traffic() Traffic {
	x := l.with.Load()
	if x == nil {
		l.making.Lock()
		defer l.making.Unlock()
		return Traffic{Sent: uint64(len(l.quiet))}
	}
	t := Traffic{Received: x.received.Load()}
	o := &x.data
	o.mu.Lock()
	t.Sent = o.sent + uint64(len(o.pending))
	o.mu.Unlock()
	b := &x.bulk
	b.mu.Lock()
	t.Sent += b.sent
	if b.opening {
		t.Sent += uint64(wire.PreambleSize * b.at.of.bulkPipes(b.at))
	}
	for _, w := range b.writers {
		t.Sent += w.sent + uint64(len(w.head)+len(w.body))
	}
	b.mu.Unlock()
	return t
}

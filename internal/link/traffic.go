package link

import "github.com/nexar-go/nexar/internal/wire"

// Traffic counts the bytes on the data and bulk lanes of a link, over all its connections. The control lane is excluded:
// heartbeats and queries continue while the application is idle.
type Traffic struct {
	// Sent counts the bytes given to the transport, and those that wait for room in a pipe. While the bulk lane opens, a byte
	// stands for the transfers that wait for it.
	Sent uint64
	// Received counts the bytes read. While it is less than Sent of the peer, the difference is
	// in flight.
	Received uint64

	moved uint64 // bytes that pipes have taken
	waits bool   // others wait for a pipe
}

// Traffic returns the byte counts of the link in both directions. The two are not of the same
// instant.
func (l *Link) Traffic() Traffic {
	x := l.exchanged.Load()
	if x == nil {
		l.making.Lock()
		defer l.making.Unlock()
		return Traffic{Sent: uint64(len(l.quiet))}
	}
	t := Traffic{Received: x.in[wire.Data].Received() + x.bulked.Load()}
	o := &x.data
	o.mu.Lock()
	t.Sent, t.moved, t.waits = o.out.Position(), o.out.Written(), o.to != nil && (o.to.writing || o.out.HasNext())
	o.mu.Unlock()
	b := &x.bulk
	b.mu.Lock()
	t.Sent, t.moved = t.Sent+b.sent, t.moved+b.sent
	if b.opening {
		t.Sent++
	}
	for _, w := range b.writers {
		t.Sent += uint64(len(w.body))
		t.waits = t.waits || w.load > 0
	}
	b.mu.Unlock()
	return t
}

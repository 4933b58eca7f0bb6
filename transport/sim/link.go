package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// A link connects one host to another, in one direction.
type link struct {
	Link
	network  *Network
	from, to *Host
	busy     time.Time      // end of the transmission of earlier bytes
	blocked  []*orderedFlow // blocked until the link is up
	cuts     []*Cut         // to come, with the bytes that are left
}

// link returns the link from a to b.
func (n *Network) link(a, b *Host) *link {
	ends := [2]*Host{a, b}
	l := n.byEnds[ends]
	if l == nil {
		l = &link{network: n, from: a, to: b}
		if c := n.config; a != b {
			l.Link = Link{Delay: c.Delay, Jitter: c.Jitter, Rate: c.Rate, Loss: c.Loss, Reorder: c.Reorder, Corrupt: c.Corrupt, Queue: c.Queue}
		}
		n.byEnds[ends] = l
		n.links = append(n.links, l)
	}
	return l
}

// up reports whether traffic passes.
func (l *link) up() bool {
	return !l.Down && l.Loss < 1 && !l.from.off && !l.to.off && l.from.group == l.to.group
}

// deliver returns the bytes of a conn that arrive: those before the next cut. The reader has a moment to read them.
func (l *link) deliver(c *conn, data []byte) []byte {
	if len(l.cuts) == 0 {
		return data
	}
	cut := l.cuts[0]
	if cut.After -= len(data); cut.After >= 0 {
		return data
	}
	l.cuts = l.cuts[1:]
	n := l.network
	conns := []*conn{c} // Its writer may have closed it already.
	if cut.All {
		others := slices.DeleteFunc(n.conns(l.from.name, l.to.name), func(other *conn) bool { return other == c })
		conns = append(conns, others...)
	}
	for _, c := range conns {
		c.cut, c.peer.cut = true, true
		soon := time.Now().Add(time.Nanosecond)
		n.clock.at(soon, func() { n.note(c) })
		c.endAfter(soon, cut.From)
		c.peer.endAfter(soon, cut.To)
	}
	return data[:len(data)+cut.After]
}

// transmit queues size bytes for transmission, and returns when the last of them leaves.
func (l *link) transmit(size int) time.Time {
	start := time.Now()
	if l.Rate <= 0 {
		return start
	}
	if l.busy.After(start) {
		start = l.busy
	}
	l.busy = start.Add(time.Duration(float64(size) / float64(l.Rate) * float64(time.Second)))
	return l.busy
}

// full reports whether the queue has no room for size more bytes.
func (l *link) full(size int) bool {
	if l.Rate <= 0 {
		return false
	}
	limit := l.Queue
	if limit <= 0 {
		limit = defaultQueueBytes
	}
	queued := max(0, time.Until(l.busy)).Seconds() * float64(l.Rate)
	return queued+float64(size) > float64(limit)
}

// resume resumes the flows that are blocked by a link that is up again.
func (n *Network) resume() {
	for _, l := range n.links {
		if l.up() {
			blocked := l.blocked
			l.blocked = nil
			for _, f := range blocked {
				f.resume()
			}
		}
	}
}

// rng returns the random stream of a name.
func (n *Network) rng(format string, args ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, format, args...)
	return rand.New(rand.NewPCG(uint64(n.config.Seed), h.Sum64()))
}

// upTo returns a share of d.
func upTo(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * share)
}

// An orderedFlow carries pieces over a link in order and without loss: those of a pipe,
// or the notices of a conn.
type orderedFlow struct {
	link    *link
	rng     *rand.Rand
	pieces  []piece // in flight, in order
	next    *event  // the delivery of the first piece
	blocked bool    // it is in link.blocked
}

// A piece is a notice or some bytes of a pipe, in flight.
type piece struct {
	size    int
	due     time.Time // zero while the link is down
	deliver func()
}

// send sends a piece of size bytes. deliver is called when it is due.
func (f *orderedFlow) send(size int, deliver func()) {
	p := piece{size: size, deliver: deliver}
	if f.link.up() {
		p.due = f.due(size)
	} else {
		f.block()
	}
	f.pieces = append(f.pieces, p)
	f.schedule()
}

// due returns the time of delivery of a piece that is sent now. Each loss or
// corruption delays it by a retransmission.
func (f *orderedFlow) due(size int) time.Time {
	k := f.link
	t := k.transmit(size).Add(k.Delay + upTo(k.Jitter, f.rng.Float64()))
	for f.rng.Float64() < k.Loss+(1-k.Loss)*k.Corrupt {
		t = t.Add(2*(k.Delay+k.Jitter) + time.Millisecond)
	}
	return t
}

// schedule schedules the delivery of the first piece.
func (f *orderedFlow) schedule() {
	if f.next == nil && len(f.pieces) > 0 && !f.pieces[0].due.IsZero() {
		f.next = f.link.network.clock.at(f.pieces[0].due, f.arrive)
	}
}

// arrive delivers the first piece, unless the link has gone down.
func (f *orderedFlow) arrive() {
	f.next = nil
	if !f.link.up() {
		f.pieces[0].due = time.Time{}
		f.block()
		return
	}
	p := f.pieces[0]
	f.pieces[0] = piece{}
	f.pieces = f.pieces[1:]
	// deliver may call drop, so the next piece is scheduled before it.
	f.schedule()
	p.deliver()
}

// block makes the link resume the flow when it is up.
func (f *orderedFlow) block() {
	if !f.blocked {
		f.blocked = true
		f.link.blocked = append(f.link.blocked, f)
	}
}

// resume sends the pieces again that the link has not carried.
func (f *orderedFlow) resume() {
	f.blocked = false
	for i, p := range f.pieces {
		if p.due.IsZero() {
			f.pieces[i].due = f.due(p.size)
		}
	}
	f.schedule()
}

// drop discards the pieces in flight.
func (f *orderedFlow) drop() {
	f.link.network.clock.cancel(f.next)
	f.next, f.pieces = nil, nil
	if f.blocked {
		f.blocked = false
		f.link.blocked = slices.DeleteFunc(f.link.blocked, func(g *orderedFlow) bool { return g == f })
	}
}

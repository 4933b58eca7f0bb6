package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// A link is the way from one host to another.
type link struct {
	Link
	network  *Network
	from, to *Host
	busy     time.Time // until when earlier bytes occupy it
	waiting  []*lane   // those that wait for the link to come up
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

// up says whether anything gets through.
func (l *link) up() bool {
	return !l.Down && l.Loss < 1 && !l.from.off && !l.to.off && l.from.group == l.to.group
}

// transmit occupies the link with so many bytes and returns when the last of
// them has left.
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

// full says whether so many bytes more are too many to wait for the link.
func (l *link) full(size int) bool {
	if l.Rate <= 0 {
		return false
	}
	limit := l.Queue
	if limit <= 0 {
		limit = defaultQueueBytes
	}
	waiting := max(0, time.Until(l.busy)).Seconds() * float64(l.Rate)
	return waiting+float64(size) > float64(limit)
}

// resume lets everything go on that waits for a link which is up by now.
func (n *Network) resume() {
	for _, l := range n.links {
		if l.up() {
			waiting := l.waiting
			l.waiting = nil
			for _, lane := range waiting {
				lane.resume()
			}
		}
	}
}

// chance returns the stream of random numbers that belongs to a name.
func (n *Network) chance(format string, args ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, format, args...)
	return rand.New(rand.NewPCG(uint64(n.config.Seed), h.Sum64()))
}

// upTo returns a duration of at least 0 and less than d.
func upTo(d time.Duration, chance float64) time.Duration {
	return time.Duration(float64(d) * chance)
}

// A lane carries pieces over a link one after the other, and loses none: a
// pipe, or the notices of a conn.
type lane struct {
	link   *link
	chance *rand.Rand
	pieces []piece // under way, in order
	next   *event  // the arrival of the first piece
	stuck  bool    // it is in link.waiting
}

// A piece is something on its way.
type piece struct {
	size    int
	arrival time.Time // zero if it waits for the link to come up
	deliver func()
}

// send puts a piece of so many bytes on its way.
func (l *lane) send(size int, deliver func()) {
	p := piece{size: size, deliver: deliver}
	if l.link.up() {
		p.arrival = l.arrival(size)
	} else {
		l.wait()
	}
	l.pieces = append(l.pieces, p)
	l.schedule()
}

// arrival returns when a piece arrives that is sent now. Each loss, and each
// corruption, delays it until the sender repairs it.
func (l *lane) arrival(size int) time.Time {
	k := l.link
	t := k.transmit(size).Add(k.Delay + upTo(k.Jitter, l.chance.Float64()))
	for l.chance.Float64() < k.Loss+(1-k.Loss)*k.Corrupt {
		t = t.Add(2*(k.Delay+k.Jitter) + time.Millisecond)
	}
	return t
}

// schedule makes the first piece arrive at its time.
func (l *lane) schedule() {
	if l.next == nil && len(l.pieces) > 0 && !l.pieces[0].arrival.IsZero() {
		l.next = l.link.network.clock.at(l.pieces[0].arrival, l.arrive)
	}
}

// arrive delivers the first piece, unless the link was cut meanwhile.
func (l *lane) arrive() {
	l.next = nil
	if !l.link.up() {
		l.pieces[0].arrival = time.Time{}
		l.wait()
		return
	}
	p := l.pieces[0]
	l.pieces[0] = piece{}
	l.pieces = l.pieces[1:]
	// The piece may drop the lane, so the next one is scheduled first.
	l.schedule()
	p.deliver()
}

// wait has the lane resumed when the link comes up.
func (l *lane) wait() {
	if !l.stuck {
		l.stuck = true
		l.link.waiting = append(l.link.waiting, l)
	}
}

// resume sends again what was cut off.
func (l *lane) resume() {
	l.stuck = false
	for i, p := range l.pieces {
		if p.arrival.IsZero() {
			l.pieces[i].arrival = l.arrival(p.size)
		}
	}
	l.schedule()
}

// drop forgets what is under way.
func (l *lane) drop() {
	l.link.network.clock.cancel(l.next)
	l.next, l.pieces = nil, nil
	if l.stuck {
		l.stuck = false
		l.link.waiting = slices.DeleteFunc(l.link.waiting, func(w *lane) bool { return w == l })
	}
}

package link

import (
	"fmt"
	"time"
)

// keptIdle is the number of unacknowledged bytes for which an idle lane asks for an acknowledgement.
const keptIdle = 4 << 10

// tended is what Link.Tend has found last. One goroutine uses it.
type tended struct {
	isOver   bool          // more than askBytes were not acknowledged
	acked    uint64        // bytes that the peer has acknowledged on both lanes
	withheld time.Duration // for so long it has acknowledged nothing more
}

// Tend frees the buffers of lanes that are idle since the last call, which was so long ago, and asks for acknowledgements that are missing. If the
// peer has not acknowledged more than askBytes on a lane beyond its credit, and nothing for limit, the link ends. One goroutine
// calls it.
func (l *Link) Tend(ago, limit time.Duration) {
	x := l.exchanged.Load()
	if x == nil {
		return
	}
	asks, most, acked := false, 0, uint64(0)
	for _, o := range []*outbox{&x.control, &x.data} {
		isDue, uncredited, position := o.tend()
		asks, most, acked = asks || isDue, max(most, uncredited), acked+position
	}
	t, isOver := &x.tended, asks && most > askBytes
	if t.withheld += ago; !isOver || !t.isOver || acked != t.acked {
		*t = tended{isOver: isOver, acked: acked}
	}
	switch {
	case t.withheld >= limit:
		l.Fail(fmt.Errorf("link: the peer has acknowledged nothing for %v, and %d bytes wait for it", t.withheld, most))
	case asks:
		l.Ping()
	}
}

// tend frees the buffers of an idle outbox. It returns the position that the peer has acknowledged, the bytes behind it beyond the credit, and
// whether the link shall ask for an acknowledgement.
func (o *outbox) tend() (asks bool, uncredited int, acked uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	isIdle := o.tended == o.out.Position()
	if o.tended = o.out.Position(); isIdle {
		o.out.Trim()
	}
	uncredited = o.uncreditedLocked()
	asks = uncredited > askBytes || isIdle && o.out.Kept() > keptIdle
	return asks && o.to != nil && !o.to.at.lasts(), uncredited, o.out.Acked()
}

// Unacknowledged returns the number of bytes of short frames that the link keeps, since the peer has not acknowledged them.
func (l *Link) Unacknowledged() (bytes int) {
	if x := l.exchanged.Load(); x != nil {
		_, control := x.control.position()
		_, data := x.data.position()
		bytes = control + data
	}
	return bytes
}

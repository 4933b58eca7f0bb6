package engine

import (
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// comingMax is how long a receive whose context has ended waits for a short message
// that is for it. All of that has been sent, is being copied, or comes as soon as its
// sender has the grant.
const comingMax = 500 * time.Millisecond

// Claim has a message that is about to come in go straight to the receive that
// waits for it, if there is one.
func (e *Engine) Claim(l *link.Link, m wire.Message) (claim uint64, ok bool) {
	c := e.known(m.Comm)
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rank, member := c.rankOf[l.Peer]
	if c.err != nil || !member {
		return 0, false
	}
	r, ok := c.messages.Take(rank, m.Tag)
	if !ok {
		return 0, false
	}
	a := arrival{link: l, source: rank, tag: m.Tag, typ: m.Type, size: uint64(m.Length)}
	if err := r.check(&a); err != nil {
		r.end(err)
		return 0, true
	}
	c.claimed = append(c.claimed, r)
	return l.Claim(r.expect(&a)), true
}

// came waits a while for a short message.
func (r *Receive) came() bool {
	select {
	case <-r.ended:
		return true
	case <-time.After(comingMax):
		return false
	}
}

package mesh

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

const (
	// unansweredMax is the longest time that a proposal of this node without an answer delays one of the peer.
	unansweredMax = 2 * time.Second
	// delayShare is the share of answerTimeout that an earlier proposal may delay one of a peer that dials again, so that both fit into this time.
	delayShare = 4
	// failedMax bounds the failures that are remembered: a peer may dial from any number of addresses.
	failedMax = 8
	// fruitlessMax is the number of connections in a row that deliver nothing after which a link uses another address, and no second connection for
	// bulk: the network may drop long packets alone, and pass handshakes and heartbeats.
	fruitlessMax = 2
	// declinedMax bounds the proposals of the peer that a node declines for another path. The peer waits redialFirst before its second dial
	// and twice that before the third, so this node has some tenths of a second for its own.
	declinedMax = 3
)

// A negotiation decides which connection becomes that of the link to a peer. Both nodes may propose connections.
type negotiation struct {
	accepting int          // accepted connections that may become that of the link
	proposal  *route       // the current one, which the link may use; nil if there is none
	waiting   []*candidate // in the order in which they become the current one

	failed    []pathFailure // of connections between hosts that broke, the latest one of each path and host; does not change in place
	fruitless int           // connections in a row that have delivered nothing, when the link got its last one
	declined  int           // proposals of the peer since the link broke
}

// A candidate is a proposal that waits until it is the current one.
type candidate struct {
	*route
	link   *link.Link
	turn   chan error  // gets nil when it is the current one, or the reason why it will never be
	behind *route      // the current one
	late   *time.Timer // makes that give up; nil if it may delay this one until its end
}

// waitFor makes the current proposal give up after limit, unless that is 0. It does nothing if it was called for this proposal before.
func (c *candidate) waitFor(current *route, limit time.Duration) {
	if c.behind == current {
		return
	}
	c.stop()
	if c.behind = current; limit > 0 {
		c.late = time.AfterFunc(limit, func() { current.giveUp(errReplaced) }) // Its connection may be in use from now on.
	}
}

// stop ends the wait for the current proposal.
func (c *candidate) stop() {
	if c.late != nil {
		c.late.Stop()
		c.late = nil
	}
}

// remove removes the candidate of a route, if there is one.
func (n *negotiation) remove(r *route) {
	n.waiting = slices.DeleteFunc(n.waiting, func(c *candidate) bool {
		if c.route == r {
			c.stop()
		}
		return c.route == r
	})
}

// winsOver reports whether a proposal replaces an earlier one: a peer with a larger NodeID has made it, and this node the other one.
func (r *route) winsOver(before *route, self, peer membership.NodeID) bool {
	return before.isOwn() && r.peer == peer && bytes.Compare(self[:], peer[:]) < 0
}

// repeats reports whether a proposal of the peer ends an earlier one over the same path: the peer makes one at a time.
func (r *route) repeats(before *route) bool {
	return !r.isOwn() && before != nil && before.peer == r.peer && before.path == r.path
}

// delayBy returns the longest time that an earlier proposal delays a route, or 0 if it delays the route until its end: the connection of the earlier
// one may have ended on the other side alone. Proposals over relays have a limit, since relays may have died. So do those of this node: if the peer
// dials, it may have lost the connection of the proposal. isBroken says that the last connection of the link has broken.
func (r *route) delayBy(before *route, isBroken bool, answerTimeout time.Duration) time.Duration {
	isUnanswered := before.isOwn() && !r.isOwn()
	switch {
	case before.isRelayed() && !r.isRelayed(): // The peer may dial again, although the link of this node has not broken.
		return answerTimeout / delayShare
	case !isUnanswered || r.isRelayed() && !before.isRelayed():
		return 0
	case isBroken:
		return answerTimeout / delayShare
	}
	return unansweredMax
}

// noteFailure notes that the connection of a route, which may be nil, has broken.
func (n *negotiation) noteFailure(r *route, err error) {
	if r != nil && r.path != nil && !r.path.isLocal() && !r.path.Relay && !errors.Is(err, transport.ErrPeerClosed) {
		f := pathFailure{r.path, r.conn.RemoteAddr(), err}
		if r.bulk != nil && link.IsOfBulk(err) {
			f.path = r.bulk
		}
		n.failed = append(slices.DeleteFunc(slices.Clone(n.failed), func(g pathFailure) bool { return g.path == f.path && g.host() == f.host() }), f)
		n.failed = n.failed[max(0, len(n.failed)-failedMax):]
	}
}

// failures returns how recently a path has failed, at one of the addresses: the larger the later. It is 0 if it has not.
func (n *negotiation) failures(path *Path, addrs ...string) int {
	for i, f := range slices.Backward(n.failed) {
		if f.path == path && slices.ContainsFunc(addrs, func(a string) bool { return hostOf(a) == f.host() }) {
			return i + 1
		}
	}
	return 0
}

// isFruitless reports whether the last fruitlessMax connections have delivered nothing.
func (n *negotiation) isFruitless() bool { return n.fruitless >= fruitlessMax }

// declines reports whether this node declines a proposal of the peer: the last connections have delivered nothing, and the proposal is for the path
// that failed last, or may use it for bulk. After declinedMax proposals it accepts one, since the peer may reach this node over that path alone.
func (n *negotiation) declines(r *route, bulk *Path) bool {
	last := max(n.failures(r.path, r.conn.RemoteAddr()), n.failures(bulk, r.conn.RemoteAddr()))
	if all := len(n.failed); all == 0 || !n.isFruitless() || last < all || n.declined == declinedMax {
		return false
	}
	n.declined++
	return true
}

// noteDelivery notes what the connection before that of a route has delivered. isOver says that the route must not have a second connection for bulk any more.
// The error ends the link: for limit, no connection has delivered anything.
func (n *negotiation) noteDelivery(r *route, l *link.Link, limit time.Duration) (isOver bool, err error) {
	if r.isRelayed() {
		l.ForgetDeliveries()
	}
	d, before := l.LastDelivery(), n.fruitless
	n.fruitless = d.InRow
	still, over := time.Since(d.Since), r.path
	if !n.isFruitless() || limit <= 0 || still < limit {
		return n.isFruitless() && before < fruitlessMax && r.bulk != nil, nil
	}
	if d.Lane != wire.Control && r.bulk != nil {
		over = r.bulk
	}
	return false, fmt.Errorf("%w: %d connections in a row, the last one over %s to %s, have delivered none of %d bytes for %v, although the node accepts connections; "+
		"the network may drop long packets: compare the MTU of both hosts with that of the network between them",
		transport.ErrPeerGone, n.fruitless, over.name(), r.conn.RemoteAddr(), d.Stuck, still.Round(time.Millisecond))
}

// explain makes the last failure of another path the reason for a route.
func (n *negotiation) explain(r *route) {
	for _, f := range slices.Backward(n.failed) {
		if f.path != r.path && f.path != r.bulk {
			r.why = f.why()
			return
		}
	}
}

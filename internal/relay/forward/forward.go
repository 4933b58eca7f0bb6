// Package forward passes relay frames from neighbor to neighbor until they reach their
// destination. A [Node] is the state of one relay.
//
// The package is pure: the methods of a Node are events, with the time as a parameter, and return
// effects, which the caller carries out. The caller gets the frames to be written to a neighbor
// from [Node.Next], one at a time, when it can write.
//
// # Buffers
//
// A Node has a buffer of Config.Buffer bytes for each neighbor and each number of hops from 1 to
// Config.HopLimit, its classes. A frame that has crossed h links occupies the buffer of class h of the
// neighbor that has sent it, until it has been written to the next neighbor. A node sends a frame
// only with credit for its buffer at the neighbor, and the neighbor returns the credit when the frame
// leaves the buffer. A frame of class h therefore waits for a buffer of class h+1 only. Frames of the
// last class are at their destination, which consumes them at once, so no cycle of nodes can wait for
// each other. At most links × classes × Config.Buffer bytes of others' frames are in memory.
//
// # Order and loss
//
// Frames with the same source, destination and attempt stay in order as long as the routes do not
// change. Frames are lost if a neighbor goes, if no route is left, after HopLimit hops, and if a
// neighbor returns no credit for Config.Stall. The ends send them again (package session).
//
// # Fairness
//
// Frames wait in one queue for each neighbor, class and source; the node's own frames are one more
// source. The queues with credit take turns by deficit round robin.
package forward

import (
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// Defaults of a Config.
const (
	DefaultBuffer = 256 << 10
	DefaultStall  = 5 * time.Second
)

// Routes are the next hops from one node. The topology implements them.
type Routes interface {
	// NextHops appends neighbors of this node to hops: the next hop on a shortest path to the
	// destination, then the alternatives, nearest to the destination first. It appends none if
	// the destination cannot be reached. made is the number of hops that the frame has made: after more
	// of them than a path can have, the nodes do not agree about the paths, and other routes may help.
	NextHops(destination membership.NodeID, made int, hops []membership.NodeID) []membership.NodeID
}

// Config configures a [Node].
type Config struct {
	Self   membership.NodeID
	Routes Routes
	// HopLimit is the maximum number of hops, and the number of classes: at least the diameter of
	// the topology, more for detours, and at most HopLimitMax. All nodes have the same.
	HopLimit int
	// Buffer is the number of bytes for each neighbor and class: DefaultBuffer by default, and at
	// least twice the longest frame.
	Buffer int
	// Stall is the time after which frames are taken from a neighbor that returns no credit:
	// DefaultStall by default.
	Stall time.Duration
}

// A Reason says why a frame was dropped.
type Reason uint8

// The reasons.
const (
	NoRoute  Reason = iota + 1 // no neighbor leads to the destination
	HopLimit                   // the frame has made the maximum number of hops
	Stalled                    // the neighbor has returned no credit, and there is no other one
)

func (r Reason) String() string {
	switch r {
	case NoRoute:
		return "no route"
	case HopLimit:
		return "hop limit"
	case Stalled:
		return "next hop stalled"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// A Drop is a frame that was lost at this node.
type Drop struct {
	Frame  Frame             // without its payload
	From   membership.NodeID // the neighbor that has sent it, zero for an own frame
	Reason Reason
}

// Effects are the result of an event. They are valid until the next event of the [Node].
type Effects struct {
	// Delivered reports that the frame of [Node.Receive] has reached its destination.
	Delivered bool
	// Wake are the neighbors with output from Next. A neighbor may be listed twice.
	Wake []membership.NodeID
	// Drops are the frames that were lost.
	Drops []Drop
}

// Stats count the frames of a [Node].
type Stats struct {
	Sent, Forwarded, Delivered, Dropped uint64
	Rerouted                            uint64 // moved to another neighbor after the first one went or stalled
}

// A Node forwards frames. Its methods must not be called concurrently.
type Node struct {
	cfg       Config
	classes   int // HopLimit; tests set it to 1 to show that it must not be less
	neighbors map[membership.NodeID]*neighbor
	waiting   int // frames in queues
	answers   int // those of them that are answers of this node
	stats     Stats
	effects   Effects
	hops      []membership.NodeID
}

// New returns a node without neighbors.
func New(cfg Config) (*Node, error) {
	if cfg.Buffer == 0 {
		cfg.Buffer = DefaultBuffer
	}
	if cfg.Stall == 0 {
		cfg.Stall = DefaultStall
	}
	if cfg.HopLimit < 1 || cfg.HopLimit > HopLimitMax {
		return nil, fmt.Errorf("relay: hop limit %d: must be 1 to %d", cfg.HopLimit, HopLimitMax)
	}
	if cfg.Buffer < 2*chargeMax {
		return nil, fmt.Errorf("relay: buffer of %d bytes: must be at least %d, two frames", cfg.Buffer, 2*chargeMax)
	}
	return &Node{cfg: cfg, classes: cfg.HopLimit, neighbors: make(map[membership.NodeID]*neighbor)}, nil
}

// begin starts the effects of an event.
func (n *Node) begin() {
	n.effects = Effects{Wake: n.effects.Wake[:0], Drops: n.effects.Drops[:0]}
}

// class returns the buffer class of a frame after a number of hops.
func (n *Node) class(hops uint8) int { return min(int(hops), n.classes) }

// NeighborUp adds a neighbor, or replaces its link. Both ends then give each other credit.
func (n *Node) NeighborUp(now time.Time, id membership.NodeID) *Effects {
	n.begin()
	v := n.neighbors[id]
	if v == nil {
		v = newNeighbor(id, n.classes)
		n.neighbors[id] = v
	} else if v.up {
		n.down(now, v)
	}
	v.reset(now, n.cfg.Buffer)
	n.wake(v)
	return &n.effects
}

// NeighborDown removes a neighbor. The frames that wait for it go to other neighbors.
func (n *Node) NeighborDown(now time.Time, id membership.NodeID) *Effects {
	n.begin()
	if v := n.neighbors[id]; v != nil && v.up {
		n.down(now, v)
		n.forget(v)
	}
	return &n.effects
}

func (n *Node) down(now time.Time, v *neighbor) {
	v.up = false
	n.finish(v)
	n.drain(now, v, 0, NoRoute)
}

// forget deletes a neighbor without a link when nothing of it is held.
func (n *Node) forget(v *neighbor) {
	if !v.up && v.heldAll == 0 && n.neighbors[v.id] == v {
		delete(n.neighbors, v.id)
	}
}

// Send sends a frame of this node. The caller bounds the frames that wait, except for answers: further ones are dropped while
// answersMax wait. The caller does not change the payload.
func (n *Node) Send(now time.Time, f Frame) *Effects {
	n.begin()
	n.stats.Sent++
	f.Hops = 0
	n.route(now, &queued{frame: f}, nil, NoRoute)
	return &n.effects
}

// Receive handles a frame of a neighbor. Unless it is delivered, the node keeps the payload. An
// error means that the neighbor violates the protocol; its link must be closed.
func (n *Node) Receive(now time.Time, from membership.NodeID, f Frame) (*Effects, error) {
	n.begin()
	v := n.neighbors[from]
	if v == nil || !v.up {
		return nil, fmt.Errorf("relay: frame from %v, which is no neighbor", from)
	}
	if f.Hops < 1 || int(f.Hops) > n.cfg.HopLimit {
		return nil, fmt.Errorf("relay: frame from %v after %d hops: must be 1 to %d", from, f.Hops, n.cfg.HopLimit)
	}
	class, charge := n.class(f.Hops), f.Charge()
	if v.granted[class] < charge {
		return nil, fmt.Errorf("relay: frame from %v of %d bytes in class %d: its credit is %d", from, charge, class, v.granted[class])
	}
	v.granted[class] -= charge
	v.held[class] += charge
	v.heldAll += charge
	q := &queued{frame: f, from: v, class: class}
	if f.Destination == n.cfg.Self {
		n.stats.Delivered++
		n.effects.Delivered = true
		n.release(q)
		return &n.effects, nil
	}
	n.route(now, q, v, NoRoute)
	return &n.effects, nil
}

// Credit handles credit from a neighbor. An error is as for Receive.
func (n *Node) Credit(now time.Time, from membership.NodeID, c Credit) (*Effects, error) {
	n.begin()
	v := n.neighbors[from]
	if v == nil || !v.up {
		return nil, fmt.Errorf("relay: credit from %v, which is no neighbor", from)
	}
	if c.Class < 1 || int(c.Class) > n.classes || int(c.Bytes) > n.cfg.Buffer-v.credit[c.Class] {
		return nil, fmt.Errorf("relay: credit from %v of %d bytes for class %d: must be for class 1 to %d and at most %d bytes in all",
			from, c.Bytes, c.Class, n.classes, n.cfg.Buffer)
	}
	v.credit[c.Class] += int(c.Bytes)
	v.progress[c.Class], v.stalled = now, false
	v.unpark(int(c.Class))
	n.wake(v)
	return &n.effects, nil
}

// wake lists a neighbor in the effects if Next has something for it.
func (n *Node) wake(v *neighbor) {
	if v.up && (len(v.owing) > 0 || len(v.active) > 0) {
		n.effects.Wake = append(n.effects.Wake, v.id)
	}
}

// route queues a frame for a neighbor, or drops it.
func (n *Node) route(now time.Time, q *queued, avoid *neighbor, reason Reason) {
	if int(q.frame.Hops) >= n.cfg.HopLimit {
		n.drop(q, HopLimit)
		return
	}
	v := n.choose(&q.frame, avoid)
	if v == nil {
		n.drop(q, reason)
		return
	}
	if q.isAnswer() && n.answers >= answersMax {
		n.drop(q, Stalled)
		return
	}
	n.count(q, 1)
	v.enqueue(now, q, n.class(q.frame.Hops+1))
	n.wake(v)
}

// count counts a frame that enters a queue, or leaves it.
func (n *Node) count(q *queued, frames int) {
	n.waiting += frames
	if q.isAnswer() {
		n.answers += frames
	}
}

// choose returns the neighbor for a frame: in order of preference one that is not stalled and not
// avoid, one that is not avoid, or avoid. avoid is the neighbor that the frame comes from.
func (n *Node) choose(f *Frame, avoid *neighbor) (best *neighbor) {
	n.hops = n.cfg.Routes.NextHops(f.Destination, int(f.Hops), n.hops[:0])
	if len(n.hops) > 1 && f.Hops < 8 && f.Attempt>>f.Hops&1 == 1 && n.hops[0] != f.Destination {
		n.hops[0], n.hops[1] = n.hops[1], n.hops[0]
	}
	rank := 0
	for _, id := range n.hops {
		v := n.neighbors[id]
		if v == nil || !v.up {
			continue
		}
		r := 3
		if v == avoid {
			r = 1
		} else if v.stalled {
			r = 2
		}
		if r > rank {
			best, rank = v, r
		}
	}
	return best
}

// drop loses a frame.
func (n *Node) drop(q *queued, reason Reason) {
	n.stats.Dropped++
	d := Drop{Frame: q.frame, Reason: reason}
	d.Frame.Payload = nil
	if q.from != nil {
		d.From = q.from.id
	}
	n.effects.Drops = append(n.effects.Drops, d)
	n.release(q)
}

// release frees the buffer of a frame, and owes its bytes to the neighbor that has sent it.
func (n *Node) release(q *queued) {
	v, charge := q.from, q.frame.Charge()
	if v == nil {
		return
	}
	q.from = nil
	v.held[q.class] -= charge
	v.heldAll -= charge
	if !v.up {
		n.forget(v)
		return
	}
	before := v.owed[q.class]
	v.owed[q.class] += charge
	// A quarter of the buffer at most is not returned, and the rest of it suffices for a frame.
	if limit := n.cfg.Buffer / 4; before < limit && v.owed[q.class] >= limit {
		v.owing = append(v.owing, q.class)
		n.wake(v)
	}
}

// drain takes the frames of a class from a neighbor, or all if class is 0, and routes them again.
func (n *Node) drain(now time.Time, v *neighbor, class int, reason Reason) {
	for _, q := range v.takeAll(class) {
		n.count(q, -1)
		n.stats.Rerouted++
		avoid := q.from
		if v.up {
			avoid = v // It has stalled.
		}
		if n.choose(&q.frame, avoid) == v {
			n.drop(q, reason)
			continue
		}
		n.route(now, q, avoid, reason)
	}
}

// An Output is written to a neighbor: Frame if Credit.Bytes is 0.
type Output struct {
	Credit Credit
	Frame  Frame
}

// Next returns the next output for a neighbor. The call says that the previous output has been
// written, and its buffer is free. ok is false if there is nothing to write.
func (n *Node) Next(now time.Time, to membership.NodeID) (out Output, ok bool, effects *Effects) {
	n.begin()
	v := n.neighbors[to]
	if v == nil || !v.up {
		return Output{}, false, &n.effects
	}
	n.finish(v)
	for len(v.owing) > 0 {
		class := v.owing[0]
		v.owing = v.owing[:copy(v.owing, v.owing[1:])]
		if v.owed[class] == 0 {
			continue
		}
		out.Credit = Credit{Class: uint8(class), Bytes: uint32(v.owed[class])}
		v.granted[class] += v.owed[class]
		v.owed[class] = 0
		return out, true, &n.effects
	}
	q := v.dequeue(now)
	if q == nil {
		return Output{}, false, &n.effects
	}
	n.count(q, -1)
	if q.from != nil {
		n.stats.Forwarded++
	}
	v.writing = q
	out.Frame = q.frame
	out.Frame.Hops++
	return out, true, &n.effects
}

// finish frees the buffer of the output in progress.
func (n *Node) finish(v *neighbor) {
	if q := v.writing; q != nil {
		v.writing = nil
		n.release(q)
	}
}

// Deadline returns the time of the next Tick, or zero if nothing waits.
func (n *Node) Deadline() (at time.Time) {
	if n.waiting == 0 {
		return at
	}
	for _, v := range n.neighbors {
		if !v.up {
			continue
		}
		for class, frames := range v.frames {
			if end := v.progress[class].Add(n.cfg.Stall); frames > 0 && (at.IsZero() || end.Before(at)) {
				at = end
			}
		}
	}
	return at
}

// Tick routes frames again if their neighbor has made no progress for Config.Stall.
func (n *Node) Tick(now time.Time) *Effects {
	n.begin()
	for _, v := range n.sorted() {
		if !v.up {
			continue
		}
		for class, frames := range v.frames {
			if frames > 0 && now.Sub(v.progress[class]) >= n.cfg.Stall {
				v.stalled = true
				v.progress[class] = now
				n.drain(now, v, class, Stalled)
			}
		}
	}
	return &n.effects
}

// Held returns the number of bytes of others' frames in the buffers of this node.
func (n *Node) Held() (bytes int) {
	for _, v := range n.neighbors {
		bytes += v.heldAll
	}
	return bytes
}

// Stats returns the counters.
func (n *Node) Stats() Stats { return n.stats }

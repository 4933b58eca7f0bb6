// Package forward passes frames from neighbor to neighbor until they reach their destination. A [Node] is the state of one relay,
// which is a router of packets: frames are lost, repeated and reordered as in any network, and the ends recover.
//
// The package is pure: the methods of a Node are events, with the time as a parameter. The caller writes the frames of [Node.Next] to a
// neighbor, one at a time, when it can write.
//
// # Queues
//
// Frames wait in one queue for each neighbor, the neighbor that they come from (or the node itself), and source. The queues take turns by
// deficit round robin (Shreedhar and Varghese, 1995): first those of the neighbors that they come from, by the number of their sources up to a
// limit, then the sources. A frame is dropped if its queue is full, if the neighbor that has sent it holds too much
// of the memory of the node, or if it has waited too long. So nothing waits for room, no cycle of nodes can wait for each other, and the
// memory of a node is bounded for each neighbor, whatever the neighbor sends.
//
// # Paths
//
// Frames with the same source, destination and salt stay in order as long as the routes do not change. The salt selects detours: one that
// drops frames is left with another salt.
package forward

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// QueueMax is the number of bytes of a queue: a few milliseconds at the speed of a link, enough for the window of a connection.
	QueueMax = 512 << 10
	// InletMax is the number of bytes of the frames of one neighbor that wait for another one, and HeldMax of those that wait for all. So a
	// neighbor that does not read takes no room from frames for others.
	InletMax = 1 << 20
	HeldMax  = 4 << 20
	// AgeMax is the time that a frame waits at most. The ends have sent its packets again by then.
	AgeMax = 500 * time.Millisecond
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
	// HopLimit is the maximum number of hops: at least the diameter of the topology, more for detours, and at most HopLimitMax.
	HopLimit int
}

// An Outcome says what an event has done with a frame.
type Outcome uint8

// The outcomes. Those from NoRoute on are the reasons why a frame was dropped.
const (
	Queued    Outcome = iota // it waits for a neighbor
	Delivered                // this node is its destination
	NoRoute                  // no neighbor leads to the destination
	HopLimit                 // the frame has made the maximum number of hops
	Full                     // its queue is full, or the neighbor that has sent it holds too much memory
)

func (o Outcome) String() string {
	switch o {
	case Queued:
		return "queued"
	case Delivered:
		return "delivered"
	case NoRoute:
		return "no route"
	case HopLimit:
		return "hop limit"
	case Full:
		return "queue full"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Stats count the frames of a [Node]. Sent counts every packet of the node, also those that share a frame.
type Stats struct {
	Sent, Forwarded, Delivered, Dropped uint64
}

// A Node forwards frames. Its methods must not be called concurrently.
type Node struct {
	cfg       Config
	neighbors map[membership.NodeID]*neighbor
	held      map[membership.NodeID]int // memory of the frames of a neighbor that wait, also of one that has gone
	expired   time.Time                 // the last call of expire
	stats     Stats
	hops      []membership.NodeID
	buffers   sync.Pool // *[PayloadMax]byte
}

// New returns a node without neighbors.
func New(cfg Config) (*Node, error) {
	if cfg.HopLimit < 1 || cfg.HopLimit > HopLimitMax {
		return nil, fmt.Errorf("relay: hop limit %d: must be 1 to %d", cfg.HopLimit, HopLimitMax)
	}
	n := &Node{cfg: cfg, neighbors: make(map[membership.NodeID]*neighbor), held: make(map[membership.NodeID]int)}
	n.buffers.New = func() any { return new([PayloadMax]byte) }
	return n, nil
}

// shortPayload is the length up to which a payload has memory of its own. A longer one occupies PayloadMax.
const shortPayload = PayloadMax / 2

// Payload returns memory for a payload. It may be called concurrently.
func (n *Node) Payload(size int) []byte {
	if size <= shortPayload {
		return make([]byte, size)
	}
	return n.buffers.Get().(*[PayloadMax]byte)[:size]
}

// Free takes the memory of a payload back. It may be called concurrently.
func (n *Node) Free(payload []byte) {
	if cap(payload) == PayloadMax {
		n.buffers.Put((*[PayloadMax]byte)(payload[:PayloadMax]))
	}
}

// NeighborUp adds a neighbor, or replaces its link.
func (n *Node) NeighborUp(id membership.NodeID) {
	n.NeighborDown(id)
	n.neighbors[id] = newNeighbor(id)
}

// NeighborDown removes a neighbor. The frames that wait for it are lost.
func (n *Node) NeighborDown(id membership.NodeID) {
	v := n.neighbors[id]
	if v == nil {
		return
	}
	for q, ok := n.dequeue(v); ok; q, ok = n.dequeue(v) {
		n.drop(q.frame)
	}
	delete(n.neighbors, id)
}

// own names the flow of the frames of this node.
func (n *Node) own() flowID { return flowID{n.cfg.Self, n.cfg.Self} }

// Send sends a frame of this node: with a packet, which the node copies, or, if that is nil, with the payload of f, which the caller does not
// change. wake is the neighbor to which Next can write, if the outcome is Queued.
func (n *Node) Send(now time.Time, f Frame, packet []byte) (o Outcome, wake membership.NodeID) {
	n.stats.Sent++
	f.Hops = 0
	v := n.choose(&f, nil)
	if packet != nil {
		if v != nil && n.extend(now, v, &f, packet) {
			return Queued, v.id
		}
		f.Payload = AppendPacket(make([]byte, 0, packetHeader+len(packet)), packet)
	}
	return n.enqueue(now, f, n.own(), v)
}

// Answer sends a frame of this node that a neighbor has asked for: it takes the room of that neighbor.
func (n *Node) Answer(now time.Time, asker membership.NodeID, f Frame) (o Outcome, wake membership.NodeID) {
	n.stats.Sent++
	f.Hops = 0
	return n.enqueue(now, f, flowID{asker, f.Source}, n.choose(&f, nil))
}

// Waits returns the neighbor on the path of a frame of this node, and the memory of its frames that wait for that neighbor: 0 without a route.
func (n *Node) Waits(f Frame) (to membership.NodeID, memory int) {
	if v := n.choose(&f, nil); v != nil {
		to = v.id
		memory, _ = v.waiting(n.own())
	}
	return to, memory
}

// Waiting returns the memory of the frames of this node that wait for neighbors.
func (n *Node) Waiting() (bytes int) {
	for _, v := range n.neighbors {
		memory, _ := v.waiting(n.own())
		bytes += memory
	}
	return bytes
}

// Receive handles a frame of a neighbor. The node keeps the payload if the outcome is Queued. An error means that the neighbor violates the
// protocol; its link must be closed.
func (n *Node) Receive(now time.Time, from membership.NodeID, f Frame) (o Outcome, wake membership.NodeID, err error) {
	v := n.neighbors[from]
	if v == nil {
		return NoRoute, wake, fmt.Errorf("relay: frame from %v, which is no neighbor", from)
	}
	if f.Hops < 1 || int(f.Hops) > n.cfg.HopLimit {
		return HopLimit, wake, fmt.Errorf("relay: frame from %v after %d hops: must be 1 to %d", from, f.Hops, n.cfg.HopLimit)
	}
	if f.Destination == n.cfg.Self {
		n.stats.Delivered++
		return Delivered, wake, nil
	}
	o, wake = n.enqueue(now, f, flowID{from, f.Source}, n.choose(&f, v))
	return o, wake, nil
}

// enqueue queues a frame for a neighbor, or drops it. v is nil without a route.
func (n *Node) enqueue(now time.Time, f Frame, id flowID, v *neighbor) (o Outcome, wake membership.NodeID) {
	switch {
	case int(f.Hops) >= n.cfg.HopLimit:
		o = HopLimit
	case v == nil:
		o = NoRoute
	case n.isFull(f, id, v) && (!n.expire(now) || n.isFull(f, id, v)):
		o = Full
	default:
		v.enqueue(id, queued{frame: f, since: now})
		if id.from != n.cfg.Self {
			n.held[id.from] += f.memory()
		}
		return Queued, v.id
	}
	n.drop(f)
	return o, wake
}

// isFull reports whether a frame has no room.
func (n *Node) isFull(f Frame, id flowID, v *neighbor) bool {
	ofFlow, ofInlet := v.waiting(id)
	return ofFlow+f.memory() > QueueMax || ofInlet+f.memory() > InletMax || id.from != n.cfg.Self && n.held[id.from]+f.memory() > HeldMax
}

// expire drops the frames that have waited too long for neighbors that do not read, unless it has looked for them lately.
func (n *Node) expire(now time.Time) bool {
	if now.Sub(n.expired) < AgeMax/8 {
		return false
	}
	n.expired = now
	for _, v := range n.neighbors {
		for _, in := range slices.Clone(v.active) {
			for _, fl := range slices.Clone(in.active) {
				for len(fl.queue) > 0 && now.Sub(fl.queue[0].since) > AgeMax {
					q := v.pop(in, fl)
					n.release(in.from, q.frame)
					n.drop(q.frame)
				}
			}
		}
	}
	return true
}

func (n *Node) drop(f Frame) {
	n.stats.Dropped++
	n.Free(f.Payload)
}

// choose returns the neighbor for a frame, and nil if there is none. It prefers any neighbor to the one that has sent the frame.
func (n *Node) choose(f *Frame, from *neighbor) (best *neighbor) {
	n.hops = n.cfg.Routes.NextHops(f.Destination, int(f.Hops), n.hops[:0])
	if len(n.hops) > 1 && f.takesDetour() && n.hops[0] != f.Destination {
		n.hops[0], n.hops[1] = n.hops[1], n.hops[0]
	}
	for _, id := range n.hops {
		if v := n.neighbors[id]; v != nil && (best == nil || best == from) {
			best = v
		}
	}
	return best
}

// dequeue returns the next frame for a neighbor, and counts it as one that no longer waits.
func (n *Node) dequeue(v *neighbor) (q queued, ok bool) {
	from, q, ok := v.dequeue()
	if ok {
		n.release(from, q.frame)
	}
	return q, ok
}

// release counts a frame from a neighbor as one that no longer waits.
func (n *Node) release(from membership.NodeID, f Frame) {
	if from == n.cfg.Self {
		return
	}
	if n.held[from] -= f.memory(); n.held[from] == 0 {
		delete(n.held, from)
	}
}

// Next returns the next frame for a neighbor, whose payload the caller frees. ok is false if there is none.
func (n *Node) Next(now time.Time, to membership.NodeID) (f Frame, ok bool) {
	v := n.neighbors[to]
	if v == nil {
		return f, false
	}
	for q, ok := n.dequeue(v); ok; q, ok = n.dequeue(v) {
		if now.Sub(q.since) > AgeMax {
			n.drop(q.frame)
			continue
		}
		if q.frame.Hops > 0 {
			n.stats.Forwarded++
		}
		q.frame.Hops++
		return q.frame, true
	}
	return f, false
}

// Held returns the memory of the queues of this node.
func (n *Node) Held() (bytes int) {
	for _, v := range n.neighbors {
		for _, in := range v.active {
			bytes += in.memory
		}
	}
	return bytes
}

// Stats returns the counters.
func (n *Node) Stats() Stats { return n.stats }

package forward

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// quantum is the number of bytes that a flow may send in its turn. It is not less than the length of a frame, so each turn sends at
	// least one.
	quantum = HeaderSize + PayloadMax
	// flowsFair is the number of flows of an inlet that count for its share: a neighbor cannot multiply its share by invented sources.
	flowsFair = 8
)

// A queued frame waits for a neighbor.
type queued struct {
	frame Frame
	since time.Time
}

// A flowID names the flow of a frame. A neighbor can write any source into a frame, but not take the room of flows of others.
type flowID struct {
	from   membership.NodeID // the neighbor that has sent the frame, or this node
	source membership.NodeID
}

// A turn is the state of deficit round robin (Shreedhar and Varghese, 1995) for one of those that take turns.
type turn struct {
	deficit int // bytes that may still be sent in this turn
	taken   bool
}

// take begins a turn if none has begun, and reports whether it is long enough for a number of bytes. If not, it ends.
func (t *turn) take(share, length int) bool {
	if !t.taken {
		t.taken = true
		t.deficit += share
	}
	t.taken = t.deficit >= length
	return t.taken
}

// A flow is the queue of frames of one source in an inlet.
type flow struct {
	turn
	source membership.NodeID
	queue  []queued
	memory int
}

// An inlet has the frames from one neighbor, or from this node, for another neighbor.
type inlet struct {
	turn
	from   membership.NodeID
	flows  map[membership.NodeID]*flow
	active []*flow // take turns
	memory int
}

// A neighbor is the state of the link to a neighbor.
type neighbor struct {
	id     membership.NodeID
	inlets map[membership.NodeID]*inlet
	active []*inlet // take turns
}

func newNeighbor(id membership.NodeID) *neighbor {
	return &neighbor{id: id, inlets: make(map[membership.NodeID]*inlet)}
}

// waiting returns the memory of the frames of a flow that wait for the neighbor, and of its inlet.
func (v *neighbor) waiting(id flowID) (ofFlow, ofInlet int) {
	in := v.inlets[id.from]
	if in == nil {
		return 0, 0
	}
	if fl := in.flows[id.source]; fl != nil {
		ofFlow = fl.memory
	}
	return ofFlow, in.memory
}

// enqueue appends a frame to its flow.
func (v *neighbor) enqueue(id flowID, q queued) {
	in := v.inlets[id.from]
	if in == nil {
		in = &inlet{from: id.from, flows: make(map[membership.NodeID]*flow)}
		v.inlets[id.from] = in
		v.active = append(v.active, in)
	}
	fl := in.flows[id.source]
	if fl == nil {
		fl = &flow{source: id.source}
		in.flows[id.source] = fl
		in.active = append(in.active, fl)
	}
	fl.queue = append(fl.queue, q)
	fl.memory += q.frame.memory()
	in.memory += q.frame.memory()
}

// extend adds a packet to the last own frame for a neighbor if that is new, goes to the same destination on the same path and has room: the packets
// share a header, and the work for a frame at each relay.
func (n *Node) extend(now time.Time, v *neighbor, f *Frame, packet []byte) bool {
	in := v.inlets[n.cfg.Self]
	if in == nil || in.flows[n.cfg.Self] == nil {
		return false
	}
	fl := in.flows[n.cfg.Self]
	last := &fl.queue[len(fl.queue)-1]
	g := &last.frame
	size := len(g.Payload) + packetHeader + len(packet)
	if g.Kind != f.Kind || g.Destination != f.Destination || g.Salt != f.Salt || size > PayloadMax || now.Sub(last.since) > AgeMax/8 {
		return false
	}
	before := g.memory()
	if size > cap(g.Payload) {
		g.Payload = append(n.Payload(PayloadMax)[:0], g.Payload...)
	}
	g.Payload = AppendPacket(g.Payload, packet)
	fl.memory += g.memory() - before
	in.memory += g.memory() - before
	return true
}

// next returns the flow with the next frame of an inlet.
func (in *inlet) next() *flow {
	for {
		fl := in.active[0]
		if fl.take(quantum, fl.queue[0].frame.length()) {
			return fl
		}
		in.active = rotate(in.active)
	}
}

// dequeue returns the next frame by the order of turns. ok is false if none waits.
func (v *neighbor) dequeue() (from membership.NodeID, q queued, ok bool) {
	for len(v.active) > 0 {
		in := v.active[0]
		fl := in.next()
		length := fl.queue[0].frame.length()
		if !in.take(quantum*min(len(in.active), flowsFair), length) {
			v.active = rotate(v.active)
			continue
		}
		in.deficit -= length
		fl.deficit -= length
		return in.from, v.pop(in, fl), true
	}
	return from, q, false
}

// pop removes the first frame of a flow, and those that are empty afterwards.
func (v *neighbor) pop(in *inlet, fl *flow) queued {
	q := fl.queue[0]
	fl.queue[0] = queued{}
	fl.queue = fl.queue[1:]
	fl.memory -= q.frame.memory()
	in.memory -= q.frame.memory()
	if len(fl.queue) == 0 {
		delete(in.flows, fl.source)
		in.active = slices.DeleteFunc(in.active, func(other *flow) bool { return other == fl })
	}
	if len(in.active) == 0 {
		delete(v.inlets, in.from)
		v.active = slices.DeleteFunc(v.active, func(other *inlet) bool { return other == in })
	}
	return q
}

// rotate moves the first one to the end.
func rotate[T any](list []T) []T {
	first := list[0]
	return append(list[:copy(list, list[1:])], first)
}

package forward

import (
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// quantum is the number of bytes that a flow may send in its turn. It is not less than the length of a frame, so each turn sends at
// least one.
const quantum = HeaderSize + PayloadMax

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

// A flow is the queue of frames of one source for one neighbor.
type flow struct {
	id      flowID
	queue   []queued
	bytes   int  // memory of the queue
	deficit int  // bytes it may still send in its turn
	turn    bool // has got the quantum of its turn
}

// A neighbor is the state of the link to a neighbor.
type neighbor struct {
	id     membership.NodeID
	flows  map[flowID]*flow
	active []*flow // take turns
}

// waiting returns the memory of the frames of a flow that wait for the neighbor.
func (v *neighbor) waiting(id flowID) int {
	if fl := v.flows[id]; fl != nil {
		return fl.bytes
	}
	return 0
}

// enqueue appends a frame to its flow.
func (v *neighbor) enqueue(id flowID, q queued) {
	fl := v.flows[id]
	if fl == nil {
		fl = &flow{id: id}
		v.flows[id] = fl
		v.active = append(v.active, fl)
	}
	fl.queue = append(fl.queue, q)
	fl.bytes += q.frame.memory()
}

// extend adds a packet to the last own frame for a neighbor if that goes to the same destination on the same path and has room: the packets share
// a header, and the work for a frame at each relay.
func (n *Node) extend(v *neighbor, f *Frame, packet []byte) bool {
	fl := v.flows[n.own()]
	if fl == nil {
		return false
	}
	g := &fl.queue[len(fl.queue)-1].frame
	if g.Kind != f.Kind || g.Destination != f.Destination || g.Salt != f.Salt || len(g.Payload)+packetHeader+len(packet) > PayloadMax {
		return false
	}
	before := g.memory()
	if len(g.Payload)+packetHeader+len(packet) > cap(g.Payload) {
		g.Payload = append(n.Payload(PayloadMax)[:0], g.Payload...)
	}
	g.Payload = AppendPacket(g.Payload, packet)
	fl.bytes += g.memory() - before
	return true
}

// dequeue returns the next frame by the order of turns (Shreedhar and Varghese, 1995). ok is false if none waits.
func (v *neighbor) dequeue() (id flowID, q queued, ok bool) {
	for len(v.active) > 0 {
		fl := v.active[0]
		q = fl.queue[0]
		if !fl.turn {
			fl.turn = true
			fl.deficit += quantum
		}
		if fl.deficit < q.frame.length() {
			fl.turn = false
			v.shift()
			v.active = append(v.active, fl)
			continue
		}
		fl.queue[0] = queued{}
		fl.queue = fl.queue[1:]
		fl.deficit -= q.frame.length()
		fl.bytes -= q.frame.memory()
		if len(fl.queue) == 0 {
			delete(v.flows, fl.id)
			v.shift()
		}
		return fl.id, q, true
	}
	return id, q, false
}

// shift removes the first active flow.
func (v *neighbor) shift() {
	v.active = v.active[:copy(v.active, v.active[1:])]
}

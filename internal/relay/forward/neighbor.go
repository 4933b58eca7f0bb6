package forward

import (
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// quantum is the number of bytes that a flow may send in its turn. It is not less than the charge of a frame, so each turn sends at
// least one.
const quantum = HeaderSize + PayloadMax + frameCharge

// A queued frame waits for a neighbor.
type queued struct {
	frame Frame
	from  *neighbor // that has sent it; nil for an own frame
	since time.Time
}

// A flow is the queue of the frames of one source for one neighbor.
type flow struct {
	source  membership.NodeID
	queue   []*queued
	bytes   int  // charges of the queue
	deficit int  // bytes it may still send in its turn
	turn    bool // has got the quantum of its turn
}

// A neighbor is the state of the link to a neighbor.
type neighbor struct {
	id     membership.NodeID
	flows  map[membership.NodeID]*flow
	active []*flow // take turns
	held   int     // charges of frames of this neighbor that wait, for any neighbor
}

func newNeighbor(id membership.NodeID) *neighbor {
	return &neighbor{id: id, flows: make(map[membership.NodeID]*flow)}
}

// waiting returns the charges of the frames of a source that wait for the neighbor.
func (v *neighbor) waiting(source membership.NodeID) int {
	if fl := v.flows[source]; fl != nil {
		return fl.bytes
	}
	return 0
}

// enqueue appends a frame to its flow.
func (v *neighbor) enqueue(q *queued) {
	fl := v.flows[q.frame.Source]
	if fl == nil {
		fl = &flow{source: q.frame.Source}
		v.flows[fl.source] = fl
		v.active = append(v.active, fl)
	}
	fl.queue = append(fl.queue, q)
	fl.bytes += q.frame.charge()
	if q.from != nil {
		q.from.held += q.frame.charge()
	}
}

// extend adds a packet to the last frame of a flow if that goes to the same destination on the same path and has room: the packets share
// a header, and the work for a frame at each relay.
func (n *Node) extend(v *neighbor, f *Frame, packet []byte) bool {
	fl := v.flows[f.Source]
	if fl == nil {
		return false
	}
	last := fl.queue[len(fl.queue)-1]
	g := &last.frame
	if last.from != nil || g.Kind != f.Kind || g.Destination != f.Destination || g.Salt != f.Salt || len(g.Payload)+packetHeader+len(packet) > PayloadMax {
		return false
	}
	before := g.charge()
	if len(g.Payload)+packetHeader+len(packet) > cap(g.Payload) {
		g.Payload = append(n.Payload(PayloadMax)[:0], g.Payload...)
	}
	g.Payload = AppendPacket(g.Payload, packet)
	fl.bytes += g.charge() - before
	return true
}

// dequeue returns the next frame by the order of turns (Shreedhar and Varghese, 1995), or nil if none waits.
func (v *neighbor) dequeue() *queued {
	for len(v.active) > 0 {
		fl := v.active[0]
		charge := fl.queue[0].frame.charge()
		if !fl.turn {
			fl.turn = true
			fl.deficit += quantum
		}
		if fl.deficit < charge {
			fl.turn = false
			v.shift()
			v.active = append(v.active, fl)
			continue
		}
		q := fl.queue[0]
		fl.queue[0] = nil
		fl.queue = fl.queue[1:]
		fl.deficit -= charge
		fl.bytes -= charge
		if q.from != nil {
			q.from.held -= charge
		}
		if len(fl.queue) == 0 {
			delete(v.flows, fl.source)
			v.shift()
		}
		return q
	}
	return nil
}

// shift removes the first active flow.
func (v *neighbor) shift() {
	v.active = v.active[:copy(v.active, v.active[1:])]
}

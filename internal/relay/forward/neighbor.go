package forward

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// quantum is the number of bytes that a flow may send in its turn. It is not less than the charge
// of a frame, so each turn sends at least one.
const quantum = chargeMax

// A queued frame waits for a neighbor.
type queued struct {
	frame Frame
	from  *neighbor // with the buffer of the frame; nil for an own frame
	class int       // of that buffer
}

// answersMax is the number of answers of this node that wait for neighbors. A neighbor that gives no credit could make it queue any number of them.
const answersMax = 4096

// isAnswer reports whether the frame is one that this node sends for each frame that it gets. The next one replaces it.
func (q *queued) isAnswer() bool {
	return q.from == nil && (q.frame.Kind == Ack || q.frame.Kind == HandshakeAck || q.frame.Kind == Abort)
}

// A flow is the queue of the frames of one source in one class of the next node.
type flow struct {
	key     flowKey
	queue   []*queued
	deficit int  // bytes it may still send in its turn
	turn    bool // has got the quantum of its turn
}

type flowKey struct {
	source membership.NodeID
	class  int
}

// A neighbor is the state of the link to a neighbor. Slices are indexed by class; index 0 is not used.
type neighbor struct {
	id membership.NodeID
	up bool

	// Sending.
	credit   []int // bytes that the neighbor can still buffer
	flows    map[flowKey]*flow
	active   []*flow   // take turns
	parked   [][]*flow // wait for credit, in the order of their turns
	frames   []int     // number in the flows
	progress []time.Time
	stalled  bool
	writing  *queued // the output in progress

	// Receiving.
	granted []int // credit that the neighbor has
	held    []int // bytes in the buffers
	heldAll int
	owed    []int // bytes that were freed, and the credit not returned
	owing   []int // classes with credit to be returned by Next
}

func newNeighbor(id membership.NodeID, classes int) *neighbor {
	size := classes + 1
	return &neighbor{
		id: id, flows: make(map[flowKey]*flow),
		credit: make([]int, size), parked: make([][]*flow, size), frames: make([]int, size), progress: make([]time.Time, size),
		granted: make([]int, size), held: make([]int, size), owed: make([]int, size),
	}
}

// reset starts a new link. Frames of the previous one may still be in the buffers, so the
// neighbor gets credit for the rest only.
func (v *neighbor) reset(now time.Time, buffer int) {
	v.up, v.stalled = true, false
	v.owing = v.owing[:0]
	for class := 1; class < len(v.credit); class++ {
		v.credit[class], v.granted[class] = 0, 0
		v.progress[class] = now
		v.owed[class] = buffer - v.held[class]
		v.owing = append(v.owing, class)
	}
}

// enqueue appends a frame to its flow.
func (v *neighbor) enqueue(now time.Time, q *queued, class int) {
	key := flowKey{q.frame.Source, class}
	fl := v.flows[key]
	if fl == nil {
		fl = &flow{key: key}
		v.flows[key] = fl
		v.active = append(v.active, fl)
	}
	if v.frames[class] == 0 {
		v.progress[class] = now
	}
	v.frames[class]++
	fl.queue = append(fl.queue, q)
}

// dequeue returns the next frame by the order of turns, or nil if no frame has credit.
func (v *neighbor) dequeue(now time.Time) *queued {
	for len(v.active) > 0 {
		fl := v.active[0]
		class, charge := fl.key.class, fl.queue[0].frame.Charge()
		// Flows that wait for credit of the class have their turn first, or short frames would
		// use the credit that a long one waits for.
		if v.credit[class] < charge || len(v.parked[class]) > 0 {
			v.parked[class] = append(v.parked[class], fl)
			v.shift()
			continue
		}
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
		v.credit[class] -= charge
		v.frames[class]--
		v.progress[class] = now
		v.stalled = false
		if len(fl.queue) == 0 {
			delete(v.flows, fl.key)
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

// unpark makes the flows of a class active again, before those that came later.
func (v *neighbor) unpark(class int) {
	v.active = slices.Insert(v.active, 0, v.parked[class]...)
	v.parked[class] = v.parked[class][:0]
}

// takeAll removes and returns the frames of a class, or all if class is 0, in the order of each flow.
func (v *neighbor) takeAll(class int) (frames []*queued) {
	take := func(fl *flow) bool {
		if class != 0 && fl.key.class != class {
			return false
		}
		frames = append(frames, fl.queue...)
		v.frames[fl.key.class] -= len(fl.queue)
		delete(v.flows, fl.key)
		return true
	}
	for c := range v.parked {
		v.parked[c] = slices.DeleteFunc(v.parked[c], take)
	}
	v.active = slices.DeleteFunc(v.active, take)
	return frames
}

// sorted returns the neighbors in the order of their IDs, so that equal events have equal effects.
func (n *Node) sorted() []*neighbor {
	return slices.SortedFunc(maps.Values(n.neighbors), func(a, b *neighbor) int { return bytes.Compare(a.id[:], b.id[:]) })
}

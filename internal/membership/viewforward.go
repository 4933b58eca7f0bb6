package membership

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/topology"
)

const (
	// confirmPatience is the time that a node waits for the confirmations of its children, for each
	// level of its subtree.
	confirmPatience = patience / 2
	// behindPatience is the time after which a node that lacks a view asks again: first its parent,
	// then the seed.
	behindPatience = 5 * confirmPatience
	// seedPatience is the time after which it asks the seed once more.
	seedPatience = 10 * behindPatience
	// missingMax is the maximum number of subtrees in a confirmation. With more, the node reports
	// its own subtree.
	missingMax = 64
	// recentMax is the number of differences that a node keeps for nodes that lack them.
	recentMax = 8
)

// A Confirmation says that the nodes of the subtree of its sender have the view of an epoch.
type Confirmation struct {
	Epoch uint64
	// Missing are the ranks, in the view before, of the topmost nodes of subtrees that have not confirmed.
	Missing []uint32
}

// A Behind requests the differences after the view of an epoch.
type Behind struct{ Epoch uint64 }

// A ViewMessage is a message about views for another node, or for the seed.
type ViewMessage struct {
	To   NodeID // zero: the seed
	Body any    // a Difference, a Confirmation or a Behind
}

// ErrForged says that a view is not one that the seed has signed.
var ErrForged = errors.New("forged view")

// A ViewForwarder is the part of a node in the distribution of views. It verifies differences,
// forwards them to the children of the node in the tree, and confirms them to its parent when its
// subtree has confirmed. If it lacks a view, it asks its parent for it, and then the seed.
//
// Messages to others collect until Messages returns them.
type ViewForwarder struct {
	self   NodeID
	links  topology.Topology
	verify func(epoch uint64, h Hash, signature []byte) error
	view   View
	recent []Difference // the latest, without a gap
	round  forwarding
	lack   lack
	out    []ViewMessage
}

// forwarding is the state of the newest difference.
type forwarding struct {
	epoch    uint64 // 0: none
	base     View
	parent   NodeID // zero: the seed
	rank     uint32 // of this node in base
	waiting  []uint32
	missing  []uint32
	deadline time.Time
}

// lack is the state of a node that knows that it lacks a view.
type lack struct {
	epoch    uint64 // of its own view; 0: it lacks none
	stage    lackStage
	asked    NodeID // zero: no node
	deadline time.Time
}

type lackStage uint8

const (
	lackNoticed lackStage = iota // the view may be on its way
	lackParent                   // a node was asked
	lackSeed                     // the seed was asked
)

// NewViewForwarder returns the ViewForwarder of a node in a world with a topology, the same on all
// nodes and the seed. verify returns an error if the seed has not signed an epoch and a hash.
func NewViewForwarder(self NodeID, links topology.Topology, verify func(epoch uint64, h Hash, signature []byte) error) *ViewForwarder {
	return &ViewForwarder{self: self, links: links, verify: verify}
}

// Set makes a whole view from the seed the newest one.
func (f *ViewForwarder) Set(v View) {
	f.view, f.recent, f.round, f.lack = v, nil, forwarding{}, lack{}
}

// Messages returns the messages that have collected since the last call, in the order of sending.
func (f *ViewForwarder) Messages() (out []ViewMessage) {
	out, f.out = f.out, nil
	return out
}

func (f *ViewForwarder) send(to NodeID, body any) {
	f.out = append(f.out, ViewMessage{To: to, Body: body})
}

// Difference handles a difference from a node, or from the seed if from is zero. It returns the new
// view if the difference leads to one that contains this node. An error wraps [ErrForged].
func (f *ViewForwarder) Difference(now time.Time, from NodeID, d Difference) (v View, ok bool, err error) {
	if f.view.Epoch == 0 {
		return View{}, false, nil // The first view of a node comes whole, from the seed.
	}
	if d.Epoch <= f.view.Epoch {
		if d.Epoch == f.round.epoch && len(f.round.waiting) == 0 && from != (NodeID{}) {
			f.send(from, Confirmation{Epoch: d.Epoch, Missing: f.round.missing})
		}
		return View{}, false, nil
	}
	if err := f.verify(d.Epoch, d.Hash, d.Signature); err != nil {
		return View{}, false, fmt.Errorf("%w %d: %w", ErrForged, d.Epoch, err)
	}
	if d.Base != f.view.Epoch {
		f.ask(now, from)
		return View{}, false, nil
	}
	after, err := d.Apply(f.view)
	if err == nil && after.Hash() != d.Hash {
		err = errors.New("the difference leads to a view with another hash")
	}
	if err != nil {
		return View{}, false, fmt.Errorf("%w %d: %w", ErrForged, d.Epoch, err)
	}
	if !after.has(f.self) {
		return View{}, false, nil // The seed tells this node why it was removed.
	}
	f.forward(now, d.clone(), after)
	return after, true, nil
}

// forward makes after the view, and sends the difference to the children of this node.
func (f *ViewForwarder) forward(now time.Time, d Difference, after View) {
	base := f.view
	f.view, f.lack = after, lack{}
	if f.recent = append(f.recent, d); len(f.recent) > recentMax {
		f.recent = slices.Delete(f.recent, 0, 1)
	}
	t := newViewTree(f.links, base.Size(), d.Gone, d.Epoch)
	rank, _ := base.Rank(f.self)
	f.round = forwarding{
		epoch: d.Epoch, base: base, rank: uint32(rank), waiting: t.children(rank),
		deadline: now.Add(confirmPatience * time.Duration(t.height[rank])),
	}
	if p := t.parent[rank]; p >= 0 {
		f.round.parent = base.Nodes[p].ID
	}
	for _, child := range f.round.waiting {
		f.send(base.Nodes[child].ID, d)
	}
	if len(f.round.waiting) == 0 {
		f.confirm()
	}
}

// Confirmation handles the confirmation of a child.
func (f *ViewForwarder) Confirmation(from NodeID, c Confirmation) {
	if c.Epoch == f.round.epoch {
		f.settle(from, c.Missing)
	}
}

// Unreachable records that this node cannot send to another one, or has lost its link to it.
func (f *ViewForwarder) Unreachable(id NodeID) {
	if len(f.round.waiting) > 0 {
		if rank, in := f.round.base.Rank(id); in {
			f.settle(id, []uint32{uint32(rank)})
		}
	}
	if f.lack.epoch != 0 && f.lack.stage == lackParent && f.lack.asked == id {
		f.lack.deadline = time.Time{} // The next Tick asks the seed.
	}
}

// settle ends the wait for a child.
func (f *ViewForwarder) settle(child NodeID, missing []uint32) {
	r := &f.round
	i := slices.IndexFunc(r.waiting, func(rank uint32) bool { return r.base.Nodes[rank].ID == child })
	if i < 0 {
		return
	}
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.missing = append(r.missing, missing...)
	if len(r.waiting) == 0 {
		f.confirm()
	}
}

// confirm confirms the newest difference to the parent.
func (f *ViewForwarder) confirm() {
	if len(f.round.missing) > missingMax {
		f.round.missing = []uint32{f.round.rank}
	}
	f.send(f.round.parent, Confirmation{Epoch: f.round.epoch, Missing: f.round.missing})
}

// Newer records that the seed has distributed the view of an epoch.
func (f *ViewForwarder) Newer(now time.Time, epoch uint64) {
	if f.view.Epoch > 0 && epoch > f.view.Epoch && f.lack.epoch == 0 {
		f.lack = lack{epoch: f.view.Epoch, stage: lackNoticed, deadline: now.Add(behindPatience)}
	}
}

// ask asks a node, or the seed, for the differences that this node lacks.
func (f *ViewForwarder) ask(now time.Time, from NodeID) {
	if f.lack.epoch != 0 && f.lack.stage != lackNoticed {
		return
	}
	f.lack = lack{epoch: f.view.Epoch, stage: lackParent, asked: from, deadline: now.Add(behindPatience)}
	if from == (NodeID{}) {
		f.lack.stage, f.lack.deadline = lackSeed, now.Add(seedPatience)
	}
	f.send(from, Behind{f.view.Epoch})
}

// Behind answers a node that lacks differences, if this node has all of them.
func (f *ViewForwarder) Behind(from NodeID, b Behind) {
	i := slices.IndexFunc(f.recent, func(d Difference) bool { return d.Base == b.Epoch })
	if i < 0 {
		return
	}
	for _, d := range f.recent[i:] {
		f.send(from, d)
	}
}

// Deadline returns the time of the next Tick, if there is one.
func (f *ViewForwarder) Deadline() (at time.Time, ok bool) {
	if len(f.round.waiting) > 0 {
		at, ok = f.round.deadline, true
	}
	if f.lack.epoch != 0 && (!ok || f.lack.deadline.Before(at)) {
		at, ok = f.lack.deadline, true
	}
	return at, ok
}

// Tick ends waits that have taken too long.
func (f *ViewForwarder) Tick(now time.Time) {
	if r := &f.round; len(r.waiting) > 0 && !now.Before(r.deadline) {
		r.missing, r.waiting = append(r.missing, r.waiting...), nil
		f.confirm()
	}
	if f.lack.epoch == 0 || now.Before(f.lack.deadline) {
		return
	}
	to := NodeID{}
	if f.lack.stage == lackNoticed {
		to = f.round.parent
	}
	f.lack.stage = lackNoticed
	f.ask(now, to)
}

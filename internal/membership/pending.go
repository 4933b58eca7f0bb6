package membership

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/topology"
)

const (
	// linkTimeout bounds the time that a candidate takes to link itself to the world.
	linkTimeout = 45 * time.Second
	// confirmTimeout bounds the time until the nodes that would watch a linked
	// candidate confirm its links.
	confirmTimeout = 5 * time.Second
	// invitePause is the time after which an invited candidate is overtaken by the next one, or may be invited once more,
	// and the first delay of one that has failed.
	invitePause = time.Second
	// waitingMax bounds the candidates.
	waitingMax = 1024
)

// A Policy is the set of rules for nodes that a formed world admits.
type Policy struct {
	// World is the size with which the world forms. Spares replace gone nodes up to it.
	World int
	// Elastic admits other candidates, up to Max nodes; 0 means no limit.
	Elastic bool
	Max     int
	// Min is the minimum number of nodes of a view. The Arbiter waits for candidates rather
	// than make a smaller view.
	Min int
}

// PendingJoins holds the candidates for a formed world. Each is invited to link itself to
// the nodes of the world that it watches or that watch it. It may enter when it reports that it is linked, and the nodes that would
// watch it confirm their ends of the links: its own report is not enough. Two candidates enter
// together only if both confirm the link between them.
//
// Candidates are invited one after the other, so that each links itself to those before it. A
// candidate that takes longer than invitePause is overtaken. The number of candidates that
// link themselves at the same time is one more than the number of overtaken ones, so candidates
// that never succeed delay others only briefly. They are eventually dismissed and held off.
type PendingJoins struct {
	// Topology is that of the world. Unless it is full, candidates link themselves to their neighbors only, and
	// these confirm the links.
	Topology  topology.Topology
	policy    Policy
	list      []*candidate // in the order of joining
	number    uint64       // of the latest invitation
	stall     time.Duration
	failures  *holdoff
	ticked    time.Time         // the latest known time
	grace     time.Time         // until then nodes of the world may be absent (Await)
	entered   map[NodeID]string // origins of the nodes that entered with the newest view
	displaced map[NodeID]string // candidates removed by Admit, and why
	forgotten []NodeID          // invited candidates that do not enter
	newly     []NodeID          // candidates that have been confirmed since the last Tick
}

// A candidate is a node among the PendingJoins.
type candidate struct {
	node    Node
	spare   bool
	origin  string
	peers   []NodeID  // nodes of the world that it was invited to link itself to; nil before the invitation
	links   []NodeID  // in a sparse topology: see LinksOfInvited
	number  uint64    // of the invitation
	invited time.Time // time of the invitation
	resumes int       // how often the waits for it have begun again
	linked  bool      // according to its own report
	// confirmed, lacks and missing are set by PendingJoins.confirm: lacks lists the
	// nodes that have not confirmed the links, and missing is the time since which a
	// linked candidate lacks some.
	confirmed bool
	lacks     []NodeID
	missing   time.Time
	proven    bool                // it was confirmed before
	lost      map[NodeID]loss     // lost links, by the other node
	reports   map[NodeID]struct{} // nodes that report a link to it
	claims    map[NodeID]struct{} // nodes that it reports a link to, besides peers
}

// An Invitation asks a candidate, the last of Circle, to link itself to the nodes before
// it. It replaces earlier invitations.
type Invitation struct {
	Number uint64 // higher than that of earlier invitations
	Node   Node
	World  int // the number of Nodes in the world, which come first
	Circle []Node
}

// NewPendingJoins returns PendingJoins without candidates. The numbers of its
// invitations are above after.
func NewPendingJoins(t Policy, after uint64) *PendingJoins {
	return &PendingJoins{
		policy: t, number: after, stall: invitePause, failures: newHoldoff(),
		entered: make(map[NodeID]string), displaced: make(map[NodeID]string),
	}
}

// Await says that nodes of the world may be absent until a time, since the caller has just begun to lead. That a node has not confirmed
// its link to a candidate, or that a candidate cannot reach it, counts from then on.
func (p *PendingJoins) Await(until time.Time) { p.grace = until }

// Admit adds a candidate. Origin is an address, without a port, that nodes cannot
// choose; empty if unknown. An error refuses the candidate. A candidate whose place it takes is removed. If too many wait, one from
// the origin with the most candidates is removed.
func (p *PendingJoins) Admit(n Node, wanted int, spare bool, origin string) error {
	if err := p.Refuse(n, wanted, spare); err != nil {
		return err
	}
	if len(p.list) == waitingMax && !p.displace(origin) {
		return fmt.Errorf("%w: %d nodes wait already", ErrFull, waitingMax)
	}
	for _, c := range slices.Clone(p.list) {
		if n.Succeeds(c.node) {
			p.displaced[c.node.ID] = taken(c.node.Place, n)
			p.remove(c)
		}
	}
	p.list = append(p.list, &candidate{
		node: n.clone(), spare: spare, origin: origin,
		lost: make(map[NodeID]loss), reports: make(map[NodeID]struct{}), claims: make(map[NodeID]struct{}),
	})
	return nil
}

// Refuse returns why Admit refuses a node of any origin, or nil.
func (p *PendingJoins) Refuse(n Node, wanted int, spare bool) error {
	switch {
	case !spare && !p.policy.Elastic:
		return fmt.Errorf("%w: the world of %d has formed and is not elastic", ErrOver, p.policy.World)
	case wanted != AnyRank:
		return fmt.Errorf("%w: %d: a node that joins a formed world gets the next free rank", ErrRank, wanted)
	case p.find(n.ID) != nil:
		return fmt.Errorf("node %v: %w", n.ID, ErrReused)
	}
	return checkNode(n)
}

// displace removes the last unconfirmed candidate of the origin with the most
// candidates, if it has more than the given origin would have. It reports whether it
// has removed one.
func (p *PendingJoins) displace(origin string) bool {
	count := make(map[string]int)
	for _, c := range p.list {
		count[c.origin]++
	}
	for _, c := range slices.Backward(p.list) {
		if !c.confirmed && count[c.origin] > count[origin]+1 && !slices.ContainsFunc(p.list, func(o *candidate) bool { return count[o.origin] > count[c.origin] }) {
			p.displaced[c.node.ID] = fmt.Sprintf("%d nodes wait, %d of them from the address of this one, which makes room for a node from another address", waitingMax, count[c.origin])
			p.remove(c)
			return true
		}
	}
	return false
}

// Waiting returns the number of candidates.
func (p *PendingJoins) Waiting() int { return len(p.list) }

// Growing returns the number of candidates that are not spares. The world has that many nodes more when they have entered.
func (p *PendingJoins) Growing() (n int) {
	for _, c := range p.list {
		if !c.spare {
			n++
		}
	}
	return n
}

func (p *PendingJoins) find(id NodeID) *candidate {
	if i := slices.IndexFunc(p.list, func(c *candidate) bool { return c.node.ID == id }); i >= 0 {
		return p.list[i]
	}
	return nil
}

// remove removes a candidate that does not enter.
func (p *PendingJoins) remove(c *candidate) {
	if c.number > 0 {
		p.forgotten = append(p.forgotten, c.node.ID)
	}
	p.list = slices.DeleteFunc(p.list, func(other *candidate) bool { return other == c })
}

// fail removes a candidate that has failed, and returns when the node may try again.
func (p *PendingJoins) fail(c *candidate) time.Time {
	p.remove(c)
	return p.failures.fail(p.ticked, c.node.ID, c.origin)
}

// Gone reports that a candidate, or a node of the world, is gone. Candidates that were
// invited to link themselves to that node are invited again.
func (p *PendingJoins) Gone(id NodeID) (waited bool) {
	if c := p.find(id); c != nil {
		if c.peers == nil || c.spare && c.confirmed {
			p.remove(c)
		} else {
			p.fail(c)
		}
		waited = true
	}
	for _, c := range p.list {
		delete(c.lost, id)
		if waited { // A node of the world stays if the view would be too small.
			delete(c.reports, id)
			delete(c.claims, id)
		}
		if !c.linked && slices.Contains(c.peers, id) {
			c.peers = nil
		}
	}
	return waited
}

// invite returns the invitation of the next candidate to a view, if one is due.
func (p *PendingJoins) invite(now time.Time, v View) *Invitation {
	next := p.next(now)
	if next == nil {
		return nil
	}
	p.again(next)
	peers := slices.Clone(v.Nodes)
	for _, c := range p.list {
		if c.confirmed {
			peers = append(peers, c.node)
		}
	}
	peers = append(peers, next.node)
	p.number++
	next.peers, next.number, next.invited, next.links = idsOf(v.Nodes), p.number, now, nil
	if !p.Topology.IsFull() {
		for _, i := range LinksOfInvited(p.Topology, v.Size(), len(peers)) {
			next.links = append(next.links, peers[i].ID)
		}
	}
	return &Invitation{Number: p.number, Node: next.node.clone(), World: v.Size(), Circle: View{Nodes: peers}.clone().Nodes}
}

// next returns the candidate to invite now, or nil.
func (p *PendingJoins) next(now time.Time) *candidate {
	busy, stalled, proven := 0, 0, false
	trying := make(map[string]bool)
	for _, c := range p.list {
		switch {
		case c.peers == nil || c.confirmed:
			continue
		case now.Before(c.invited.Add(p.stall)):
			busy++
			proven = proven || c.proven
		default:
			stalled++
		}
		trying[c.origin] = true
	}
	if busy > stalled {
		return nil
	}
	for _, c := range p.list {
		switch {
		case c.peers != nil:
		case now.Before(p.failures.until(now, c.node.ID, c.origin)):
		case trying[c.origin] && p.failures.isSuspect(now, c.origin):
		case c.proven && proven: // One at a time, so that they are linked to each other.
		default:
			return c
		}
	}
	return nil
}

func idsOf(nodes []Node) []NodeID {
	ids := make([]NodeID, 0, len(nodes))
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

// link records that a candidate has the links that an invitation asks for.
func (p *PendingJoins) link(id NodeID, number uint64) bool {
	c := p.find(id)
	if c == nil || c.linked || c.peers == nil || c.number != number {
		return false
	}
	c.linked = true
	clear(c.lost) // They concern its earlier links.
	return true
}

// unlink records that a candidate has lost a node of a view or another candidate, or
// cannot reach it. A candidate that is not linked yet has lost nothing: it drops its
// links when it is invited again. Two candidates that have lost each other do not enter
// together, and neither is removed.
func (p *PendingJoins) unlink(now time.Time, v View, id, to NodeID, reason string) bool {
	c := p.find(id)
	if c == nil || c.peers == nil {
		return false
	}
	if _, in := v.Rank(to); !in {
		p.report(id, to, false)
		return false
	}
	if _, known := c.lost[to]; known {
		return false
	}
	c.lost[to] = loss{at: lastOf(now, p.grace), reason: reason}
	return true
}

// deadline returns when dismiss or the next invitation is due. alive has the time of the last answer of each node.
func (p *PendingJoins) deadline(alive map[NodeID]time.Time) (due time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(due) {
			due, ok = t, true
		}
	}
	waits := false
	for _, c := range p.list {
		if at, late := c.deadline(p.ticked, alive); late {
			sooner(at)
		}
		if c.peers == nil {
			waits = true
			if at := p.failures.until(p.ticked, c.node.ID, c.origin); at.After(p.ticked) {
				sooner(at)
			}
		}
	}
	for _, c := range p.list {
		if at := c.invited.Add(p.stall); (waits || !p.Topology.IsFull()) && c.peers != nil && !c.confirmed && at.After(p.ticked) {
			sooner(at)
		}
	}
	if len(p.displaced) > 0 {
		sooner(p.ticked)
	}
	return due, ok
}

// deadline returns the time at which a candidate is dismissed. A candidate waits for nodes that have not confirmed its links, and for nodes
// that it has lost, until one of them answers the seed: they may have ended, or the seed may be cut off. alive has the time of the last answer
// of each node.
func (c *candidate) deadline(now time.Time, alive map[NodeID]time.Time) (due time.Time, ok bool) {
	after := func(since time.Time, patience time.Duration, nodes ...NodeID) time.Time {
		due := since.Add(patience)
		if !now.Before(due) && !slices.ContainsFunc(nodes, func(id NodeID) bool { return alive[id].After(since) }) {
			return now.Add(invitePause)
		}
		return due
	}
	switch {
	case c.peers != nil && !c.linked:
		due, ok = c.invited.Add(linkTimeout), true
	case c.linked && !c.confirmed:
		due, ok = after(c.missing, confirmTimeout, c.lacks...), true
	}
	for id, lost := range c.lost {
		if at := after(lost.at, cutPatience, id); !ok || at.Before(due) {
			due, ok = at, true
		}
	}
	return due, ok
}

// dismiss removes candidates that are not linked or not confirmed in time, or that have lost a
// remaining node of the view. It returns the reasons, and when they may try again.
func (p *PendingJoins) dismiss(now time.Time, v View, alive map[NodeID]time.Time) map[NodeID]string {
	out := p.displaced
	p.displaced = make(map[NodeID]string)
	for _, c := range slices.Clone(p.list) {
		due, ok := c.deadline(now, alive)
		if !ok || now.Before(due) {
			continue
		}
		why := p.why(c, v)
		if wait := p.fail(c).Sub(now); wait > 0 {
			why += fmt.Sprintf("; held off for %v", wait)
		}
		out[c.node.ID] = why
	}
	return out
}

// close removes all candidates.
func (p *PendingJoins) close(out map[NodeID]string) {
	for _, c := range p.list {
		out[c.node.ID] = "all nodes of the world are gone"
	}
	p.list, p.forgotten = nil, nil
}

// ready returns the candidates that would enter a world beside the nodes that stay, in
// order of joining. A candidate that is not linked to all of these is invited again:
// some were about to enter or go when it was invited.
func (p *PendingJoins) ready(stay View) (nodes []Node) {
	var enter []*candidate
	isFull := p.Topology.IsFull()
	for _, c := range p.list {
		if isFull && c.linked && slices.ContainsFunc(stay.Nodes, func(n Node) bool { return !c.isLinkedTo(n.ID) }) {
			p.again(c)
		}
		size := stay.Size() + len(enter)
		room := p.policy.Elastic && !c.spare && (p.policy.Max == 0 || size < p.policy.Max) || c.spare && size < p.policy.World
		apart := func(other *candidate) bool { return !c.isPaired(other.node.ID) }
		fits := func() bool { return p.Topology.CheckDistance(size+1) == nil }
		if c.confirmed && len(c.lost) == 0 && room && !(isFull && slices.ContainsFunc(enter, apart)) && fits() {
			enter = append(enter, c)
		}
	}
	if isFull {
		enter = confirmedOf(stay, enter)
	} else {
		enter = p.neighborsConfirmed(stay, enter)
	}
	for _, c := range enter {
		nodes = append(nodes, c.node.clone())
	}
	return nodes
}

// again makes a candidate eligible for another invitation.
func (p *PendingJoins) again(c *candidate) {
	c.linked, c.confirmed, c.missing, c.peers = false, false, time.Time{}, nil
	clear(c.lost)
	clear(c.reports)
	clear(c.claims)
	for _, other := range p.list {
		delete(other.reports, c.node.ID)
		delete(other.claims, c.node.ID)
	}
}

// enter removes the candidates that have entered the world. gone reports whether a node
// has left or lost its connection: a node that was removed for another reason after a
// single view counts as a failure.
func (p *PendingJoins) enter(v View, gone func(id NodeID) bool) {
	in := func(id NodeID) bool { _, ok := v.Rank(id); return ok }
	for id, origin := range p.entered {
		if in(id) {
			p.failures.succeed(id, origin)
		} else if !gone(id) {
			p.failures.fail(p.ticked, id, origin)
		}
	}
	clear(p.entered)
	for _, c := range p.list {
		if in(c.node.ID) {
			p.entered[c.node.ID] = c.origin
		}
	}
	p.list = slices.DeleteFunc(p.list, func(c *candidate) bool { return in(c.node.ID) })
	for _, c := range p.list {
		gone := func(id NodeID, _ struct{}) bool { return !in(id) && p.find(id) == nil }
		maps.DeleteFunc(c.reports, gone)
		maps.DeleteFunc(c.claims, gone)
	}
}

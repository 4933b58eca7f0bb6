package membership

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// linkTimeout is how long a candidate may take to link itself to the world.
	linkTimeout = 45 * time.Second
	// confirmTimeout is how long the nodes that would watch a candidate may take to
	// confirm its links, when it says that they stand.
	confirmTimeout = 5 * time.Second
	// unlinkedTimeout is how long a candidate may have lost a node that the world
	// has not.
	unlinkedTimeout = time.Second
	// stallTimeout is how long an invited candidate holds up the next one.
	stallTimeout = time.Second
	// waitingMax is how many candidates may wait.
	waitingMax = 1024
)

// A Policy says which nodes a formed world admits.
type Policy struct {
	// World is the size with which it forms, up to which spares replace nodes that
	// have gone.
	World int
	// Elastic lets other candidates in, until there are Max nodes; 0 is without
	// limit.
	Elastic bool
	Max     int
	// Min is how many nodes a view has at least: the Arbiter waits for candidates
	// rather than make a smaller one.
	Min int
}

// PendingJoins keeps the candidates for a world that has formed. Each is invited to link
// itself to all nodes of the world. It may enter when it says that it has, and when the
// nodes that would watch it confirm their ends of the links: its own word is not enough.
// Two candidates may enter together only if both confirm the link between them.
//
// Candidates are invited one after the other, so that each links itself to those before
// it. One that takes longer than stallTimeout is overtaken: as many may then be at it,
// plus one, as have been overtaken, so that candidates that never come through hold up
// others only for moments. They are dismissed in the end, and held off.
type PendingJoins struct {
	policy    Policy
	list      []*candidate // in the order of their arrival
	number    uint64       // of the last invitation
	stall     time.Duration
	failures  *holdoff
	ticked    time.Time         // the last time that is known
	entered   map[NodeID]string // origins of the nodes that entered with the newest view
	displaced map[NodeID]string // removed by Admit, and why
	forgotten []NodeID          // invited candidates that do not enter
}

// A candidate is a node among the PendingJoins.
type candidate struct {
	node    Node
	spare   bool
	origin  string
	circle  []NodeID  // nodes of the world that it was invited to link itself to; nil: it was not
	number  uint64    // of the invitation
	invited time.Time // when
	linked  bool      // as it says itself
	// confirmed is set by PendingJoins.confirm. It lists in lacks the nodes that have not confirmed
	// the links, and keeps in missing since when a linked candidate lacks some.
	confirmed bool
	lacks     []NodeID
	missing   time.Time
	proven    bool                // it was confirmed before
	lost      map[NodeID]loss     // lost links, by the other node
	reports   map[NodeID]struct{} // nodes that have a link to it, as these say
	claims    map[NodeID]struct{} // nodes that it has a link to, as it says, besides circle
}

// An Invitation asks a candidate to link itself to the nodes of a circle, the last
// of which it is. It takes the place of one before.
type Invitation struct {
	Number uint64 // higher than those before
	Node   Node
	World  int // how many of the circle are in the world, the first ones
	Circle []Node
}

// NewPendingJoins returns PendingJoins without candidates. Its invitations have numbers above
// after.
func NewPendingJoins(t Policy, after uint64) *PendingJoins {
	return &PendingJoins{
		policy: t, number: after, stall: stallTimeout, failures: newHoldoff(),
		entered: make(map[NodeID]string), displaced: make(map[NodeID]string),
	}
}

// Admit lets a candidate wait. Origin says where it comes from, for nodes that cannot
// choose it: an address without a port; empty if that is unknown. The error says why it
// may not wait. If too many wait, one from the origin with the most of them has to go.
func (p *PendingJoins) Admit(n Node, wanted int, spare bool, origin string) error {
	switch {
	case !spare && !p.policy.Elastic:
		return fmt.Errorf("%w: the world of %d has formed, and is not elastic: it takes nobody else in", ErrOver, p.policy.World)
	case wanted != AnyRank:
		return fmt.Errorf("%w: %d; who comes to a world that has formed gets the next one", ErrRank, wanted)
	case p.find(n.ID) != nil:
		return fmt.Errorf("node %v: %w", n.ID, ErrReused)
	}
	if err := checkNode(n); err != nil {
		return err
	}
	if len(p.list) == waitingMax && !p.displace(origin) {
		return fmt.Errorf("%w: %d nodes wait for a place in it already", ErrFull, waitingMax)
	}
	p.list = append(p.list, &candidate{
		node: n.clone(), spare: spare, origin: origin,
		lost: make(map[NodeID]loss), reports: make(map[NodeID]struct{}), claims: make(map[NodeID]struct{}),
	})
	return nil
}

// displace removes the last unconfirmed candidate of the origin that has the most, if
// that has more than the given one would have. It reports whether it has.
func (p *PendingJoins) displace(origin string) bool {
	count := make(map[string]int)
	for _, c := range p.list {
		count[c.origin]++
	}
	for _, c := range slices.Backward(p.list) {
		if !c.confirmed && count[c.origin] > count[origin]+1 && !slices.ContainsFunc(p.list, func(o *candidate) bool { return count[o.origin] > count[c.origin] }) {
			p.displaced[c.node.ID] = fmt.Sprintf("%d nodes wait, %d of them from the same address as this one, and others have to have a place", waitingMax, count[c.origin])
			p.remove(c)
			return true
		}
	}
	return false
}

// Waiting is the number of candidates.
func (p *PendingJoins) Waiting() int { return len(p.list) }

func (p *PendingJoins) find(id NodeID) *candidate {
	if i := slices.IndexFunc(p.list, func(c *candidate) bool { return c.node.ID == id }); i >= 0 {
		return p.list[i]
	}
	return nil
}

// remove takes a candidate out that does not enter.
func (p *PendingJoins) remove(c *candidate) {
	if c.number > 0 {
		p.forgotten = append(p.forgotten, c.node.ID)
	}
	p.list = slices.DeleteFunc(p.list, func(other *candidate) bool { return other == c })
}

// fail is remove for a candidate that has not come through. It returns when the node
// may try again.
func (p *PendingJoins) fail(c *candidate) time.Time {
	p.remove(c)
	return p.failures.fail(p.ticked, c.node.ID, c.origin)
}

// Gone says that a node is gone, be it a candidate or one of the world. A candidate that
// was invited to link itself to a node of the world that is gone is invited again.
func (p *PendingJoins) Gone(id NodeID) (waited bool) {
	if c := p.find(id); c != nil {
		if c.circle == nil || c.spare && c.confirmed {
			p.remove(c)
		} else {
			p.fail(c)
		}
		waited = true
	}
	for _, c := range p.list {
		delete(c.lost, id)
		if waited { // A node of the world may yet stay, if the view would be too small.
			delete(c.reports, id)
			delete(c.claims, id)
		}
		if !c.linked && slices.Contains(c.circle, id) {
			c.circle = nil
		}
	}
	return waited
}

// invite invites the next candidate to a view, if it is its turn.
func (p *PendingJoins) invite(now time.Time, v View) *Invitation {
	next := p.next(now)
	if next == nil {
		return nil
	}
	p.again(next)
	circle := slices.Clone(v.Nodes)
	for _, c := range p.list {
		if c.confirmed {
			circle = append(circle, c.node)
		}
	}
	circle = append(circle, next.node)
	p.number++
	next.circle, next.number, next.invited = idsOf(v.Nodes), p.number, now
	return &Invitation{Number: p.number, Node: next.node.clone(), World: v.Size(), Circle: View{Nodes: circle}.clone().Nodes}
}

// next returns the candidate that is to be invited now, if any.
func (p *PendingJoins) next(now time.Time) *candidate {
	busy, stalled, proven := 0, 0, false
	trying := make(map[string]bool)
	for _, c := range p.list {
		switch {
		case c.circle == nil || c.confirmed:
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
		case c.circle != nil:
		case now.Before(p.failures.until(now, c.node.ID, c.origin)):
		case trying[c.origin] && p.failures.isSuspect(now, c.origin):
		case c.proven && proven: // One after the other, so that they are linked to each other.
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

// link says that a candidate has linked itself to the nodes of the world that an
// invitation named.
func (p *PendingJoins) link(id NodeID, number uint64) bool {
	c := p.find(id)
	if c == nil || c.linked || c.circle == nil || c.number != number {
		return false
	}
	c.linked = true
	clear(c.lost) // It was said of the links that it had before.
	return true
}

// unlink says that a candidate has lost a node of a view or another candidate, or
// cannot reach it. One that is not linked to the world yet has not been lost: it gives
// up the links that it had when it is invited again. Two candidates that have lost each
// other do not enter together, and that is all: neither is believed more than the other.
func (p *PendingJoins) unlink(now time.Time, v View, id, to NodeID, reason string) bool {
	c := p.find(id)
	if c == nil || c.circle == nil {
		return false
	}
	if _, in := v.Rank(to); !in {
		p.report(id, to, false)
		return false
	}
	if _, known := c.lost[to]; known {
		return false
	}
	c.lost[to] = loss{now, reason}
	return true
}

// deadline is when dismiss is due, or the next invitation.
func (p *PendingJoins) deadline() (due time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(due) {
			due, ok = t, true
		}
	}
	waits := false
	for _, c := range p.list {
		if at, late := c.deadline(); late {
			sooner(at)
		}
		if c.circle == nil {
			waits = true
			if at := p.failures.until(p.ticked, c.node.ID, c.origin); at.After(p.ticked) {
				sooner(at)
			}
		}
	}
	for _, c := range p.list {
		if at := c.invited.Add(p.stall); waits && c.circle != nil && !c.confirmed && at.After(p.ticked) {
			sooner(at)
		}
	}
	if len(p.displaced) > 0 {
		sooner(p.ticked)
	}
	return due, ok
}

func (c *candidate) deadline() (due time.Time, ok bool) {
	switch {
	case c.circle != nil && !c.linked:
		due, ok = c.invited.Add(linkTimeout), true
	case c.linked && !c.confirmed:
		due, ok = c.missing.Add(confirmTimeout), true
	}
	for _, lost := range c.lost {
		if at := lost.at.Add(unlinkedTimeout); !ok || at.Before(due) {
			due, ok = at, true
		}
	}
	return due, ok
}

// dismiss takes out candidates that have not linked themselves to the world in time, or
// not so that others confirm it, or that have lost a node of a view that is still there.
// It says why, and when they may try again.
func (p *PendingJoins) dismiss(now time.Time, v View) map[NodeID]string {
	out := p.displaced
	p.displaced = make(map[NodeID]string)
	for _, c := range slices.Clone(p.list) {
		due, ok := c.deadline()
		if !ok || now.Before(due) {
			continue
		}
		why := p.why(c, v)
		if wait := p.fail(c).Sub(now); wait > 0 {
			why += fmt.Sprintf("; the next attempt is held off for %v", wait)
		}
		out[c.node.ID] = why
	}
	return out
}

// close takes all candidates out.
func (p *PendingJoins) close(out map[NodeID]string) {
	for _, c := range p.list {
		out[c.node.ID] = "all nodes of the world are gone"
	}
	p.list, p.forgotten = nil, nil
}

// ready returns the candidates that would enter a world besides the nodes that stay in
// it, in the order of their arrival. A candidate that is linked, but not to all of these,
// is invited again: some were about to enter or go when it was invited.
func (p *PendingJoins) ready(stay View) (nodes []Node) {
	var enter []*candidate
	for _, c := range p.list {
		if c.linked && slices.ContainsFunc(stay.Nodes, func(n Node) bool { return !c.isLinkedTo(n.ID) }) {
			p.again(c)
		}
		size := stay.Size() + len(enter)
		room := p.policy.Elastic && !c.spare && (p.policy.Max == 0 || size < p.policy.Max) || c.spare && size < p.policy.World
		apart := func(other *candidate) bool { return !c.isPaired(other.node.ID) }
		if c.confirmed && len(c.lost) == 0 && room && !slices.ContainsFunc(enter, apart) {
			enter = append(enter, c)
		}
	}
	for _, c := range confirmedOf(stay, enter) {
		nodes = append(nodes, c.node.clone())
	}
	return nodes
}

// again has a candidate invited again.
func (p *PendingJoins) again(c *candidate) {
	c.linked, c.confirmed, c.missing, c.circle = false, false, time.Time{}, nil
	clear(c.lost)
	clear(c.reports)
	clear(c.claims)
	for _, other := range p.list {
		delete(other.reports, c.node.ID)
		delete(other.claims, c.node.ID)
	}
}

// enter removes the candidates that have entered the world. gone reports whether a node has
// left or has ended its connection: one that did neither, and was in the world for one view
// only, was removed and counts as a failure.
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

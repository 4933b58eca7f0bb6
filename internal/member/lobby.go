package member

import (
	"fmt"
	"slices"
	"time"
)

const (
	// linkTimeout is how long a candidate may take to link itself to the world.
	linkTimeout = 45 * time.Second
	// unlinkedTimeout is how long a candidate may have lost a node that the world
	// has not.
	unlinkedTimeout = time.Second
	// waitingMax is how many candidates may wait.
	waitingMax = 1024
)

// Terms say whom a world takes in once it has formed.
type Terms struct {
	// World is the size with which it forms, up to which spares replace nodes that
	// have gone.
	World int
	// Elastic lets other candidates in, until there are Max nodes; 0 is without
	// limit.
	Elastic bool
	Max     int
	// Min is how many nodes a view has at least: the Council waits for candidates
	// rather than make a smaller one.
	Min int
}

// A Lobby is where candidates wait for the world to take them in: each is
// invited, one after the other, to link itself to all nodes of the world and to the
// candidates before it. A Council that makes the next view takes those in that have
// done so.
type Lobby struct {
	terms  Terms
	list   []*candidate // in the order in which they came
	number uint64       // of the last invitation
}

// A candidate is a node in a Lobby.
type candidate struct {
	node    Node
	spare   bool
	circle  []NodeID  // whom it is linked to, or was invited to link itself to; nil: it was not
	number  uint64    // of the invitation
	invited time.Time // when
	linked  bool
	lost    map[NodeID]loss // links, by to whom
}

// An Invitation asks a candidate to link itself to the nodes of a circle, the last
// of which it is. It takes the place of one before.
type Invitation struct {
	Number uint64 // higher than those before
	Node   Node
	World  int // how many of the circle are in the world, the first ones
	Circle []Node
}

// NewLobby returns a Lobby in which nobody waits. Its invitations have numbers above
// after.
func NewLobby(t Terms, after uint64) *Lobby { return &Lobby{terms: t, number: after} }

// Admit lets a candidate wait. The error says why it may not.
func (l *Lobby) Admit(n Node, wanted int, spare bool) error {
	switch {
	case !spare && !l.terms.Elastic:
		return fmt.Errorf("%w: the world of %d has formed, and is not elastic: it takes nobody else in", ErrOver, l.terms.World)
	case wanted != AnyRank:
		return fmt.Errorf("%w: %d; who comes to a world that has formed gets the next one", ErrRank, wanted)
	case len(l.list) == waitingMax:
		return fmt.Errorf("%w: %d nodes wait for a place in it already", ErrFull, waitingMax)
	case l.find(n.ID) != nil:
		return fmt.Errorf("node %v: %w", n.ID, ErrReused)
	}
	if err := checkNode(n); err != nil {
		return err
	}
	l.list = append(l.list, &candidate{node: n.clone(), spare: spare, lost: make(map[NodeID]loss)})
	return nil
}

// Waiting is the number of candidates.
func (l *Lobby) Waiting() int { return len(l.list) }

func (l *Lobby) find(id NodeID) *candidate {
	if i := slices.IndexFunc(l.list, func(c *candidate) bool { return c.node.ID == id }); i >= 0 {
		return l.list[i]
	}
	return nil
}

// Gone says that a node is gone, be it a candidate or one of the world. Whoever
// was invited to link itself to it is invited again, to others.
func (l *Lobby) Gone(id NodeID) (waited bool) {
	i := slices.IndexFunc(l.list, func(c *candidate) bool { return c.node.ID == id })
	if i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
	}
	for _, c := range l.list {
		delete(c.lost, id)
		if !c.linked && slices.Contains(c.circle, id) {
			c.circle = nil
		}
	}
	return i >= 0
}

// invite invites the next candidate to a view, if none is at it.
func (l *Lobby) invite(now time.Time, v View) *Invitation {
	var next *candidate
	circle := slices.Clone(v.Nodes)
	for _, c := range l.list {
		switch {
		case c.linked:
			circle = append(circle, c.node)
		case c.circle != nil:
			return nil
		case next == nil:
			next = c
		}
	}
	if next == nil {
		return nil
	}
	circle = append(circle, next.node)
	l.number++
	next.circle, next.number, next.invited = idsOf(circle), l.number, now
	return &Invitation{Number: l.number, Node: next.node.clone(), World: v.Size(), Circle: View{Nodes: circle}.clone().Nodes}
}

func idsOf(nodes []Node) (ids []NodeID) {
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

// link says that a candidate has linked itself to all whom an invitation named.
func (l *Lobby) link(id NodeID, number uint64) bool {
	c := l.find(id)
	if c == nil || c.linked || c.circle == nil || c.number != number {
		return false
	}
	c.linked = true
	clear(c.lost) // It was said of the links that it had before.
	return true
}

// unlink says that a candidate has lost a node of a view or another candidate, or
// cannot reach it. One that is not linked to the world yet has not been lost: it
// gives up the links that it had when it is invited again. Nor does it matter what one
// has lost that is to be invited: these are links that it will make anew.
func (l *Lobby) unlink(now time.Time, v View, id, to NodeID, reason string) bool {
	c, other := l.find(id), l.find(to)
	if _, in := v.Rank(to); c == nil || c.circle == nil || !in && (other == nil || !other.linked) {
		return false
	}
	if _, known := c.lost[to]; known {
		return false
	}
	c.lost[to] = loss{now, reason}
	return true
}

// deadline is when dismiss is due.
func (l *Lobby) deadline() (due time.Time, ok bool) {
	for _, c := range l.list {
		if at, late := c.deadline(); late && (!ok || at.Before(due)) {
			due, ok = at, true
		}
	}
	return due, ok
}

func (c *candidate) deadline() (due time.Time, ok bool) {
	if c.circle != nil && !c.linked {
		due, ok = c.invited.Add(linkTimeout), true
	}
	for _, lost := range c.lost {
		if at := lost.at.Add(unlinkedTimeout); !ok || at.Before(due) {
			due, ok = at, true
		}
	}
	return due, ok
}

// dismiss takes out who has not linked itself to the world in time, or has lost
// one who is still there, and says why.
func (l *Lobby) dismiss(now time.Time, v View) map[NodeID]string {
	out := make(map[NodeID]string)
	for _, c := range slices.Clone(l.list) {
		due, ok := c.deadline()
		if !ok || now.Before(due) {
			continue
		}
		out[c.node.ID] = c.why(v)
		l.Gone(c.node.ID)
	}
	return out
}

// close takes all candidates out.
func (l *Lobby) close(out map[NodeID]string) {
	for _, c := range l.list {
		out[c.node.ID] = "all nodes of the world are gone"
	}
	l.list = nil
}

// why says which node a candidate has lost: the first by rank.
func (c *candidate) why(v View) string {
	for rank, n := range v.Nodes {
		if lost, ok := c.lost[n.ID]; ok {
			return fmt.Sprintf("it cannot reach rank %d %v: %s", rank, n, lost.reason)
		}
	}
	for _, id := range c.circle {
		if lost, ok := c.lost[id]; ok {
			return fmt.Sprintf("it cannot reach node %v, which joins too: %s", id, lost.reason)
		}
	}
	return fmt.Sprintf("it has not linked itself to all nodes of the world within %v", linkTimeout)
}

// ready are those who would enter a world besides those who stay in it, in the
// order in which they came. Whoever is not linked to all of them, because they were
// about to go when it was invited, is invited again, as are those that were invited to
// link themselves to it.
func (l *Lobby) ready(stay View) (nodes []Node) {
	size := stay.Size()
	for _, c := range l.list {
		if c.linked && slices.ContainsFunc(stay.Nodes, func(n Node) bool { return !slices.Contains(c.circle, n.ID) }) {
			l.again(c)
		}
		room := l.terms.Elastic && !c.spare && (l.terms.Max == 0 || size < l.terms.Max) || c.spare && size < l.terms.World
		if c.linked && len(c.lost) == 0 && room {
			nodes = append(nodes, c.node.clone())
			size++
		}
	}
	return nodes
}

// again has a candidate invited again.
func (l *Lobby) again(c *candidate) {
	c.linked, c.circle = false, nil
	clear(c.lost)
	for _, other := range l.list {
		if slices.Contains(other.circle, c.node.ID) {
			l.again(other)
		}
	}
}

// enter takes those out who have entered the world. Those who wait go on being linked
// to them, even if they came before them: to spares, as long as none is needed.
func (l *Lobby) enter(v View) {
	in := func(c *candidate) bool { _, ok := v.Rank(c.node.ID); return ok }
	for _, e := range l.list {
		for _, c := range l.list {
			if in(e) && !in(c) && c.linked && slices.Contains(e.circle, c.node.ID) {
				c.circle = append(c.circle, e.node.ID)
			}
		}
	}
	l.list = slices.DeleteFunc(l.list, in)
}

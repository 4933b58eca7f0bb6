package membership

import (
	"maps"
	"time"
)

// settle is the quiet time before a decision: nodes that die together are to go
// together.
const settle = 10 * time.Millisecond

// A Decision is what an Arbiter has decided.
type Decision struct {
	// Entries are for the log, in this order. The caller applies them, and calls
	// Adopt with the view that they make.
	Entries []Entry
	// Reasons say why each node goes that is in them, and Left which have left in
	// good order.
	Reasons map[NodeID]string
	Left    map[NodeID]bool
	// Invitation, if not nil, is for a candidate, and for all others of its
	// circle, who are to expect it.
	Invitation *Invitation
	// Dismissed are candidates who go, and why.
	Dismissed map[NodeID]string
	// Forgotten are candidates that others were told to expect, and that will not enter.
	Forgotten []NodeID
	// Call asks all nodes to come to rest, so that candidates can enter.
	Call bool
	// Held, if not 0, says that the next view would have too few nodes: so many.
	Held int
}

// An Arbiter decides who is in the next view of a world that has formed: which
// nodes go, by what the nodes say about their links to each other and by which
// of them it can reach itself, and which candidates of its PendingJoins enter.
//
// A link that is lost means that its two nodes can no longer be in one world.
// Those that the Arbiter has lost too go when it has heard nothing new for a
// moment: then all who have gone together are in one decision (Suresh et al.,
// "Stable and Consistent Membership at Scale with Rapid", USENIX ATC 2018). If it
// has lost neither of the two, it waits a while; then one that has not answered it
// since goes, and otherwise as few nodes as possible, so that all that stay are
// linked to each other: nodes that have only just entered before those that have the
// state of the program; and of two that live, the accused and not the accuser, because
// the accuser may have waited in vain. That works once for each accuser: the next
// time a tie decides against it (see cut).
//
// A node that only the Arbiter has lost stays until there is another reason for
// a new view, of which it would not hear.
//
// Candidates enter with the next view, whatever its reason. If there is none but
// that they wait, all nodes are asked to come to rest: to a point at which none of
// them has work for the others under way. There, nodes may also leave.
type Arbiter struct {
	view    View
	pending *PendingJoins
	lost    map[[2]NodeID]loss // by the reporter and the node that it has lost
	gone    map[NodeID]departure
	alive   map[NodeID]time.Time // when nodes were last alive for sure
	news    time.Time            // when something new was last heard

	fresh   map[NodeID]newcomer // nodes that have entered with this view, or lately
	strikes map[NodeID]int      // unconfirmed accusations that had another node removed
	rest    map[NodeID]bool     // nodes that are at rest, and whether they leave
	due     time.Time           // when all nodes have to be, if one is
	called  bool                // nodes were asked to
	held    bool                // there are too few for a view
}

// A loss is that of a link.
type loss struct {
	at     time.Time
	reason string
}

// A newcomer is a node that has entered lately.
type newcomer struct {
	at    time.Time           // when
	links map[NodeID]struct{} // nodes that had confirmed their links to it
}

// A departure is how a node ended its connection to the Arbiter.
type departure struct {
	left   bool // in good order
	reason string
}

// NewArbiter returns an Arbiter for a world that has formed. From then on the
// PendingJoins is its own, save for Admit, after which it is time for Tick.
func NewArbiter(v View, l *PendingJoins) *Arbiter {
	return &Arbiter{
		view: v.clone(), pending: l, lost: make(map[[2]NodeID]loss), gone: make(map[NodeID]departure), alive: make(map[NodeID]time.Time),
		rest: make(map[NodeID]bool), strikes: make(map[NodeID]int), fresh: make(map[NodeID]newcomer),
	}
}

// Lost says that a node has lost its link to another. It reports whether that is
// news: then it is time to ask both for a sign of life.
func (c *Arbiter) Lost(now time.Time, by, to NodeID, reason string) (news bool) {
	if _, gone := c.gone[to]; !gone && c.pending.unlink(now, c.view, by, to, reason) {
		c.held = false
		return true
	}
	link := [2]NodeID{by, to}
	if _, known := c.lost[link]; known || by == to || !c.has(by) || !c.has(to) {
		return false
	}
	c.lost[link] = loss{now, reason}
	c.news, c.held = now, false
	return true
}

// Gone says that a node has ended its connection to the Arbiter, if left in good
// order: then it has left the world.
func (c *Arbiter) Gone(now time.Time, id NodeID, left bool, reason string) {
	c.held = false
	if _, known := c.gone[id]; c.pending.Gone(id) || known || !c.has(id) {
		return
	}
	c.gone[id] = departure{left, reason}
	c.news = now
}

// Back says that a node whose connection to the Arbiter had ended has another one. It
// is too late if it has left in good order.
func (c *Arbiter) Back(now time.Time, id NodeID) {
	if d, gone := c.gone[id]; gone && !d.left {
		delete(c.gone, id)
	}
	c.held = false
	c.Heard(now, id)
}

// Missed is what a node may not have heard that had no connection for a while: which
// candidates are at linking themselves to the world, or have done so, and whether all
// nodes were called to rest.
func (c *Arbiter) Missed() (expect []Node, called bool) {
	for _, candidate := range c.pending.list {
		if candidate.circle != nil {
			expect = append(expect, candidate.node.clone())
		}
	}
	return expect, c.called
}

// Link says that a node has a link to a candidate, or a candidate to another, or that it
// has lost it. It reports whether that counts for anything.
func (c *Arbiter) Link(by, to NodeID, up bool) bool {
	if by == to || !c.pending.report(by, to, up) {
		return false
	}
	c.held = false
	return true
}

// Linked says that a candidate has linked itself to all nodes of the world that an
// invitation named, and reports whether that is the invitation that counts.
func (c *Arbiter) Linked(id NodeID, number uint64) bool {
	linked := c.pending.link(id, number)
	if linked {
		c.held = false
	}
	return linked
}

// Rest says that a node of the view with an epoch is at rest, and whether it leaves
// there. Nodes that are not within a time go, if that is more than 0; or, if these are
// most of them, those that are.
func (c *Arbiter) Rest(now time.Time, id NodeID, epoch uint64, leaves bool, within time.Duration) {
	if epoch != c.view.Epoch || !c.has(id) {
		return
	}
	c.held = false
	if len(c.rest) == 0 && within > 0 {
		c.due = now.Add(within)
	}
	c.rest[id] = leaves
}

// Heard says that a node has answered what it was asked then.
func (c *Arbiter) Heard(asked time.Time, id NodeID) {
	if c.has(id) && asked.After(c.alive[id]) {
		c.alive[id] = asked
	}
}

func (c *Arbiter) has(id NodeID) bool {
	_, ok := c.view.Rank(id)
	return ok
}

// Deadline is when Tick is due, and false if there is nothing to decide.
func (c *Arbiter) Deadline() (due time.Time, ok bool) {
	due, ok = c.pending.deadline()
	if at, soon := c.deadline(); soon && !c.held && (!ok || at.Before(due)) {
		return at, true
	}
	return due, ok
}

// deadline is when a new view is due.
func (c *Arbiter) deadline() (due time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(due) {
			due, ok = t, true
		}
	}
	settled := c.news.Add(settle)
	for _, d := range c.gone {
		if d.left {
			sooner(settled)
		}
	}
	for link, l := range c.lost {
		late := c.matures(link, l)
		if c.isGone(link) || late.Before(settled) {
			late = settled
		}
		sooner(late)
	}
	if c.isAtRest() {
		sooner(time.Time{})
	}
	if !c.due.IsZero() {
		sooner(c.due)
	}
	return due, ok
}

// isAtRest reports whether all nodes are that are not gone, and one at least.
func (c *Arbiter) isAtRest() bool {
	for _, n := range c.view.Nodes {
		_, gone := c.gone[n.ID]
		if _, rests := c.rest[n.ID]; !rests && !gone {
			return false
		}
	}
	return len(c.rest) > 0
}

// isGone reports whether one of the two nodes of a link is gone.
func (c *Arbiter) isGone(link [2]NodeID) bool {
	_, a := c.gone[link[0]]
	_, b := c.gone[link[1]]
	return a || b
}

// Tick decides, as far as it is time to. It is called again after a decision.
func (c *Arbiter) Tick(now time.Time) (r Decision, ok bool) {
	c.pending.confirm(now, c.view.without(func(id NodeID) bool { _, gone := c.gone[id]; return gone }))
	r.Dismissed = c.pending.dismiss(now, c.view)
	r.Forgotten, c.pending.forgotten = c.pending.forgotten, nil
	if due, ok := c.deadline(); ok && !now.Before(due) {
		c.change(now, &r)
		if len(r.Entries) > 0 {
			return r, true
		}
	}
	stay := c.view.without(func(id NodeID) bool { _, gone := c.gone[id]; return gone || r.Reasons[id] != "" })
	r.Reasons, r.Left = nil, nil
	if stay.Size() == 0 {
		c.pending.close(r.Dismissed)
		return r, len(r.Dismissed) > 0 || len(r.Forgotten) > 0
	}
	if enter := c.pending.ready(stay); len(enter) > 0 && !c.called {
		c.called, r.Call = true, true
	}
	r.Invitation = c.pending.invite(now, stay)
	return r, r.Invitation != nil || r.Call || len(r.Dismissed) > 0 || len(r.Forgotten) > 0 || r.Held > 0
}

// change makes the next view, unless that would be too small. Then there are
// reasons, but no entries.
func (c *Arbiter) change(now time.Time, r *Decision) {
	r.Reasons, r.Left = c.cut(now), make(map[NodeID]bool)
	for id, d := range c.gone {
		r.Reasons[id], r.Left[id] = d.reason, d.left
	}
	if !c.due.IsZero() && !now.Before(c.due) {
		c.removeLate(r)
	}
	if c.room(r) > 0 { // Otherwise those that want to leave stay until others come.
		c.letLeave(r)
	}
	for id := range r.Reasons {
		c.pending.Gone(id)
	}
	stay := c.view.without(func(id NodeID) bool { _, goes := r.Reasons[id]; return goes })
	size := stay.Size()
	var enter []Node
	if size > 0 { // Otherwise nobody is left who knows what the world has done.
		enter = c.pending.ready(stay)
	}
	if held := size > 0 && size+len(enter) < c.pending.policy.Min; held {
		if !c.held {
			r.Held = size + len(enter)
		}
		c.held = true
		return
	}
	c.held = false
	r.Entries = c.entries(r, enter)
}

// removeLate has those go that are not at rest, for whom others wait; or, if only a
// few rest, these.
func (c *Arbiter) removeLate(r *Decision) {
	stay := c.view.without(func(id NodeID) bool { _, goes := r.Reasons[id]; return goes })
	resting := 0
	for _, n := range stay.Nodes {
		if _, rests := c.rest[n.ID]; rests {
			resting++
		}
	}
	most := 2*resting >= stay.Size()
	for _, n := range stay.Nodes {
		_, rests := c.rest[n.ID]
		if rests == most {
			continue
		}
		r.Reasons[n.ID] = "it has not come to the checkpoint, at which others wait"
		if rests {
			r.Reasons[n.ID] = "it waits at a checkpoint, to which the others have not come"
		}
	}
}

// letLeave has those go that leave at rest.
func (c *Arbiter) letLeave(r *Decision) {
	for _, n := range c.view.Nodes {
		if _, goes := r.Reasons[n.ID]; !goes && c.rest[n.ID] {
			r.Reasons[n.ID], r.Left[n.ID] = "it left", true
		}
	}
}

// room is how many nodes the next view would have beyond the least, if those left
// that want to; or 1 if nobody would stay.
func (c *Arbiter) room(r *Decision) int {
	stay := c.view.without(func(id NodeID) bool { _, goes := r.Reasons[id]; return goes || c.rest[id] })
	if stay.Size() == 0 {
		return 1
	}
	return stay.Size() + len(c.pending.ready(stay)) - c.pending.policy.Min + 1
}

// entries are those of a decision.
func (c *Arbiter) entries(r *Decision, enter []Node) (entries []Entry) {
	fail, leave := Entry{Kind: Fail}, Entry{Kind: Leave}
	for _, n := range c.view.Nodes {
		if _, goes := r.Reasons[n.ID]; goes && r.Left[n.ID] {
			leave.IDs = append(leave.IDs, n.ID)
		} else if goes {
			fail.IDs = append(fail.IDs, n.ID)
		}
	}
	for _, e := range []Entry{fail, leave} {
		if len(e.IDs) > 0 {
			entries = append(entries, e)
		}
	}
	if len(enter) > 0 {
		entries = append(entries, Entry{Kind: Join, Nodes: enter})
	}
	if len(entries) == 0 {
		entries = []Entry{{Kind: Renew}}
	}
	return entries
}

// Adopt goes on with the next view.
func (c *Arbiter) Adopt(v View) {
	c.strike(v)
	now := c.pending.ticked // when this view was decided, or later
	maps.DeleteFunc(c.fresh, func(id NodeID, n newcomer) bool { return now.Sub(n.at) >= probation || !v.has(id) })
	for _, rank := range v.Without(c.view) {
		id := v.Nodes[rank].ID
		c.fresh[id] = newcomer{at: now, links: c.pending.reports(id)}
	}
	c.view = v.clone()
	c.pending.enter(v, func(id NodeID) bool { _, gone := c.gone[id]; return gone || c.rest[id] })
	c.rest, c.due, c.called, c.held = make(map[NodeID]bool), time.Time{}, false, false
	maps.DeleteFunc(c.strikes, func(id NodeID, _ int) bool { return !c.has(id) })
	maps.DeleteFunc(c.alive, func(id NodeID, _ time.Time) bool { return !c.has(id) })
	maps.DeleteFunc(c.gone, func(id NodeID, _ departure) bool { return !c.has(id) })
	maps.DeleteFunc(c.lost, func(link [2]NodeID, _ loss) bool { return !c.has(link[0]) || !c.has(link[1]) })
}

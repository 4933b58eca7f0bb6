package membership

import (
	"fmt"
	"maps"
	"time"
)

// settle is the quiet time before a decision, so that nodes that die together are
// removed together.
const settle = patience / 20

// A Decision is the result of [Arbiter.Tick].
type Decision struct {
	// Entries are changes for the log, in this order. The caller has them committed,
	// applies them and calls Adopt with the resulting view.
	Entries []Entry
	// Reasons maps each node that these entries remove to the reason. Left contains those that
	// have left by a goodbye.
	Reasons map[NodeID]string
	Left    map[NodeID]bool
	// Excluded contains the removed nodes that others have excluded.
	Excluded map[NodeID]bool
	// Invitation, if not nil, is for a candidate. It is announced to the other nodes in it.
	Invitation *Invitation
	// Dismissed maps candidates that are removed to the reason.
	Dismissed map[NodeID]string
	// Forgotten are announced candidates that will not enter.
	Forgotten []NodeID
	// Confirmed are candidates with links that the nodes of the view have confirmed since the last Tick. They enter when
	// there is room.
	Confirmed []NodeID
	// Quiesce asks all nodes to quiesce, so that candidates can enter.
	Quiesce bool
	// TooFew, if not 0, is the number of nodes of the next view, which is below the minimum.
	TooFew int
}

// An Arbiter decides which nodes are in the next view of a formed world: which nodes are
// removed, by the reports of nodes about their links and its own connections to them, and which
// candidates of its [PendingJoins] enter.
//
// The two nodes of a lost link cannot stay in one world. If the Arbiter has lost one of them
// too, that node is removed after a quiet time, so that nodes that fail together are removed by
// one decision (Suresh et al., "Stable and Consistent Membership at Scale with Rapid", USENIX
// ATC 2018). If it has lost neither, it waits longer. Then a node that has not answered since
// is removed, and otherwise the smallest set of nodes such that all others are linked to each
// other. Newcomers are removed before nodes that have the state of the program. Of two live
// nodes the accused is removed and not the accuser, which may have waited in vain. An
// unconfirmed accusation is a strike: the next tie is decided against the accuser (see cut).
//
// A node that only the Arbiter has lost stays until there is another reason for a new view. A node whose place a candidate takes is
// removed, even if it lives.
//
// Candidates enter with the next view for any reason. If they are the only reason, all
// nodes are asked to quiesce: to reach a point at which none has outstanding work for the
// others. There, nodes may also leave.
type Arbiter struct {
	view    View
	pending *PendingJoins
	lost    map[[2]NodeID]loss // by the reporter and the node that it has lost
	gone    map[NodeID]departure
	alive   map[NodeID]time.Time // time at which each node was last known to be alive
	news    time.Time            // time of the last news

	newcomers map[NodeID]newcomer // nodes on probation
	strikes   map[NodeID]int      // unconfirmed accusations that have removed another node
	quiesced  map[NodeID]bool     // quiesced nodes, and whether they leave
	due       time.Time           // deadline for all nodes to quiesce, once one has
	called    bool                // nodes were asked to quiesce
	held      bool                // the next view has too few nodes
	grace     time.Time           // until then no node counts as silent (Resumed)
}

// A loss is a report of a lost link.
type loss struct {
	at       time.Time
	reason   string
	excluded bool // by the wish of the program
	resumes  int  // how often the wait for answers has begun again
}

// A newcomer is a node on probation.
type newcomer struct {
	at    time.Time           // time of entry
	links map[NodeID]struct{} // nodes that had confirmed their links to it
}

// A departure describes the end of a node's connection to the Arbiter.
type departure struct {
	left   bool // by a goodbye
	fenced bool // a candidate has taken its place
	reason string
}

// NewArbiter returns an Arbiter for a formed world. It owns the PendingJoins from then
// on: the caller uses only Admit, and then calls Tick.
func NewArbiter(v View, l *PendingJoins) *Arbiter {
	return &Arbiter{
		view: v.clone(), pending: l, lost: make(map[[2]NodeID]loss), gone: make(map[NodeID]departure), alive: make(map[NodeID]time.Time),
		quiesced: make(map[NodeID]bool), strikes: make(map[NodeID]int), newcomers: make(map[NodeID]newcomer),
	}
}

// Lost reports that a node has lost its link to another. It returns whether that is new; the
// caller then pings both.
func (a *Arbiter) Lost(now time.Time, by, to NodeID, reason string) (news bool) {
	if _, gone := a.gone[to]; !gone && a.pending.unlink(now, a.view, by, to, reason) {
		a.held = false
		return true
	}
	link := [2]NodeID{by, to}
	if _, known := a.lost[link]; known || by == to || !a.has(by) || !a.has(to) {
		return false
	}
	a.lost[link] = loss{at: now, reason: reason}
	a.news, a.held = now, false
	return true
}

// Exclude reports that the program of a node excludes another node. That counts as a lost link:
// one node alone cannot exclude several.
func (a *Arbiter) Exclude(now time.Time, by, to NodeID) (news bool) {
	news = a.Lost(now, by, to, "it has excluded that rank")
	link := [2]NodeID{by, to}
	if l, ok := a.lost[link]; ok {
		l.excluded = true
		a.lost[link] = l
	}
	return news
}

// Gone reports that the connection of a node to the Arbiter has ended. If that was in
// good order, the node has left the world.
func (a *Arbiter) Gone(now time.Time, id NodeID, left bool, reason string) {
	a.held = false
	if _, known := a.gone[id]; a.pending.Gone(id) || known || !a.has(id) {
		return
	}
	a.gone[id] = departure{left: left, reason: reason}
	a.news = now
}

// Reconnected reports that a node has a new connection to the Arbiter. It has no effect
// if the node has left by a goodbye, or has lost its place.
func (a *Arbiter) Reconnected(now time.Time, id NodeID) {
	if d, gone := a.gone[id]; gone && !d.left && !d.fenced {
		delete(a.gone, id)
	}
	a.held = false
	a.Heard(now, id)
}

// Missed returns the messages for a node that had no connection for a while: the announced
// candidates, and whether all nodes were asked to quiesce.
func (a *Arbiter) Missed() (expect []Node, called bool) {
	for _, candidate := range a.pending.list {
		if candidate.peers != nil {
			expect = append(expect, candidate.node.clone())
		}
	}
	return expect, a.called
}

// Link reports that a node has or has lost a link to a candidate, or a candidate to
// another. It returns whether the report counts.
func (a *Arbiter) Link(by, to NodeID, up bool) bool {
	if by == to || !a.pending.report(by, to, up) {
		return false
	}
	a.held = false
	return true
}

// Linked reports that a candidate has the links that the invitation with a number asks for. It returns whether that is the latest invitation.
func (a *Arbiter) Linked(id NodeID, number uint64) bool {
	linked := a.pending.link(id, number)
	if linked {
		a.held = false
	}
	return linked
}

// Quiesced reports that a node of the view with an epoch has quiesced, and whether it
// leaves. If within is positive, the nodes that have not quiesced by then are removed,
// or those that have if these are the minority.
func (a *Arbiter) Quiesced(now time.Time, id NodeID, epoch uint64, leaves bool, within time.Duration) {
	if epoch != a.view.Epoch || !a.has(id) {
		return
	}
	a.held = false
	if len(a.quiesced) == 0 && within > 0 {
		a.due = now.Add(within)
	}
	a.quiesced[id] = leaves
}

// Heard reports that a node has answered a ping that was sent at the given time.
func (a *Arbiter) Heard(asked time.Time, id NodeID) {
	if a.has(id) && asked.After(a.alive[id]) {
		a.alive[id] = asked
	}
}

func (a *Arbiter) has(id NodeID) bool {
	_, ok := a.view.Rank(id)
	return ok
}

// Deadline returns when Tick is due, and false if there is nothing to decide.
func (a *Arbiter) Deadline() (due time.Time, ok bool) {
	due, ok = a.pending.deadline(a.alive)
	if at, soon := a.deadline(); soon && !a.held && (!ok || at.Before(due)) {
		return at, true
	}
	return due, ok
}

// deadline returns when a new view is due.
func (a *Arbiter) deadline() (due time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(due) {
			due, ok = t, true
		}
	}
	settled := a.news.Add(settle)
	for _, d := range a.gone {
		if d.left || d.fenced {
			sooner(settled)
		}
	}
	for link, l := range a.lost {
		late := a.matures(link, l)
		if a.isGone(link) || late.Before(settled) {
			late = settled
		}
		sooner(late)
	}
	if a.isQuiesced() {
		sooner(time.Time{})
	}
	if !a.due.IsZero() {
		sooner(a.due)
	}
	return due, ok
}

// isQuiesced reports whether all nodes that are not gone have quiesced, and there is
// one.
func (a *Arbiter) isQuiesced() bool {
	for _, n := range a.view.Nodes {
		_, gone := a.gone[n.ID]
		if _, hasQuiesced := a.quiesced[n.ID]; !hasQuiesced && !gone {
			return false
		}
	}
	return len(a.quiesced) > 0
}

// isGone reports whether a node of a link is gone.
func (a *Arbiter) isGone(link [2]NodeID) bool {
	_, first := a.gone[link[0]]
	_, second := a.gone[link[1]]
	return first || second
}

// Tick returns the decision that is due, if any. The caller calls it again after a
// decision.
func (a *Arbiter) Tick(now time.Time) (r Decision, ok bool) {
	a.fence(now)
	a.pending.confirm(now, a.view.without(func(id NodeID) bool { _, gone := a.gone[id]; return gone }))
	r.Dismissed = a.pending.dismiss(now, a.view, a.alive)
	r.Forgotten, a.pending.forgotten = a.pending.forgotten, nil
	r.Confirmed, a.pending.newly = a.pending.newly, nil
	if due, ok := a.deadline(); ok && !now.Before(due) {
		a.change(now, &r)
		if len(r.Entries) > 0 {
			return r, true
		}
	}
	stay := a.view.without(func(id NodeID) bool { _, gone := a.gone[id]; return gone || r.Reasons[id] != "" })
	r.Reasons, r.Left, r.Excluded = nil, nil, nil
	if stay.Size() == 0 {
		a.pending.close(r.Dismissed)
		return r, len(r.Dismissed) > 0 || len(r.Forgotten) > 0 || len(r.Confirmed) > 0
	}
	if enter := a.pending.ready(stay); len(enter) > 0 && !a.called {
		a.called, r.Quiesce = true, true
	}
	r.Invitation = a.pending.invite(now, stay)
	return r, r.Invitation != nil || r.Quiesce || len(r.Dismissed) > 0 || len(r.Forgotten) > 0 || len(r.Confirmed) > 0 || r.TooFew > 0
}

// fence makes a node gone if a candidate takes its place.
func (a *Arbiter) fence(now time.Time) {
	for _, c := range a.pending.list {
		for _, n := range a.view.Nodes {
			if d := a.gone[n.ID]; c.node.Succeeds(n) && !d.left && !d.fenced {
				a.Gone(now, n.ID, false, "")
				a.gone[n.ID], a.news = departure{fenced: true, reason: taken(n.Place, c.node)}, now
			}
		}
	}
}

// taken is the reason of the removal of a node after another one has taken its place.
func taken(place string, by Node) string {
	return fmt.Sprintf("%v has taken its place %s on another host", by, place)
}

// change fills in the entries of the next view. If that would have too few nodes, it
// fills in the reasons alone.
func (a *Arbiter) change(now time.Time, r *Decision) {
	r.Reasons, r.Left, r.Excluded = a.cut(now), make(map[NodeID]bool), make(map[NodeID]bool)
	for id := range r.Reasons {
		if rank, is := a.excluder(id); is {
			r.Reasons[id], r.Excluded[id] = fmt.Sprintf("rank %d has excluded it", rank), true
		}
	}
	for id, d := range a.gone {
		r.Reasons[id], r.Left[id] = d.reason, d.left
	}
	if !a.due.IsZero() && !now.Before(a.due) {
		a.removeLate(r)
	}
	if a.room(r) > 0 { // Otherwise leaving nodes wait for others.
		a.removeLeaving(r)
	}
	for id := range r.Reasons {
		a.pending.Gone(id)
	}
	stay := a.view.without(func(id NodeID) bool { _, goes := r.Reasons[id]; return goes })
	size := stay.Size()
	var enter []Node
	if size > 0 { // Otherwise no node with the state of the world is left.
		enter = a.pending.ready(stay)
	}
	if held := size > 0 && size+len(enter) < a.pending.policy.Min; held {
		if !a.held {
			r.TooFew = size + len(enter)
		}
		a.held = true
		return
	}
	a.held = false
	r.Entries = a.entries(r, enter)
}

// removeLate removes the nodes that have not quiesced, or the others if these are the minority.
func (a *Arbiter) removeLate(r *Decision) {
	stay := a.view.without(func(id NodeID) bool { _, goes := r.Reasons[id]; return goes })
	quiesced := 0
	for _, n := range stay.Nodes {
		if _, hasQuiesced := a.quiesced[n.ID]; hasQuiesced {
			quiesced++
		}
	}
	most := 2*quiesced >= stay.Size()
	for _, n := range stay.Nodes {
		_, hasQuiesced := a.quiesced[n.ID]
		if hasQuiesced == most {
			continue
		}
		r.Reasons[n.ID] = "it has not called Node.Reconfigure, in which the other nodes wait"
		if hasQuiesced {
			r.Reasons[n.ID] = "it waits in Node.Reconfigure, which the other nodes have not called"
		}
	}
}

// removeLeaving removes the quiesced nodes that leave.
func (a *Arbiter) removeLeaving(r *Decision) {
	for _, n := range a.view.Nodes {
		if _, goes := r.Reasons[n.ID]; !goes && a.quiesced[n.ID] {
			r.Reasons[n.ID], r.Left[n.ID] = "it left", true
		}
	}
}

// room returns the surplus of the next view over the minimum if all leaving nodes leave, or 1
// if no node would stay.
func (a *Arbiter) room(r *Decision) int {
	stay := a.view.without(func(id NodeID) bool { _, goes := r.Reasons[id]; return goes || a.quiesced[id] })
	if stay.Size() == 0 {
		return 1
	}
	return stay.Size() + len(a.pending.ready(stay)) - a.pending.policy.Min + 1
}

// entries returns the entries of a decision.
func (a *Arbiter) entries(r *Decision, enter []Node) (entries []Entry) {
	fail, leave := Entry{Kind: Fail}, Entry{Kind: Leave}
	for _, n := range a.view.Nodes {
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

// Adopt continues with the next view.
func (a *Arbiter) Adopt(v View) {
	a.strike(v)
	now := a.pending.ticked // when this view was decided, or later
	maps.DeleteFunc(a.newcomers, func(id NodeID, n newcomer) bool { return now.Sub(n.at) >= probation || !v.has(id) })
	for _, rank := range v.Without(a.view) {
		id := v.Nodes[rank].ID
		a.newcomers[id] = newcomer{at: now, links: a.pending.reports(id)}
	}
	a.view = v.clone()
	a.pending.enter(v, func(id NodeID) bool { _, gone := a.gone[id]; return gone || a.quiesced[id] })
	a.quiesced, a.due, a.called, a.held = make(map[NodeID]bool), time.Time{}, false, false
	maps.DeleteFunc(a.strikes, func(id NodeID, _ int) bool { return !a.has(id) })
	maps.DeleteFunc(a.alive, func(id NodeID, _ time.Time) bool { return !a.has(id) })
	maps.DeleteFunc(a.gone, func(id NodeID, _ departure) bool { return !a.has(id) })
	maps.DeleteFunc(a.lost, func(link [2]NodeID, _ loss) bool { return !a.has(link[0]) || !a.has(link[1]) })
}

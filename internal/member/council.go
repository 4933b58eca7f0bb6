package member

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// settle is how long nothing new is heard before a Council decides: nodes
	// that die together are to go together.
	settle = 10 * time.Millisecond
	// patience is how long a Council waits for the end of one of two nodes that
	// have lost each other, or for signs of life of both.
	patience = 200 * time.Millisecond
)

// A Ruling is what a Council has decided: an entry for the log, and why each
// node in it goes.
type Ruling struct {
	Entry   Entry
	Reasons map[NodeID]string
}

// A Council decides which nodes go from a world that has formed, by what the
// nodes say about their links to each other and by which of them it can reach
// itself.
//
// A link that is lost means that its two nodes can no longer be in one world.
// Those that the Council has lost too go when it has heard nothing new for a
// moment: then all who have gone together are in one ruling (Suresh et al.,
// "Stable and Consistent Membership at Scale with Rapid", USENIX ATC 2018). If it
// has lost neither of the two, it waits a while; then one that has not answered it
// since goes, and otherwise as few nodes as it finds, so that all who stay are
// linked to each other.
//
// A node that only the Council has lost stays until there is another reason for
// a new view, of which it would not hear.
type Council struct {
	view  View
	lost  map[[2]NodeID]loss // links, by who has lost them and to whom
	gone  map[NodeID]departure
	alive map[NodeID]time.Time // when nodes were last alive for sure
	news  time.Time            // when something new was last heard
}

// A loss is that of a link.
type loss struct {
	at     time.Time
	reason string
}

// A departure is how a node ended its connection to the Council.
type departure struct {
	left   bool // in good order
	reason string
}

// NewCouncil returns a Council for a world that has formed.
func NewCouncil(v View) *Council {
	return &Council{
		view: v.clone(), lost: make(map[[2]NodeID]loss), gone: make(map[NodeID]departure), alive: make(map[NodeID]time.Time),
	}
}

// Lost says that a node has lost its link to another. It reports whether that is
// news: then it is time to ask both for a sign of life.
func (c *Council) Lost(now time.Time, by, to NodeID, reason string) (news bool) {
	link := [2]NodeID{by, to}
	if _, known := c.lost[link]; known || by == to || !c.has(by) || !c.has(to) {
		return false
	}
	c.lost[link] = loss{now, reason}
	c.news = now
	return true
}

// Gone says that a node has ended its connection to the Council, if left in good
// order: then it has left the world.
func (c *Council) Gone(now time.Time, id NodeID, left bool, reason string) {
	if _, known := c.gone[id]; known || !c.has(id) {
		return
	}
	c.gone[id] = departure{left, reason}
	c.news = now
}

// Heard says that a node has answered what it was asked then.
func (c *Council) Heard(asked time.Time, id NodeID) {
	if c.has(id) && asked.After(c.alive[id]) {
		c.alive[id] = asked
	}
}

func (c *Council) has(id NodeID) bool {
	_, ok := c.view.Rank(id)
	return ok
}

// Deadline is when Tick is due, and false if there is nothing to decide.
func (c *Council) Deadline() (due time.Time, ok bool) {
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
		late := l.at.Add(patience)
		if c.isGone(link) || late.Before(settled) {
			late = settled
		}
		sooner(late)
	}
	return due, ok
}

// isGone reports whether one of the two nodes of a link is gone.
func (c *Council) isGone(link [2]NodeID) bool {
	_, a := c.gone[link[0]]
	_, b := c.gone[link[1]]
	return a || b
}

// Tick decides, if it is time to. The caller applies the entry, and calls Adopt
// with the view that it makes.
func (c *Council) Tick(now time.Time) (r Ruling, ok bool) {
	if due, ok := c.Deadline(); !ok || now.Before(due) {
		return r, false
	}
	r.Entry.Kind, r.Reasons = Leave, c.cut(now)
	if len(r.Reasons) > 0 {
		r.Entry.Kind = Fail
	}
	for id, d := range c.gone {
		r.Reasons[id] = d.reason
		if !d.left {
			r.Entry.Kind = Fail
		}
	}
	for _, n := range c.view.Nodes {
		if _, goes := r.Reasons[n.ID]; goes {
			r.Entry.IDs = append(r.Entry.IDs, n.ID)
		}
	}
	return r, true
}

// cut is who has to go, besides those that are gone, for all others to be linked
// to each other, as far as that has waited long enough, and why: again and again
// the worst of those that have lost links.
func (c *Council) cut(now time.Time) map[NodeID]string {
	links := maps.Clone(c.lost)
	maps.DeleteFunc(links, func(link [2]NodeID, _ loss) bool { return c.isGone(link) })
	out := make(map[NodeID]string)
	for {
		others := make(map[NodeID]map[NodeID]bool) // whom each is not linked to
		candidates := make(map[NodeID]bool)
		for link, l := range links {
			for i, id := range link {
				if others[id] == nil {
					others[id] = make(map[NodeID]bool)
				}
				others[id][link[1-i]] = true
				if !now.Before(l.at.Add(patience)) {
					candidates[id] = true
				}
			}
		}
		if len(candidates) == 0 {
			return out
		}
		worst := slices.MaxFunc(slices.Collect(maps.Keys(candidates)), func(a, b NodeID) int {
			x, _ := c.view.Rank(a)
			y, _ := c.view.Rank(b)
			return cmp.Or(cmp.Compare(c.silence(a, now), c.silence(b, now)), cmp.Compare(len(others[a]), len(others[b])), cmp.Compare(x, y))
		})
		out[worst] = c.why(worst, links)
		maps.DeleteFunc(links, func(link [2]NodeID, _ loss) bool { return link[0] == worst || link[1] == worst })
	}
}

// silence is 1 if a node has answered nothing that it was asked since one of its
// links was lost that has waited long enough, and otherwise 0.
func (c *Council) silence(id NodeID, now time.Time) int {
	for link, l := range c.lost {
		if (link[0] == id || link[1] == id) && !now.Before(l.at.Add(patience)) && c.alive[id].Before(l.at) {
			return 1
		}
	}
	return 0
}

// why says which links a node has lost: what the first of the others, by rank,
// says of it, or if none does, what it says itself.
func (c *Council) why(id NodeID, links map[[2]NodeID]loss) string {
	for rank, n := range c.view.Nodes {
		if l, ok := links[[2]NodeID{n.ID, id}]; ok {
			return fmt.Sprintf("rank %d has lost it: %s", rank, l.reason)
		}
	}
	for rank, n := range c.view.Nodes {
		if l, ok := links[[2]NodeID{id, n.ID}]; ok {
			return fmt.Sprintf("it has lost rank %d: %s", rank, l.reason)
		}
	}
	return ""
}

// Adopt goes on with the next view.
func (c *Council) Adopt(v View) {
	c.view = v.clone()
	maps.DeleteFunc(c.alive, func(id NodeID, _ time.Time) bool { return !c.has(id) })
	maps.DeleteFunc(c.gone, func(id NodeID, _ departure) bool { return !c.has(id) })
	maps.DeleteFunc(c.lost, func(link [2]NodeID, _ loss) bool { return !c.has(link[0]) || !c.has(link[1]) })
}

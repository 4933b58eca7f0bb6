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
	// patience is how long a Council waits for the end of a node that others
	// have lost, and that it can still reach itself.
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
// Nodes that the Council has lost too are those to go; and if it can reach both,
// it lets as few nodes go as it finds, so that all who stay are linked to each
// other. It decides when it has heard nothing new for a moment: then all who
// have gone together are in one ruling (Suresh et al., "Stable and Consistent
// Membership at Scale with Rapid", USENIX ATC 2018).
//
// A node that only the Council has lost stays until there is another reason for
// a new view, of which it would not hear.
type Council struct {
	view  View
	lost  map[[2]NodeID]string // links, by who has lost them and to whom; why
	gone  map[NodeID]departure
	heard time.Time // when something new was last heard
	since time.Time // when the first of it was
}

// A departure is how a node ended its connection to the Council.
type departure struct {
	left   bool // in good order
	reason string
}

// NewCouncil returns a Council for a world that has formed.
func NewCouncil(v View) *Council {
	return &Council{view: v.clone(), lost: make(map[[2]NodeID]string), gone: make(map[NodeID]departure)}
}

// Lost says that a node has lost its link to another.
func (c *Council) Lost(now time.Time, by, to NodeID, reason string) {
	link := [2]NodeID{by, to}
	if _, known := c.lost[link]; known || by == to || !c.has(by) || !c.has(to) {
		return
	}
	c.lost[link] = reason
	c.hear(now)
}

// Gone says that a node has ended its connection to the Council, if Left in good
// order: then it has left the world.
func (c *Council) Gone(now time.Time, id NodeID, left bool, reason string) {
	if _, known := c.gone[id]; known || !c.has(id) {
		return
	}
	c.gone[id] = departure{left, reason}
	if left || c.accused(id) {
		c.hear(now)
	}
}

func (c *Council) has(id NodeID) bool {
	_, ok := c.view.Rank(id)
	return ok
}

func (c *Council) hear(now time.Time) {
	if c.heard.IsZero() {
		c.since = now
	}
	c.heard = now
}

// accused reports whether somebody has lost the link to a node.
func (c *Council) accused(id NodeID) bool {
	for link := range c.lost {
		if link[1] == id {
			return true
		}
	}
	return false
}

// Deadline is when Tick is due, and false if there is nothing to decide.
func (c *Council) Deadline() (time.Time, bool) {
	if c.heard.IsZero() {
		return time.Time{}, false
	}
	due := c.heard.Add(settle)
	if late := c.since.Add(patience); c.waits() && due.Before(late) {
		due = late
	}
	return due, true
}

// waits reports whether of two nodes with a lost link between them none has
// gone yet.
func (c *Council) waits() bool {
	for link := range c.lost {
		_, a := c.gone[link[0]]
		_, b := c.gone[link[1]]
		if !a && !b {
			return true
		}
	}
	return false
}

// Tick decides, if it is time to. The caller applies the entry, and calls Adopt
// with the view that it makes.
func (c *Council) Tick(now time.Time) (r Ruling, ok bool) {
	if due, ok := c.Deadline(); !ok || now.Before(due) {
		return r, false
	}
	r.Reasons = make(map[NodeID]string)
	kind := Leave
	for id, d := range c.gone {
		r.Reasons[id] = d.reason
		if !d.left {
			kind = Fail
		}
	}
	for id, reason := range c.cut(r.Reasons) {
		r.Reasons[id] = reason
		kind = Fail
	}
	r.Entry = Entry{Kind: kind}
	for _, n := range c.view.Nodes {
		if _, goes := r.Reasons[n.ID]; goes {
			r.Entry.IDs = append(r.Entry.IDs, n.ID)
		}
	}
	c.heard = time.Time{}
	return r, len(r.Entry.IDs) > 0
}

// cut is who has to go, besides those that do, for all others to be linked to
// each other: again and again the node with the most lost links, of several the
// one with the highest rank.
func (c *Council) cut(going map[NodeID]string) map[NodeID]string {
	links := maps.Clone(c.lost)
	out := make(map[NodeID]string)
	maps.DeleteFunc(links, func(link [2]NodeID, _ string) bool { return isIn(going, link[0]) || isIn(going, link[1]) })
	for len(links) > 0 {
		others := make(map[NodeID]map[NodeID]bool) // whom each is not linked to
		for link := range links {
			for i, id := range link {
				if others[id] == nil {
					others[id] = make(map[NodeID]bool)
				}
				others[id][link[1-i]] = true
			}
		}
		worst := slices.MaxFunc(slices.Collect(maps.Keys(others)), func(a, b NodeID) int {
			x, _ := c.view.Rank(a)
			y, _ := c.view.Rank(b)
			return cmp.Or(cmp.Compare(len(others[a]), len(others[b])), cmp.Compare(x, y))
		})
		out[worst] = c.why(worst, links)
		maps.DeleteFunc(links, func(link [2]NodeID, _ string) bool { return link[0] == worst || link[1] == worst })
	}
	return out
}

// why says which links a node has lost: what the first of the others, by rank,
// says of it, or if none does, what it says itself.
func (c *Council) why(id NodeID, links map[[2]NodeID]string) string {
	for rank, n := range c.view.Nodes {
		if reason, ok := links[[2]NodeID{n.ID, id}]; ok {
			return fmt.Sprintf("rank %d has lost it: %s", rank, reason)
		}
	}
	for rank, n := range c.view.Nodes {
		if reason, ok := links[[2]NodeID{id, n.ID}]; ok {
			return fmt.Sprintf("it has lost rank %d: %s", rank, reason)
		}
	}
	return ""
}

func isIn(set map[NodeID]string, id NodeID) bool {
	_, ok := set[id]
	return ok
}

// Adopt goes on with the next view.
func (c *Council) Adopt(v View) {
	c.view = v.clone()
	maps.DeleteFunc(c.gone, func(id NodeID, _ departure) bool { return !c.has(id) })
	maps.DeleteFunc(c.lost, func(link [2]NodeID, _ string) bool { return !c.has(link[0]) || !c.has(link[1]) })
}

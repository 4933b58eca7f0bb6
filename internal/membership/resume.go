package membership

import "time"

// resumesMax is the number of times that a wait begins again: on a starved machine every turn of the caller may be late.
const resumesMax = 8

// Resumed reports that the caller was suspended: it has not read what the nodes have sent meanwhile, and they may have ended their
// connections to it. All waits of the Arbiter for nodes begin again, each resumesMax times at most. Until grace has passed, no node counts as silent, so
// that all can connect again: a node that another one has lost is removed only if it is gone, or if both have answered.
func (a *Arbiter) Resumed(now time.Time, grace time.Duration) {
	a.grace = lastOf(a.grace, now.Add(grace))
	for link, l := range a.lost {
		if l.resumes++; l.resumes <= resumesMax {
			l.at = now
		}
		a.lost[link] = l
	}
	if !a.due.IsZero() {
		a.due = lastOf(a.due, a.grace)
	}
	a.pending.resumed(now, a.grace)
}

// resumed is [Arbiter.Resumed] for the candidates.
func (p *PendingJoins) resumed(now, grace time.Time) {
	for _, c := range p.list {
		if c.resumes++; c.resumes > resumesMax {
			continue
		}
		c.invited = now
		if !c.missing.IsZero() {
			c.missing = grace
		}
		for id, l := range c.lost {
			l.at = grace
			c.lost[id] = l
		}
	}
}

// Accused reports whether another node has lost its link to a node.
func (a *Arbiter) Accused(id NodeID) bool {
	for link := range a.lost {
		if link[1] == id {
			return true
		}
	}
	return false
}

func lastOf(t, u time.Time) time.Time {
	if t.After(u) {
		return t
	}
	return u
}

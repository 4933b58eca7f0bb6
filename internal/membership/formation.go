package membership

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// AnyRank is the wanted rank of a candidate that takes any.
const AnyRank = -1

// Reasons of a refusal, besides ErrAddress and ErrReused.
var (
	ErrRank = errors.New("rank not available")
	ErrFull = errors.New("world is full")
	ErrOver = errors.New("formation is over")
)

// A Phase is the progress of a Formation.
type Phase uint8

const (
	Gathering  Phase = iota // waits for candidates
	Connecting              // all ranks are given, and the members connect to each other
	Formed                  // every member is connected to all others
	Failed                  // the world will not form
)

func (p Phase) String() string {
	names := [...]string{"gathering", "connecting", "formed", "failed"}
	if int(p) >= len(names) {
		return fmt.Sprintf("Phase(%d)", uint8(p))
	}
	return names[p]
}

// A Step is the effect of an input to a Formation.
type Step struct {
	Form     *Entry // the world is full: apply this entry and distribute the view
	Formed   bool   // the world has formed
	Err      error  // a [*NotFormedError]: why the world will not form
	Replaced NodeID // the candidate that has lost its place to its successor; zero: none
}

// A Formation brings a world together: it admits candidates until the world is full,
// gives them ranks, and waits until each is connected to all others. A candidate that
// goes away while others are awaited frees its place and may come again; once ranks are
// given, the formation fails.
//
// A member that goes away ends its links, and the others may report that they cannot reach it before it
// is known to be gone. So each report waits until the peer is believed to live (Believe) or is gone.
//
// After a Step with Formed or Err, no input changes anything.
type Formation struct {
	world    int
	started  time.Time
	deadline time.Time // zero: none
	phase    Phase
	err      error
	ranked   bool    // each rank is given
	places   []place // in the order of joining, and of the ranks once these are given
}

// A place is a candidate that was admitted.
type place struct {
	node      Node
	wanted    int
	ready     bool
	complaint *complaint // the first of this member
	asked     time.Time  // of the first report about this member that waits; zero: none does
}

// A complaint is the report of a member that it cannot reach a peer.
type complaint struct {
	peer   int // its index
	reason string
}

func isLate(p place) bool { return !p.ready || p.complaint != nil }

// NewFormation returns a Formation of the given number of nodes. It starts now and fails after
// timeout. 0 means no limit.
func NewFormation(world int, timeout time.Duration, now time.Time) (*Formation, error) {
	if world < 1 {
		return nil, fmt.Errorf("world of %d nodes: must be at least 1", world)
	}
	f := &Formation{world: world, started: now}
	if timeout > 0 {
		f.deadline = now.Add(timeout)
	}
	return f, nil
}

// ResumeFormation returns the Formation of a world with a first view that another seed has
// made. Unless the world has formed, its nodes must report Ready again.
func ResumeFormation(v View, formed bool, timeout time.Duration, now time.Time) *Formation {
	f := &Formation{world: v.Size(), started: now, phase: Connecting, ranked: true}
	if timeout > 0 {
		f.deadline = now.Add(timeout)
	}
	if formed {
		f.phase = Formed
	}
	for _, n := range v.clone().Nodes {
		f.places = append(f.places, place{node: n, wanted: AnyRank})
	}
	return f
}

// Admit gives a candidate a place. An error refuses this candidate alone.
func (f *Formation) Admit(now time.Time, n Node, wanted int) (Step, error) {
	if s := f.Tick(now); s.Err != nil {
		return s, f.Refuse(n, wanted)
	}
	if err := f.Refuse(n, wanted); err != nil {
		return Step{}, err
	}
	if i := f.holder(wanted); i >= 0 {
		old := f.places[i].node.ID
		f.places[i].node = n.clone()
		return Step{Replaced: old}, nil
	}
	f.places = append(f.places, place{node: n.clone(), wanted: wanted})
	if len(f.places) < f.world {
		return Step{}, nil
	}
	f.places, f.ranked = assign(f.places, f.world), true
	if err := f.checkHosts(); err != nil {
		return f.fail(err), nil
	}
	f.phase = Connecting
	entry := &Entry{Kind: Form}
	for _, p := range f.places {
		entry.Nodes = append(entry.Nodes, p.node.clone())
	}
	return Step{Form: entry}, nil
}

// Gone reports that a candidate or member is gone.
func (f *Formation) Gone(now time.Time, id NodeID, reason string) Step {
	if s := f.Tick(now); s.Err != nil {
		return s
	}
	i := f.index(id)
	if i < 0 {
		return Step{}
	}
	switch f.phase {
	case Gathering:
		f.places = slices.Delete(f.places, i, i+1)
	case Connecting:
		return f.fail(fmt.Errorf("%s went away before the world was formed: %s", f.describe(i), reason))
	}
	return Step{}
}

// Ready reports that a member is connected to all others.
func (f *Formation) Ready(now time.Time, id NodeID) Step {
	if s := f.Tick(now); s.Err != nil {
		return s
	}
	i := f.index(id)
	if i < 0 || f.phase != Connecting {
		return Step{}
	}
	f.places[i].ready = true
	if slices.ContainsFunc(f.places, isLate) {
		return Step{}
	}
	f.phase = Formed
	return Step{Formed: true}
}

// Unable reports that a member cannot reach peer, or cannot go on if that is the member itself. If it is news, the caller pings the peer, and calls
// Believe.
func (f *Formation) Unable(now time.Time, id, peer NodeID, reason string) (s Step, isNews bool) {
	if s := f.Tick(now); s.Err != nil {
		return s, false
	}
	i, j := f.index(id), f.index(peer)
	switch {
	case i < 0 || f.phase != Connecting || f.places[i].complaint != nil:
		return Step{}, false
	case j < 0:
		return f.fail(fmt.Errorf("%s cannot reach node %v, which is not in the world: %s", f.describe(i), peer, reason)), false
	}
	f.places[i].complaint = &complaint{j, reason}
	if f.places[j].asked.IsZero() {
		f.places[j].asked = now
	}
	return Step{}, true
}

// Believe ends the wait of the reports about a member that came until a given time: the member has answered a ping of that time, before which
// it would have said that it leaves, or its answer is too late. When no report waits, one of them ends the formation. A member that cannot reach
// another one ends its links, too, so a report comes first if its peer has reported nothing, or is the member itself.
func (f *Formation) Believe(now, until time.Time, id NodeID) Step {
	if s := f.Tick(now); s.Err != nil {
		return s
	}
	i := f.index(id)
	if i < 0 || f.phase != Connecting || f.places[i].asked.IsZero() || until.Before(f.places[i].asked) {
		return Step{}
	}
	f.places[i].asked = time.Time{}
	if slices.ContainsFunc(f.places, func(p place) bool { return !p.asked.IsZero() }) {
		return Step{}
	}
	complains := func(p place) bool { return p.complaint != nil }
	by := slices.IndexFunc(f.places, func(p place) bool {
		return complains(p) && (f.places[p.complaint.peer].complaint == p.complaint || !complains(f.places[p.complaint.peer]))
	})
	if by < 0 {
		by = slices.IndexFunc(f.places, complains)
	}
	c := f.places[by].complaint
	if c.peer == by {
		return f.fail(fmt.Errorf("%s cannot link itself to the others: %s", f.describe(by), c.reason))
	}
	return f.fail(fmt.Errorf("%s cannot reach %s: %s", f.describe(by), f.describe(c.peer), c.reason))
}

// Abort ends the formation.
func (f *Formation) Abort(reason error) Step {
	if f.phase >= Formed {
		return Step{}
	}
	if p := f.Progress(); f.phase == Gathering && p.Joined > 0 {
		reason = fmt.Errorf("%w; %d of %d nodes had joined: %s; missing %s", reason, p.Joined, p.World, p.Names(), p.Missing())
	}
	return f.fail(reason)
}

// Tick advances the time.
func (f *Formation) Tick(now time.Time) Step {
	if f.phase >= Formed || f.deadline.IsZero() || now.Before(f.deadline) {
		return Step{}
	}
	within := f.deadline.Sub(f.started)
	if f.phase == Connecting {
		late := f.progress(isLate)
		return f.fail(fmt.Errorf("all %d nodes joined, but within %v these did not reach all others: %s", f.world, within, late.Names()))
	}
	if len(f.places) == 0 {
		return f.fail(fmt.Errorf("0 of %d nodes joined within %v", f.world, within))
	}
	p := f.Progress()
	return f.fail(fmt.Errorf("%d of %d nodes joined within %v: %s; missing %s", p.Joined, p.World, within, p.Names(), p.Missing()))
}

// Phase returns the progress of the formation.
func (f *Formation) Phase() Phase { return f.phase }

// Joined returns the number of places taken.
func (f *Formation) Joined() int { return len(f.places) }

// Deadline returns when Tick is due, and false if it never is.
func (f *Formation) Deadline() (time.Time, bool) {
	return f.deadline, !f.deadline.IsZero() && f.phase < Formed
}

// fail ends the formation with a [*NotFormedError].
func (f *Formation) fail(err error) Step {
	f.phase, f.err = Failed, &NotFormedError{Progress: f.Progress(), Err: err}
	return Step{Err: f.err}
}

// IsMember reports whether a node has a rank in a world that has not formed yet.
func (f *Formation) IsMember(id NodeID) bool { return f.phase == Connecting && f.index(id) >= 0 }

func (f *Formation) index(id NodeID) int {
	return slices.IndexFunc(f.places, func(p place) bool { return p.node.ID == id })
}

// describe names the member at index i. Its rank is i once all ranks are assigned.
func (f *Formation) describe(i int) string {
	return fmt.Sprintf("rank %d %v", i, f.places[i].node)
}

// Refuse returns why Admit refuses a candidate, or nil.
func (f *Formation) Refuse(n Node, wanted int) error {
	switch {
	case f.phase == Failed:
		return fmt.Errorf("%w: it failed: %w", ErrOver, f.err)
	case f.phase == Formed:
		return fmt.Errorf("%w: the world of %d has formed", ErrOver, f.world)
	case wanted >= f.world || wanted < AnyRank:
		return fmt.Errorf("%w: %d is not below the world's size of %d", ErrRank, wanted, f.world)
	case len(f.places) == f.world:
		return fmt.Errorf("%w: all %d places are taken", ErrFull, f.world)
	case f.index(n.ID) >= 0:
		return fmt.Errorf("node %v: %w", n.ID, ErrReused)
	}
	if i := f.holder(wanted); i >= 0 && !n.Succeeds(f.places[i].node) {
		return fmt.Errorf("%w: %d is already taken by %v", ErrRank, wanted, f.places[i].node)
	}
	return checkNode(n)
}

// holder returns the index of the candidate that wants this rank, or -1.
func (f *Formation) holder(wanted int) int {
	return slices.IndexFunc(f.places, func(p place) bool { return wanted != AnyRank && p.wanted == wanted })
}

// checkHosts returns an error if a node has only loopback addresses while another is on
// another host.
func (f *Formation) checkHosts() error {
	for i, p := range f.places {
		if slices.ContainsFunc(p.node.Addrs, func(a string) bool { return !isLoopback(a) }) {
			continue
		}
		for j, q := range f.places {
			if p.node.Host != q.node.Host {
				return fmt.Errorf("%s has only loopback addresses, which %s on another host cannot reach: %w",
					f.describe(i), f.describe(j), ErrAddress)
			}
		}
	}
	return nil
}

// assign orders places by rank. Wanted ranks are kept, and the other candidates get the
// free ranks in the order of joining. Ranks that no candidate gets are left out.
func assign(places []place, world int) []place {
	at := make([]*place, world)
	for i := range places {
		if w := places[i].wanted; w != AnyRank {
			at[w] = &places[i]
		}
	}
	next := 0
	for i := range places {
		if places[i].wanted != AnyRank {
			continue
		}
		for at[next] != nil {
			next++
		}
		at[next] = &places[i]
	}
	var out []place
	for _, p := range at {
		if p != nil {
			out = append(out, *p)
		}
	}
	return out
}

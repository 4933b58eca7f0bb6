// Package blame decides which node has caused the loss of a peer. It is pure: it knows the end of each peer, the reasons that peers have
// told before they ended, and the peers that have answered after the loss. The mesh tells reasons, asks peers and waits for answers.
package blame

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// ReasonMax is the maximum age of an error of a node that counts as the reason why the node has
// ended.
const ReasonMax = 10 * time.Second

// A Reason is an error that a node has told its peers, and the node that has caused it.
type Reason struct {
	Cause membership.NodeID
	Lost  bool // the node has lost Cause
	Text  string
	At    time.Time
}

// Explains reports whether the error, if it is not nil, may be the reason why its node has ended now.
func (r *Reason) Explains(now time.Time) bool {
	return r != nil && r.Cause != (membership.NodeID{}) && now.Sub(r.At) < ReasonMax
}

// Of returns the reason of an error that a node has caused: the node, or the one that it has itself named.
func (r Reason) Of(named *Reason) Reason {
	if named.Explains(r.At) {
		r.Cause, r.Lost = named.Cause, named.Lost
	}
	return r
}

// Repeats reports whether a reason with the same cause, which was told before, is recent enough that it need not be told again.
func (r *Reason) Repeats(told *Reason) bool {
	return told.Cause == r.Cause && r.At.Sub(told.At) < ReasonMax/2
}

// An End is how a peer has ended, even if this node has not decided that yet.
type End uint8

const (
	Alive  End = iota
	Left       // it has said goodbye or was removed, or this node has ended the link
	Broken     // its link has ended without a goodbye
)

// A Peer is another node.
type Peer struct {
	Slot, Rank int
	Node       *membership.Node
	End        End
	Err        error   // why its link has ended, or how its loss was noticed; nil if it is alive
	Reason     *Reason // the reason that it has told; nil if it has told none that may explain its end now

	// Asked says that this node had a link to the peer when it lost the other one, and Answered that the peer has shown since then that it is
	// alive.
	Asked, Answered bool
	// Failed says that this node has lost the peer as well. Loss is the cause of that loss, or nil if it is not known yet.
	Failed bool
	Loss   *Cause
}

// Peers is what a node knows of the other nodes. It needs only those that were asked, have ended or told a reason, or are named by one.
type Peers struct {
	Self     membership.NodeID
	NoAnswer error // of suspects that have not ended
	List     []Peer
}

// A Cause is the node that has caused the loss of a peer: the peer itself, or another one.
type Cause struct {
	Node membership.NodeID
	Err  error // the loss of Node, or the error that the peer has told
	// Suspects are Node and other nodes, by rank, if this node cannot know the one of them that is the
	// cause. Otherwise it is nil.
	Suspects []Suspect
}

// A Suspect is a node that may be the cause of a loss.
type Suspect struct {
	Node membership.Node
	Err  error // its loss, the error that it has told, or that it has not answered
	rank int
}

// Find returns the cause of the loss of a node, which this node has noticed by err.
//
// The reasons that lost peers have told lead from one peer to the next, and end at a peer without a reason. A reason that names
// another lost node counts only if this node has lost that node as well, since a peer that is cut off loses all others.
func (s *Peers) Find(lost membership.NodeID, err error) Cause {
	p := s.peer(lost)
	if p == nil { // It is in no view any more.
		return Cause{Node: lost, Err: err}
	}
	known := err // of p
	for passed := []*Peer{}; p.Reason != nil; {
		next, isSelf, explained := s.peer(p.Reason.Cause), p.Reason.Cause == s.Self, s.explain(p, err)
		switch {
		case next == nil && !isSelf, isSelf && !p.Reason.Lost:
			return Cause{Node: p.Node.ID, Err: explained}
		case !p.Reason.Lost:
			return Cause{Node: next.Node.ID, Err: explained}
		case isSelf, next.Answered:
			return Cause{Node: p.Node.ID, Err: known}
		case next.End == Alive:
			return p.orOthers(explained, []Suspect{next.suspect(s.NoAnswer)})
		case slices.Contains(passed, next): // Peers have named each other.
			return p.orOthers(explained, []Suspect{next.suspect(s.explain(next, err))})
		}
		passed = append(passed, p)
		p, known = next, explained
	}
	return p.orOthers(known, s.suspectsBeside(p))
}

func (s *Peers) peer(id membership.NodeID) *Peer {
	i := slices.IndexFunc(s.List, func(p Peer) bool { return p.Node.ID == id })
	if i < 0 {
		return nil
	}
	return &s.List[i]
}

// orOthers returns the cause of a failure that is p, or one of the others.
func (p *Peer) orOthers(err error, others []Suspect) Cause {
	c := Cause{Node: p.Node.ID, Err: err}
	if len(others) > 0 {
		if p.Reason == nil {
			err = p.noReason()
		}
		others = append(others, p.suspect(err))
		c.Suspects = others
		slices.SortFunc(c.Suspects, func(a, b Suspect) int { return cmp.Compare(a.rank, b.rank) })
	}
	return c
}

func (p *Peer) suspect(err error) Suspect { return Suspect{Node: *p.Node, Err: err, rank: p.Rank} }

// noReason returns the error of a lost peer that has told no reason.
func (p *Peer) noReason() error { return fmt.Errorf("it told no reason: %w", p.Err) }

// suspectsBeside returns the peers that may be the cause as well as a lost peer without a reason: they
// have told no reason either, and are not known to have outlived it.
func (s *Peers) suspectsBeside(lost *Peer) (suspects []Suspect) {
	for i := range s.List {
		p := &s.List[i]
		switch {
		case p == lost, p.Reason != nil, p.Answered:
		case p.Asked && p.End == Broken, !p.Asked && p.fellWith(lost):
			suspects = append(suspects, p.suspect(p.noReason()))
		case p.Asked && p.End == Alive:
			suspects = append(suspects, p.suspect(s.NoAnswer))
		}
	}
	return suspects
}

// fellWith reports whether p was lost before another peer, and the other one may not have outlived it.
func (p *Peer) fellWith(other *Peer) bool {
	return p.Failed && (p.Loss == nil || slices.ContainsFunc(p.Loss.Suspects, func(s Suspect) bool { return s.Node.ID == other.Node.ID }))
}

// Explain returns the error for the loss, noticed by err, of a peer that has told a reason.
func (s *Peers) Explain(lost membership.NodeID, err error) *ExplainedError {
	return s.explain(s.peer(lost), err)
}

func (s *Peers) explain(p *Peer, err error) *ExplainedError {
	e := &ExplainedError{rank: p.Rank, text: p.Reason.Text, cause: -1, err: err}
	if cause := s.peer(p.Reason.Cause); cause != nil {
		e.cause, e.own = cause.Slot, cause == p
	}
	return e
}

// An ExplainedError is the loss of a peer that has told an error caused by another node.
type ExplainedError struct {
	rank  int
	text  string
	cause int  // slot, or -1
	own   bool // the peer is the cause; see Mesh.Fail
	err   error
}

func (e *ExplainedError) Error() string {
	if e.own {
		return e.text
	}
	return fmt.Sprintf("rank %d has ended after its error %q (%v)", e.rank, e.text, e.err)
}

func (e *ExplainedError) Unwrap() error { return e.err }

// Blames implements [engine.Blamer].
func (e *ExplainedError) Blames() int { return e.cause }

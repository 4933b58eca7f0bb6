package membership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CandidatesMax bounds the Candidates of a [Progress].
const CandidatesMax = 64

// A Candidate describes a node that has joined a forming world.
type Candidate struct {
	ID   NodeID
	Rank int32 // assigned or requested rank, or AnyRank
	Name string
	Addr string // its first address
}

// String returns the rank of the candidate, its address and its name.
func (c Candidate) String() string {
	node := Node{ID: c.ID, Name: c.Name}
	if c.Addr != "" {
		node.Addrs = []string{c.Addr}
	}
	if c.Rank == AnyRank {
		return "any rank " + node.String()
	}
	return fmt.Sprintf("rank %d %v", c.Rank, node)
}

// A Progress contains the number of nodes that have joined a world, and the first CandidatesMax
// of them.
type Progress struct {
	Joined, World uint32
	Waited        uint32 // ms since the wait began, if the node is to log it; else 0
	Candidates    []Candidate
}

// String returns the number of nodes that have joined, and names the first of them.
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d nodes joined", p.Joined, p.World)
	if len(p.Candidates) > 0 {
		text += ": " + p.Names()
	}
	return text
}

// listMax bounds the nodes that an error names.
const listMax = 16

// Names lists the first candidates.
func (p Progress) Names() string {
	var names []string
	for _, c := range p.Candidates[:min(len(p.Candidates), listMax)] {
		names = append(names, c.String())
	}
	if more := int(p.Joined) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Missing returns the number of nodes that have not joined. If each candidate has or requests a
// rank, it adds the free ranks.
func (p Progress) Missing() string {
	n := max(0, int(p.World)-int(p.Joined))
	ranks := p.freeRanks()
	if n == 0 || ranks == nil {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d (rank %s)", n, strings.Join(ranks, ", "))
}

// freeRanks returns at most listMax ranks that no candidate has or requests, or nil if they are
// not determined.
func (p Progress) freeRanks() (ranks []string) {
	if p.Joined == 0 || len(p.Candidates) != int(p.Joined) {
		return nil
	}
	taken := make(map[int32]bool)
	for _, c := range p.Candidates {
		taken[c.Rank] = true
	}
	if taken[AnyRank] {
		return nil
	}
	for r := range int32(p.World) {
		switch {
		case taken[r]:
		case len(ranks) == listMax:
			return append(ranks, "…")
		default:
			ranks = append(ranks, strconv.Itoa(int(r)))
		}
	}
	return ranks
}

// A NotFormedError contains the reason why a world did not form.
type NotFormedError struct {
	Progress Progress
	Err      error
}

func (e *NotFormedError) Error() string { return e.Err.Error() }
func (e *NotFormedError) Unwrap() error { return e.Err }

// Awaited returns the Progress for the logs of nodes and, for each host, the node that logs it. In the phase Connecting the Progress
// has the number of connected nodes, and the others as Candidates, and a host with such nodes logs it by one of them.
func (f *Formation) Awaited() (p Progress, loggers []NodeID) {
	p = f.Progress()
	if f.phase == Connecting {
		p = f.progress(isLate)
		p.Joined = p.World - p.Joined
	}
	byHost := make(map[string]place)
	for _, at := range f.places {
		if old, known := byHost[at.node.Host]; !known || f.phase == Connecting && old.ready && !at.ready {
			byHost[at.node.Host] = at
		}
	}
	for _, at := range f.places {
		if byHost[at.node.Host].node.ID == at.node.ID {
			loggers = append(loggers, at.node.ID)
		}
	}
	return p, loggers
}

// IsConnected reports whether a member has reported Ready.
func (f *Formation) IsConnected(id NodeID) bool {
	i := f.index(id)
	return i >= 0 && f.places[i].ready
}

// Progress returns the nodes that have joined, in the order of their ranks once these are
// assigned, and before that in the order of joining.
func (f *Formation) Progress() Progress { return f.progress(func(place) bool { return true }) }

// progress returns the Progress of the chosen nodes alone.
func (f *Formation) progress(chosen func(place) bool) Progress {
	p := Progress{World: uint32(f.world)}
	for i, at := range f.places {
		if !chosen(at) {
			continue
		}
		if p.Joined++; p.Joined > CandidatesMax {
			continue
		}
		c := Candidate{ID: at.node.ID, Rank: int32(at.wanted), Name: at.node.Name, Addr: at.node.Addr()}
		if f.ranked {
			c.Rank = int32(i)
		}
		p.Candidates = append(p.Candidates, c)
	}
	p.Candidates = slices.Clip(p.Candidates)
	return p
}

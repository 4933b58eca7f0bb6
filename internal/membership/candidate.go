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
	Candidates    []Candidate
}

// String returns the number of nodes that have joined, and names the first of them.
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d nodes joined", p.Joined, p.World)
	if len(p.Candidates) > 0 {
		text += ": " + p.names()
	}
	return text
}

// listMax bounds the nodes that an error names.
const listMax = 16

// names lists the candidates.
func (p Progress) names() string {
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

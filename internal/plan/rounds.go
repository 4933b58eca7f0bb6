package plan

import "slices"

// Rounds are the plans of all ranks, computed round by round. Plans of a million ranks, or with
// a million rounds, are not held in memory.
type Rounds struct {
	// Chunks is that of all plans.
	Chunks int

	// Alike is the number of sections of alike rounds, or 0. All sections have the same length. In all
	// rounds of a section every rank exchanges the same number of chunks with the same ranks, as
	// in a ring.
	Alike int

	length func(rank int) int
	moves  func(to Round, rank, k int) Round
}

// Len returns the number of rounds of a rank. Some of them may have no moves.
func (r Rounds) Len(rank int) int { return r.length(rank) }

// Append appends the moves of the k-th round of a rank, for 0 ≤ k < Len(rank).
func (r Rounds) Append(to Round, rank, k int) Round { return r.moves(to, rank, k) }

// Plan returns the plan of a rank.
func (r Rounds) Plan(rank int) Plan {
	p := Plan{Chunks: r.Chunks, Rounds: make([]Round, 0, r.Len(rank))}
	var room Round // for the moves of several short rounds
	for k := range r.Len(rank) {
		if cap(room) < roundRoom {
			room = make(Round, 0, min(roundsRoom, roundRoom*r.Len(rank)))
		}
		moves := r.Append(room, rank, k)
		if n := len(moves); n <= cap(room) {
			room = room[n:n:cap(room)]
		}
		p.round(slices.Clip(moves)...)
	}
	return p
}

// The moves of short rounds share arrays of roundsRoom moves. A new one begins when less than roundRoom are left.
const (
	roundRoom  = 4
	roundsRoom = 64
)

// sameLen returns the length of plans that have n rounds on every rank.
func sameLen(n int) func(rank int) int { return func(int) int { return n } }

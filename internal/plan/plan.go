// Package plan represents collective algorithms as data.
//
// An algorithm is a pure function of a rank and the number of ranks. It returns the [Plan] of
// that rank: rounds of moves on chunks of the vector. A plan reads like its paper. [Check]
// proves it correct, the engine executes it over several channels, the cost model predicts its
// time, and traces show the rank that a move waits for.
//
// Most callers take a plan from [Algorithms], or from [AlgorithmsOn] if hosts are known. To add
// an algorithm, write a function like [RingAllReduce] and add a line to the table in
// Algorithms; the tests prove it for every size. Plans can be composed of plans of fewer ranks
// and fewer chunks, like those for several hosts.
//
// All moves of a round may happen at once. A round may begin when earlier moves no longer use
// its chunks, so ranks need not be in the same round. Chunks of zero bytes count. The k-th
// message that rank a sends to rank b is the k-th that b receives from a. A message may wait
// until its receiver takes it: no plan relies on buffering.
//
// All functions are pure and may be called by several goroutines. Plans are immutable. An
// algorithm panics or returns a meaningless plan if rank or root is not in [0, size); callers
// check that.
package plan

import "fmt"

// A Buf is a plan buffer: one of the three vectors that a plan works on.
type Buf uint8

const (
	// Data holds the result. Collectives that work in place find their
	// input there, too.
	Data Buf = iota
	// Input is read only. Plans of collectives with separate input use it. Chunk i of Input has
	// the length of chunk i of Data, and of the same chunk of all other ranks, except in an
	// all-to-all with counts (see [Uneven]).
	Input
	// Temp is scratch. Its chunk i has the length of chunk i mod Chunks of Data. Plans that
	// divide the vector by ranks number the chunks in Temp as in Data and may use few of them
	// (see [Plan.TempUsed]).
	Temp
)

func (b Buf) String() string {
	switch b {
	case Data:
		return "Data"
	case Input:
		return "Input"
	case Temp:
		return "Temp"
	}
	return fmt.Sprintf("Buf(%d)", uint8(b))
}

// A Span is the chunks Lo ≤ i < Hi of a plan buffer.
type Span struct {
	Buf    Buf
	Lo, Hi int
}

// Len returns the number of chunks.
func (s Span) Len() int { return s.Hi - s.Lo }

// String returns the span as a slice expression, such as "Data[2:4]".
func (s Span) String() string { return fmt.Sprintf("%v[%d:%d]", s.Buf, s.Lo, s.Hi) }

// A Kind is the action of a move.
type Kind uint8

const (
	Send    Kind = iota + 1 // send A to Peer
	Recv                    // Dst = message from Peer
	Reduce                  // Dst = A op message from Peer; with Left, message op A
	Copy                    // Dst = A
	Combine                 // Dst = A op B
)

// A Move is one step of one rank. The op of Reduce and Combine need not be
// commutative; plans that keep the order of the ranks say so.
type Move struct {
	Kind      Kind
	Dst, A, B Span
	Peer      int
	Left      bool // Reduce: the message is the left operand
}

// String describes the move, for example "send Data[2:3] to rank 1".
func (m Move) String() string {
	switch m.Kind {
	case Send:
		return fmt.Sprintf("send %v to rank %d", m.A, m.Peer)
	case Recv:
		return fmt.Sprintf("receive %v from rank %d", m.Dst, m.Peer)
	case Reduce:
		if m.Left {
			return fmt.Sprintf("reduce %v = message of rank %d op %v", m.Dst, m.Peer, m.A)
		}
		return fmt.Sprintf("reduce %v = %v op message of rank %d", m.Dst, m.A, m.Peer)
	case Copy:
		return fmt.Sprintf("copy %v = %v", m.Dst, m.A)
	case Combine:
		return fmt.Sprintf("combine %v = %v op %v", m.Dst, m.A, m.B)
	}
	return fmt.Sprintf("Kind(%d)", uint8(m.Kind))
}

// Spans returns Dst, A and B. Spans that the move does not use are empty.
func (m *Move) Spans() [3]Span { return [3]Span{m.Dst, m.A, m.B} }

// A Round is a set of moves that may happen concurrently. No chunk is written by one of them
// and touched by another.
type Round []Move

// A Plan is the part of one rank in a collective. The vector is divided into Chunks
// chunks; Temp, if used, holds Temps of them.
type Plan struct {
	Chunks int
	Temps  int
	Rounds []Round
}

// Peers yields the peer of each message of the plan, in the order of the moves.
func (p Plan) Peers(yield func(peer int) bool) {
	for _, round := range p.Rounds {
		for i := range round {
			if m := &round[i]; m.Kind != Copy && m.Kind != Combine && !yield(m.Peer) {
				return
			}
		}
	}
}

// TempUsed returns the chunks of Temp that the plan touches: it needs no memory for those
// before Lo. The span is empty if it needs none.
func (p Plan) TempUsed() Span {
	used := Span{Temp, p.Temps, p.Temps}
	for _, round := range p.Rounds {
		for i := range round {
			for _, s := range round[i].Spans() {
				if s.Buf == Temp {
					used.Lo = min(used.Lo, s.Lo)
				}
			}
		}
	}
	return used
}

// Single reports whether every span is a single chunk. Then the vector can be cut into parts.
func (p Plan) Single() bool {
	for _, round := range p.Rounds {
		for i := range round {
			for _, s := range round[i].Spans() {
				if s.Len() > 1 {
					return false
				}
			}
		}
	}
	return true
}

// round appends a round and makes Temp large enough for it.
func (p *Plan) round(moves ...Move) {
	if len(moves) == 0 {
		return
	}
	for i := range moves {
		for _, s := range moves[i].Spans() {
			if s.Buf == Temp {
				p.Temps = max(p.Temps, s.Hi)
			}
		}
	}
	p.Rounds = append(p.Rounds, moves)
}

// one returns the span of a single chunk.
func one(b Buf, i int) Span { return Span{b, i, i + 1} }

// span returns the span of chunks lo ≤ i < hi.
func span(b Buf, lo, hi int) Span { return Span{b, lo, hi} }

func send(s Span, peer int) Move        { return Move{Kind: Send, A: s, Peer: peer} }
func recv(s Span, peer int) Move        { return Move{Kind: Recv, Dst: s, Peer: peer} }
func copyTo(dst, src Span) Move         { return Move{Kind: Copy, Dst: dst, A: src} }
func combine(dst, a, b Span) Move       { return Move{Kind: Combine, Dst: dst, A: a, B: b} }
func reduce(dst, a Span, peer int) Move { return Move{Kind: Reduce, Dst: dst, A: a, Peer: peer} }
func reduceL(dst, a Span, peer int) Move {
	return Move{Kind: Reduce, Dst: dst, A: a, Peer: peer, Left: true}
}

// reduceInOrder reduces with the lower rank's operand on the left.
func reduceInOrder(dst, a Span, rank, peer int) Move {
	return Move{Kind: Reduce, Dst: dst, A: a, Peer: peer, Left: peer < rank}
}

// mod returns i modulo n, never negative.
func mod(i, n int) int { return ((i % n) + n) % n }

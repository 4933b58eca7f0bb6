// Package plan writes collective algorithms down as data.
//
// An algorithm is a pure function of a rank and the number of ranks. It
// returns the Plan of that rank: rounds of moves on chunks of the vector. A
// plan reads as its paper does, and everything else follows from it: Check
// proves it right, the engine carries it out over several channels, the tuner
// computes its cost, and whoever waits can be told for whom.
//
// All moves of a round may happen at once. A round may begin as soon as what
// its moves touch is no longer used by earlier ones, so ranks need not be in
// the same round. The k-th message that rank a sends to rank b is the k-th
// that b takes from a. A message may wait until its receiver takes it: no
// plan relies on buffering.
package plan

// A Buf names one of the three vectors that a plan works on.
type Buf uint8

const (
	// Data holds the result. Collectives that work in place find their
	// input there, too.
	Data Buf = iota
	// Input is read only. Plans of collectives with separate input use it.
	Input
	// Temp is scratch. Its chunk i is as long as chunk i mod Chunks of Data.
	Temp
)

// A Span is the chunks Lo ≤ i < Hi of a buffer.
type Span struct {
	Buf    Buf
	Lo, Hi int
}

// A Kind says what a move does.
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

// A Round is a set of moves that may happen at the same time. No chunk is
// written by one of them and touched by another.
type Round []Move

// A Plan is what one rank does in a collective. The vector is cut into Chunks
// chunks; Temp, if used, holds Temps of them.
type Plan struct {
	Chunks int
	Temps  int
	Rounds []Round
}

func (p *Plan) round(moves ...Move) {
	if len(moves) > 0 {
		p.Rounds = append(p.Rounds, moves)
	}
}

// one is the span of a single chunk.
func one(b Buf, i int) Span { return Span{b, i, i + 1} }

// span is chunks lo ≤ i < hi.
func span(b Buf, lo, hi int) Span { return Span{b, lo, hi} }

func send(s Span, peer int) Move        { return Move{Kind: Send, A: s, Peer: peer} }
func recv(s Span, peer int) Move        { return Move{Kind: Recv, Dst: s, Peer: peer} }
func copyTo(dst, src Span) Move         { return Move{Kind: Copy, Dst: dst, A: src} }
func combine(dst, a, b Span) Move       { return Move{Kind: Combine, Dst: dst, A: a, B: b} }
func reduce(dst, a Span, peer int) Move { return Move{Kind: Reduce, Dst: dst, A: a, Peer: peer} }
func reduceL(dst, a Span, peer int) Move {
	return Move{Kind: Reduce, Dst: dst, A: a, Peer: peer, Left: true}
}

// mod is i modulo n, never negative.
func mod(i, n int) int { return ((i % n) + n) % n }

package plan

import (
	"errors"
	"fmt"
)

// Check proves that the plans of all ranks, plans[r] for rank r, execute a collective. It runs
// them on symbols in place of numbers, so that the proof holds for all vectors and all ops:
//
//   - every rank ends with exactly the required result: each required input once, of the right
//     chunk, in the right order in scans; after an all-reduce, the same expression on every
//     rank;
//   - Input is never written, nor Data of a rank that only gives it, such as root of a broadcast; no chunk is read before it
//     was written; chunks are in range;
//   - within a round no chunk is written by one move and touched by another;
//   - the messages from one rank to another match one by one, with equal lengths even if all
//     chunks differ in length;
//   - all ranks terminate although every message waits until its receiver takes it, and no rank
//     enters a round before it has left the previous one.
//
// An engine may let ranks run ahead of this order if it keeps the order of all moves that touch
// the same chunk. The result is then the same, and it cannot deadlock, since it has no
// additional waits.
//
// An error names the rank, the round and the move, each counted from 0.
func Check(c Collective, root int, plans []Plan) error {
	return CheckInPlace(c, root, plans, make([]bool, len(plans)))
}

// CheckInPlace is [Check] for plans in which [InPlace] has converted those with inPlace[r].
func CheckInPlace(c Collective, root int, plans []Plan, inPlace []bool) error {
	_, err := prove(c, root, plans, inPlace)
	return err
}

// Ordered reports whether the plans are correct and combine all operands in the order of their
// ranks, so that the op need not be commutative.
func Ordered(c Collective, root int, plans []Plan) bool {
	p, err := prove(c, root, plans, make([]bool, len(plans)))
	return err == nil && c.Reduces() && p.ordered
}

// Uneven reports whether correct plans remain correct if chunks differ in length from rank to
// rank, like those of an all-to-all with counts: chunk i of Input at rank r has the length of
// chunk r of Data at rank i, and chunks of Temp have no length. In all other collectives chunk i has the same
// length at every rank, and Check compares them one by one; only all-gathers and reduce-scatters may rely on chunks of
// the same length.
func Uneven(c Collective, plans []Plan) bool {
	d := c.Descriptor()
	if d.wholeBlocks() {
		p, err := prove(c, 0, plans, make([]bool, len(plans)))
		return err == nil && !p.even
	}
	if !d.pairs() {
		return true
	}
	for rank, plan := range plans {
		for _, round := range plan.Rounds {
			for _, m := range round {
				var ok bool
				switch m.Kind {
				case Send:
					ok = m.A == one(Input, m.Peer)
				case Recv:
					ok = m.Dst == one(Data, m.Peer)
				case Copy:
					ok = m.Dst == one(Data, rank) && m.A == one(Input, rank)
				}
				if !ok {
					return false
				}
			}
		}
	}
	return true
}

// A proof is the state of a check: for each rank, the values of its chunks.
type proof struct {
	*Descriptor
	root    int
	chunks  int
	plans   []Plan
	inPlace []bool

	exprs      exprs
	data, temp [][]expr
	heard      []expr // barrier: the ranks that a rank has heard from

	ordered bool // all sums seen are in the order of the ranks
	even    bool // some move needs chunks of the same length
}

func prove(c Collective, root int, plans []Plan, inPlace []bool) (*proof, error) {
	d := c.Descriptor()
	if d == collectives[0] {
		return nil, fmt.Errorf("plan: unknown collective %d", uint8(c))
	}
	p := &proof{Descriptor: d, root: root, plans: plans, inPlace: inPlace, ordered: true}
	err := p.prove()
	if err != nil {
		return nil, fmt.Errorf("plan: %v of %d ranks: %w", c, len(plans), err)
	}
	return p, nil
}

func (p *proof) prove() error {
	size := len(p.plans)
	if size == 0 {
		return errors.New("no plans")
	}
	if p.root < 0 || p.root >= size {
		return fmt.Errorf("root %d is not a rank", p.root)
	}
	p.chunks = p.plans[0].Chunks
	if err := p.checkForm(); err != nil {
		return err
	}
	p.begin()
	if err := run(p.plans, p.step); err != nil {
		return err
	}
	return p.checkEnd()
}

// begin sets all chunks to the inputs of the collective.
func (p *proof) begin() {
	size := len(p.plans)
	p.exprs = newExprs(size, p.chunks, p.Operands != NoRanks)
	p.data, p.temp = make([][]expr, size), make([][]expr, size)
	if p.Empty() {
		p.heard = make([]expr, size)
	}
	total := 0
	for rank, plan := range p.plans {
		total += p.extent(rank).data.Hi + plan.Temps
	}
	memory := make([]expr, total)
	for rank, plan := range p.plans {
		e := p.extent(rank)
		p.data[rank], memory = memory[:e.data.Hi], memory[e.data.Hi:]
		p.temp[rank], memory = memory[:plan.Temps], memory[plan.Temps:]
		for i := e.given.Lo; i < e.given.Hi; i++ {
			p.data[rank][i] = p.exprs.leaf(rank, i)
		}
	}
}

// step executes a move that writes; sent is the message that it takes.
func (p *proof) step(rank int, m, sent *Move) error {
	if sent != nil {
		if err := p.sameLengths(m.Dst, sent.A); err != nil {
			return fmt.Errorf("the message (%v): %w", sent, err)
		}
	}
	for i := range m.Dst.Len() {
		v, err := p.value(rank, m, sent, i)
		if err != nil {
			return err
		}
		if m.Dst.Buf == Data {
			p.data[rank][m.Dst.Lo+i] = v
		} else {
			p.temp[rank][m.Dst.Lo+i] = v
		}
	}
	return nil
}

// value returns the value that a move writes to chunk i of its destination.
func (p *proof) value(rank int, m, sent *Move, i int) (expr, error) {
	var message, a, b expr
	var err error
	if sent != nil {
		if message, err = p.read(m.Peer, sent.A, i); err != nil {
			return none, err
		}
		if p.Empty() {
			// A message also says that its sender has begun.
			message = p.exprs.join(p.exprs.leaf(m.Peer, 0), message)
			p.heard[rank] = p.exprs.join(p.heard[rank], message)
		}
		if m.Kind == Recv {
			return message, nil
		}
	}
	if a, err = p.read(rank, m.A, i); err != nil {
		return none, err
	}
	switch {
	case m.Kind == Copy:
		return a, nil
	case m.Kind == Combine:
		b, err = p.read(rank, m.B, i)
		return p.exprs.join(a, b), err
	case m.Left:
		return p.exprs.join(message, a), nil
	}
	return p.exprs.join(a, message), nil
}

// read returns the value of chunk i of a span.
func (p *proof) read(rank int, s Span, i int) (expr, error) {
	v := none
	switch s.Buf {
	case Input:
		v = p.exprs.leaf(rank, s.Lo+i)
	case Data:
		v = p.data[rank][s.Lo+i]
	case Temp:
		v = p.temp[rank][s.Lo+i]
	}
	if v == none {
		return none, fmt.Errorf("%v of rank %d holds nothing yet", one(s.Buf, s.Lo+i), rank)
	}
	return v, nil
}

// sameLengths returns an error unless the chunks of two spans have the same lengths one by one.
// In an all-to-all all chunks have the same length. In an all-gather and a reduce-scatter they have, if a plan
// relies on it.
func (p *proof) sameLengths(a, b Span) error {
	if a.Len() != b.Len() {
		return fmt.Errorf("%v has %d chunks, %v has %d", a, a.Len(), b, b.Len())
	}
	if !p.pairs() && mod(a.Lo-b.Lo, p.chunks) != 0 {
		if !p.wholeBlocks() {
			return fmt.Errorf("the chunks of %v and %v may differ in length", a, b)
		}
		p.even = true
	}
	return nil
}

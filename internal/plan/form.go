package plan

import (
	"errors"
	"fmt"
)

// An extent says which chunks of Data and of Input a rank has, which of Data are given at the
// beginning, and which a plan may write: the result.
type extent struct {
	data, input, given, result Span
}

func (p *proof) extent(rank int) extent {
	given, taken := p.have(rank, Data, p.Given), p.have(rank, Data, p.Taken)
	switch all := span(Data, 0, p.chunks); {
	case p.Both, p.inPlace[rank]:
		return extent{all, Span{Buf: Input}, given, taken}
	default:
		return extent{taken, p.have(rank, Input, p.Given), Span{}, taken}
	}
}

// have returns the chunks of a vector that a rank has.
func (p *proof) have(rank int, b Buf, v Vector) Span {
	switch {
	case !v.At.Have(rank, p.root):
		return Span{Buf: b}
	case v.Own:
		return one(b, rank)
	}
	return span(b, 0, p.chunks)
}

// checkForm checks all properties that do not depend on running the plans.
func (p *proof) checkForm() error {
	size := len(p.plans)
	want := p.chunks
	switch {
	case p.Empty():
		want = 1
	case !p.Both:
		want = size
	}
	if want < 1 || want > 1<<20 {
		return fmt.Errorf("%d chunks", want)
	}
	balance := make([]int32, size*size) // messages sent less messages taken
	f := form{proof: p, balance: balance, data: make([]int32, p.chunks), base: 1}
	for rank, plan := range p.plans {
		if plan.Chunks != want {
			return fmt.Errorf("rank %d: %d chunks instead of %d", rank, plan.Chunks, want)
		}
		if plan.Temps < 0 || plan.Temps > 1<<20 {
			return fmt.Errorf("rank %d: %d chunks of Temp", rank, plan.Temps)
		}
		if err := f.plan(rank, plan); err != nil {
			return err
		}
	}
	for i, n := range balance {
		if n == 0 {
			continue
		}
		from, to := i/size, i%size
		if n > 0 {
			return fmt.Errorf("rank %d sends %d messages to rank %d that it does not take: %s",
				from, n, to, lastMessage(p.plans, from, to, true))
		}
		return fmt.Errorf("rank %d waits for %d messages of rank %d that it does not send: %s",
			to, -n, from, lastMessage(p.plans, to, from, false))
	}
	return nil
}

// lastMessage describes the last message that a rank sends to a peer, or takes from it.
func lastMessage(plans []Plan, rank, peer int, sends bool) string {
	last := ""
	for r, round := range plans[rank].Rounds {
		for i, m := range round {
			if m.messages() && m.Peer == peer && (m.Kind == Send) == sends {
				last = place(plans, rank, r, i)
			}
		}
	}
	return last
}

// place describes a move.
func place(plans []Plan, rank, round, move int) string {
	return fmt.Sprintf("rank %d, round %d, move %d (%v)", rank, round, move, plans[rank].Rounds[round][move])
}

// messages reports whether the move sends or takes a message.
func (m *Move) messages() bool { return m.Kind == Send || m.Kind == Recv || m.Kind == Reduce }

// A form checks the moves of one rank after another.
type form struct {
	*proof
	balance []int32

	extent
	rank, temps int
	data, temp  []int32 // the last move to write each chunk, counted from base
	base        int32   // of the round, above all marks of earlier ones
}

func (f *form) plan(rank int, plan Plan) error {
	f.rank, f.temps, f.extent = rank, plan.Temps, f.proof.extent(rank)
	if len(f.temp) < plan.Temps {
		f.temp = make([]int32, plan.Temps)
	}
	for r, round := range plan.Rounds {
		for i := range round {
			if err := f.move(&round[i]); err != nil {
				return fmt.Errorf("%s: %w", place(f.plans, rank, r, i), err)
			}
		}
		if i, err := f.conflict(round); err != nil {
			return fmt.Errorf("%s: %w", place(f.plans, rank, r, i), err)
		}
		f.base += int32(len(round))
	}
	return nil
}

// move checks a move by itself.
func (f *form) move(m *Move) error {
	uses := [...]struct{ dst, a, b, peer, op bool }{
		Send:    {a: true, peer: true},
		Recv:    {dst: true, peer: true},
		Reduce:  {dst: true, a: true, peer: true, op: true},
		Copy:    {dst: true, a: true},
		Combine: {dst: true, a: true, b: true, op: true},
	}
	if m.Kind == 0 || int(m.Kind) >= len(uses) {
		return errors.New("unknown kind of move")
	}
	use := uses[m.Kind]
	if use.op && f.Operands == NoRanks {
		return fmt.Errorf("%s has no op", f.Name)
	}
	if m.Left && m.Kind != Reduce {
		return errors.New("only a reduce has a left message")
	}
	if err := f.peer(m, use.peer); err != nil {
		return err
	}
	for _, s := range [...]struct {
		Span
		used, written bool
	}{{m.Dst, use.dst, true}, {m.A, use.a, false}, {m.B, use.b, false}} {
		if !s.used && s.Span != (Span{}) {
			return fmt.Errorf("%v must be empty", s.Span)
		}
		if s.used {
			if err := f.inRange(s.Span, s.written); err != nil {
				return err
			}
		}
		if s.used && use.dst && !s.written {
			if err := f.operand(m, s.Span); err != nil {
				return err
			}
		}
	}
	return nil
}

// peer checks the peer of a move and counts its message.
func (f *form) peer(m *Move, used bool) error {
	size := len(f.plans)
	switch {
	case !used && m.Peer != 0:
		return fmt.Errorf("rank %d must be 0", m.Peer)
	case !used:
	case m.Peer < 0 || m.Peer >= size:
		return fmt.Errorf("unknown rank %d", m.Peer)
	case m.Peer == f.rank:
		return errors.New("a message to the rank itself")
	case m.Kind == Send:
		f.balance[f.rank*size+m.Peer]++
	default:
		f.balance[m.Peer*size+f.rank]--
	}
	return nil
}

// operand checks that an operand fits the destination: it has the same length, and is identical
// or disjoint.
func (f *form) operand(m *Move, s Span) error {
	if err := f.sameLengths(m.Dst, s); err != nil {
		return err
	}
	overlap := s.Buf == m.Dst.Buf && s.Lo < m.Dst.Hi && m.Dst.Lo < s.Hi
	if overlap && (s != m.Dst || m.Kind == Copy) {
		return fmt.Errorf("%v and %v overlap", m.Dst, s)
	}
	return nil
}

// inRange checks that the rank has the chunks of a span and may write them.
func (f *form) inRange(s Span, written bool) error {
	var have Span
	switch s.Buf {
	case Data:
		have = f.extent.data
	case Input:
		have = f.input
	case Temp:
		have = span(Temp, 0, f.temps)
	}
	switch {
	case s.Lo >= s.Hi:
		return fmt.Errorf("%v is empty", s)
	case s.Lo < have.Lo || s.Hi > have.Hi:
		return fmt.Errorf("%v is not in %v, the chunks of rank %d", s, have, f.rank)
	case written && (s.Buf == Input || s.Buf == Data && (s.Lo < f.result.Lo || s.Hi > f.result.Hi)):
		return fmt.Errorf("%v may not be written by rank %d", s, f.rank)
	}
	return nil
}

// conflict finds a chunk that one move writes and another touches.
func (f *form) conflict(round Round) (int, error) {
	if len(round) == 1 {
		return 0, nil
	}
	for i := range round {
		for j := range f.marks(round[i].Dst) {
			mark := &f.marks(round[i].Dst)[j]
			if *mark >= f.base {
				return i, fmt.Errorf("move %d writes %v, too", *mark-f.base, one(round[i].Dst.Buf, round[i].Dst.Lo+j))
			}
			*mark = f.base + int32(i)
		}
	}
	for i := range round {
		for _, s := range [...]Span{round[i].A, round[i].B} {
			for j, mark := range f.marks(s) {
				if mark >= f.base && mark != f.base+int32(i) {
					return i, fmt.Errorf("move %d writes %v in the same round", mark-f.base, one(s.Buf, s.Lo+j))
				}
			}
		}
	}
	return 0, nil
}

// marks returns the marks of the chunks of a span. Input is never written and has none.
func (f *form) marks(s Span) []int32 {
	switch s.Buf {
	case Data:
		return f.data[s.Lo:s.Hi]
	case Temp:
		return f.temp[s.Lo:s.Hi]
	}
	return nil
}

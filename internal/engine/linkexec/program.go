package linkexec

import "github.com/nexar-go/nexar/internal/plan"

// A Program is a compiled plan: each move has the number of moves that it depends on, and the
// moves that depend on it. A move depends on every earlier move that conflicts with it: one of
// the two writes memory that the other uses. So a rank does not wait for the end of a round
// if the operands of a move have arrived.
type Program struct {
	chunks int
	moves  []move
	first  []int32   // moves that depend on no other
	sends  [][]int32 // by peer: moves in the order of their index
	recvs  [][]int32
	peers  []int // that frames are exchanged with

	temp   plan.Span // chunks of Temp that are used
	rounds int
}

type move struct {
	plan.Move
	index uint32  // among the steps to, or from, its peer
	round int32   // of the plan, from 1 on
	waits int32   // the number of moves that it depends on
	next  []int32 // moves that depend on it
}

// Compile compiles the plan of one of size ranks.
func Compile(p plan.Plan, size int) *Program {
	g := &Program{
		chunks: p.Chunks, temp: p.TempUsed(), rounds: len(p.Rounds),
		sends: make([][]int32, size), recvs: make([][]int32, size),
	}
	d := dependencies{program: g, last: make(map[cell]use)}
	for k, round := range p.Rounds {
		for _, m := range round {
			d.add(k+1, m)
		}
	}
	for i := range g.moves {
		if g.moves[i].waits == 0 {
			g.first = append(g.first, int32(i))
		}
	}
	for peer := range size {
		if len(g.sends[peer])+len(g.recvs[peer]) > 0 {
			g.peers = append(g.peers, peer)
		}
	}
	return g
}

// A cell is a chunk of a buffer.
type cell struct {
	buf plan.Buf
	i   int
}

// A use has the last moves that used a cell.
type use struct {
	writer  int32 // -1 if none
	readers []int32
}

type dependencies struct {
	program *Program
	last    map[cell]use
}

func (d *dependencies) add(round int, m plan.Move) {
	g := d.program
	i := int32(len(g.moves))
	g.moves = append(g.moves, move{Move: m, round: int32(round)})
	switch m.Kind {
	case plan.Send:
		d.read(i, m.A)
		g.moves[i].index = uint32(len(g.sends[m.Peer]))
		g.sends[m.Peer] = append(g.sends[m.Peer], i)
	case plan.Recv, plan.Reduce:
		if m.Kind == plan.Reduce {
			d.read(i, m.A)
		}
		d.write(i, m.Dst)
		g.moves[i].index = uint32(len(g.recvs[m.Peer]))
		g.recvs[m.Peer] = append(g.recvs[m.Peer], i)
	case plan.Copy:
		d.read(i, m.A)
		d.write(i, m.Dst)
	case plan.Combine:
		d.read(i, m.A)
		d.read(i, m.B)
		d.write(i, m.Dst)
	default:
		panic("linkexec: unknown kind of move")
	}
}

func (d *dependencies) read(i int32, s plan.Span) {
	d.each(s, func(c cell, u use) {
		d.after(i, u.writer)
		u.readers = append(u.readers, i)
		d.last[c] = u
	})
}

func (d *dependencies) write(i int32, s plan.Span) {
	d.each(s, func(c cell, u use) {
		d.after(i, u.writer)
		for _, r := range u.readers {
			d.after(i, r)
		}
		d.last[c] = use{writer: i}
	})
}

func (d *dependencies) each(s plan.Span, f func(c cell, u use)) {
	for k := s.Lo; k < s.Hi; k++ {
		c := cell{s.Buf, k}
		u, ok := d.last[c]
		if !ok {
			u.writer = -1
		}
		f(c, u)
	}
}

// after makes move i depend on move j, once.
func (d *dependencies) after(i, j int32) {
	if j < 0 || j == i {
		return
	}
	before := &d.program.moves[j]
	if n := len(before.next); n > 0 && before.next[n-1] == i {
		return
	}
	before.next = append(before.next, i)
	d.program.moves[i].waits++
}

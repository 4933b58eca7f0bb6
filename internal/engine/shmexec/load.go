package shmexec

import "github.com/nexar-go/nexar/internal/plan"

// A Load is the work of a Program in a piece. Lengths are fractions of the vector.
type Load struct {
	Posts, Awaits    int
	Steps            int     // copies and combinations
	Posted           float64 // payloads of the rank
	Copied, Combined float64
}

// Load returns the work of the program in a piece.
func (p *Program) Load() Load {
	var l Load
	for i := range p.steps {
		s := &p.steps[i]
		share := float64(s.dst.Len()) / float64(p.Chunks)
		switch s.kind {
		case await:
			l.Awaits++
		case post:
			l.Posts++
		case copying:
			l.Steps++
			l.Copied += share
			if s.dst.inArea {
				l.Posted += share
			}
		case combine:
			l.Steps++
			l.Combined += share
		}
	}
	return l
}

// LoadOf returns the work of the plan of one rank in a piece. It estimates the number of awaits, which
// depends on the plans of the others.
func LoadOf(p plan.Plan) Load {
	own, lazy, chunks := schedule(p), lazyTemp(p), float64(p.Chunks)
	l := Load{Posts: len(own.rounds)}
	for _, x := range own.payloads {
		l.Steps++
		l.Posted += float64(x.Len()) / chunks
	}
	l.Copied = l.Posted
	for _, round := range p.Rounds {
		for i := range round {
			m := &round[i]
			share := float64(m.Dst.Len()) / chunks
			switch m.Kind {
			case plan.Recv:
				l.Awaits++
				if !lazy || m.Dst.Buf != plan.Temp {
					l.Steps++
					l.Copied += share
				}
			case plan.Reduce:
				l.Awaits++
				l.Steps++
				l.Combined += share
			case plan.Copy:
				l.Steps++
				l.Copied += share
			case plan.Combine:
				l.Steps++
				l.Combined += share
			}
		}
	}
	return l
}

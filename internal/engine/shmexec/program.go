package shmexec

import (
	"slices"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Program is the plan of one rank made ready for a Board, on which it runs
// once for each piece of the vector.
type Program struct {
	// Posts is the number of times that a rank raises its counter in a piece: the
	// largest number of all ranks.
	Posts int
	// Units is the number of chunks that the rank that posts most has on its area.
	Units int
	// TempLo and TempHi are the chunks of Temp that need memory.
	TempLo, TempHi int
	// Single says that every span is a single chunk.
	Single bool
	// Chunks is the number of chunks into which the plan cuts a vector.
	Chunks int

	steps  []step
	unread []int // ranks from which nothing is read
}

// A step is one thing that a rank does in a piece.
type step struct {
	kind  kind
	dst   ref
	a, b  ref
	peer  int    // await: whose counter
	count uint32 // await, post: its value, from the start of the piece
	strip int    // the number of steps from this one on that go through the piece strip by strip
}

type kind uint8

const (
	await   kind = iota // a post of another rank
	post                // what lies on this rank's area
	copying             // dst = a
	combine             // dst = a op b
)

// A ref is chunks of a buffer, or of a slot.
type ref struct {
	plan.Span
	slot bool
	rank int // whose slot
	unit int // where in it the chunks begin
}

// A Schedule has when all ranks post what they send, and where it lies.
type Schedule struct {
	plans   []plan.Plan
	posters []poster
	posts   int // of the rank that posts most often
	units   int // of the rank that has most on its area
	single  bool
}

// NewSchedule makes the Schedule of plans, which are those of all ranks.
//
// A payload is posted as soon as it is complete, even if the plan sends it in
// a later round, and once for all ranks that read it.
func NewSchedule(plans []plan.Plan) *Schedule {
	s := &Schedule{plans: plans, posters: make([]poster, len(plans)), single: true}
	for r := range plans {
		s.posters[r] = schedule(plans[r], len(plans))
		s.posts = max(s.posts, len(s.posters[r].posts))
		s.units = max(s.units, s.posters[r].units)
		s.single = s.single && Single(plans[r])
	}
	return s
}

// Units returns the number of chunks that the rank that posts most has on its area.
func (s *Schedule) Units() int { return s.units }

// Compile makes the plan of a rank ready. What is received into Temp stays
// where it lies on the board if it is only read from there.
func (s *Schedule) Compile(rank int) *Program {
	p := &Program{Chunks: s.plans[rank].Chunks, Posts: s.posts, Units: s.units, Single: s.single}
	c := compiler{Program: p, rank: rank, posters: s.posters, taken: make([]int, len(s.plans)), lazy: lazyTemp(s.plans[rank])}
	c.compile(s.plans[rank])
	c.strips()
	for r, posts := range c.known {
		if posts == 0 && r != rank {
			p.unread = append(p.unread, r)
		}
	}
	return p
}

// Compile makes the plan of a rank ready; plans are those of all.
func Compile(plans []plan.Plan, rank int) *Program { return NewSchedule(plans).Compile(rank) }

// Single reports whether every span of a plan is a single chunk, so that the
// vector can be cut into pieces.
func Single(p plan.Plan) bool {
	for _, round := range p.Rounds {
		for i := range round {
			for _, s := range spans(&round[i]) {
				if s.Len() > 1 {
					return false
				}
			}
		}
	}
	return true
}

// Pieces returns into how many pieces a vector has to be cut so that what a rank posts
// of each fits into room.
func (p *Program) Pieces(l exec.Layout, room int) int {
	pieces := 1
	for {
		w := work{program: p, unit: l.Unit(p.Chunks, pieces)}
		need := w.room()
		if need <= room {
			return pieces
		}
		pieces = max(pieces+1, pieces*need/room)
	}
}

// spans are the spans of a move; those that play no part are empty.
func spans(m *plan.Move) [3]plan.Span { return [3]plan.Span{m.Dst, m.A, m.B} }

func overlap(a, b plan.Span) bool { return a.Buf == b.Buf && a.Lo < b.Hi && b.Lo < a.Hi }

// A poster has when a rank posts what it sends, and where it lies.
type poster struct {
	posts []posting
	sends [][]placed // by peer, in the order in which it takes them
	units int
}

// A posting is a set of payloads that are posted together, before a round.
type posting struct {
	round int
	items []item
}

type item struct {
	plan.Span
	unit int
}

// A placed message is where its receiver finds it.
type placed struct {
	unit int
	post int // its number among the postings of its sender, from 0
}

// schedule finds for every message the earliest round before which it can be
// posted: the one after the last that writes what it carries.
func schedule(p plan.Plan, size int) poster {
	s := poster{sends: make([][]placed, size)}
	type message struct {
		plan.Span
		ready int // round
		peer  int
	}
	var all []message
	for k, round := range p.Rounds {
		for i := range round {
			if m := &round[i]; m.Kind == plan.Send {
				all = append(all, message{m.A, lastWrite(p, k, m.A), m.Peer})
			}
		}
	}
	type key struct {
		plan.Span
		round int
	}
	place := make(map[key]placed)
	now := make(map[int]*posting) // by round
	var rounds []int
	for _, m := range all {
		if now[m.ready] == nil {
			now[m.ready] = &posting{round: m.ready}
			rounds = append(rounds, m.ready)
		}
	}
	slices.Sort(rounds)
	for _, m := range all {
		at := key{m.Span, m.ready}
		if _, ok := place[at]; ok {
			continue
		}
		post, _ := slices.BinarySearch(rounds, m.ready)
		place[at] = placed{s.units, post}
		now[m.ready].items = append(now[m.ready].items, item{m.Span, s.units})
		s.units += m.Len()
	}
	for _, round := range rounds {
		s.posts = append(s.posts, *now[round])
	}
	for _, m := range all {
		s.sends[m.peer] = append(s.sends[m.peer], place[key{m.Span, m.ready}])
	}
	return s
}

// lastWrite is the round after the last one before k that writes what span
// covers.
func lastWrite(p plan.Plan, k int, span plan.Span) int {
	for ; k > 0; k-- {
		for i := range p.Rounds[k-1] {
			m := &p.Rounds[k-1][i]
			if m.Kind != plan.Send && overlap(m.Dst, span) {
				return k
			}
		}
	}
	return 0
}

// lazyTemp reports whether what is received into Temp may stay on the board:
// every chunk there is touched by itself only.
func lazyTemp(p plan.Plan) bool {
	for _, round := range p.Rounds {
		for i := range round {
			for _, s := range spans(&round[i]) {
				if s.Buf == plan.Temp && s.Len() > 1 {
					return false
				}
			}
		}
	}
	return true
}

// A compiler makes the steps of one rank.
type compiler struct {
	*Program
	rank    int
	posters []poster
	taken   []int // messages taken of each rank
	lazy    bool
	onBoard map[int]ref // chunks of Temp that were received and not copied
	known   []int       // posts of each rank that were awaited
}

func (c *compiler) compile(p plan.Plan) {
	c.onBoard = make(map[int]ref)
	c.known = make([]int, len(c.posters))
	own := c.posters[c.rank].posts
	for k := 0; k <= len(p.Rounds); k++ {
		for i, posting := range own {
			if posting.round == k {
				c.post(i, posting)
			}
		}
		if k == len(p.Rounds) {
			break
		}
		for i := range p.Rounds[k] {
			c.move(&p.Rounds[k][i])
		}
	}
}

func (c *compiler) post(i int, p posting) {
	for _, it := range p.items {
		dst := ref{Span: it.Span, slot: true, rank: c.rank, unit: it.unit}
		c.add(step{kind: copying, dst: dst, a: c.read(it.Span)})
	}
	c.add(step{kind: post, count: uint32(i + 1)})
}

func (c *compiler) add(s step) { c.steps = append(c.steps, s) }

// read is where the contents of a span lie.
func (c *compiler) read(s plan.Span) ref {
	if s.Buf == plan.Temp {
		if r, ok := c.onBoard[s.Lo]; ok {
			return r
		}
		c.useTemp(s)
	}
	return ref{Span: s}
}

// write is where they are to be put.
func (c *compiler) write(s plan.Span) ref {
	if s.Buf == plan.Temp {
		for k := s.Lo; k < s.Hi; k++ {
			delete(c.onBoard, k)
		}
		c.useTemp(s)
	}
	return ref{Span: s}
}

func (c *compiler) useTemp(s plan.Span) {
	if c.TempHi == 0 {
		c.TempLo = s.Lo
	}
	c.TempLo, c.TempHi = min(c.TempLo, s.Lo), max(c.TempHi, s.Hi)
}

func (c *compiler) move(m *plan.Move) {
	switch m.Kind {
	case plan.Recv:
		from := c.take(m)
		if c.lazy && m.Dst.Buf == plan.Temp {
			c.onBoard[m.Dst.Lo] = from
			return
		}
		c.add(step{kind: copying, dst: c.write(m.Dst), a: from})
	case plan.Reduce:
		a, b := c.read(m.A), c.take(m)
		if m.Left {
			a, b = b, a
		}
		c.add(step{kind: combine, a: a, b: b, dst: c.write(m.Dst)})
	case plan.Copy:
		a := c.read(m.A)
		c.add(step{kind: copying, a: a, dst: c.write(m.Dst)})
	case plan.Combine:
		a, b := c.read(m.A), c.read(m.B)
		c.add(step{kind: combine, a: a, b: b, dst: c.write(m.Dst)})
	}
}

// take waits for the next message of a peer and tells where it lies.
func (c *compiler) take(m *plan.Move) ref {
	at := c.posters[m.Peer].sends[c.rank][c.taken[m.Peer]]
	c.taken[m.Peer]++
	if at.post+1 > c.known[m.Peer] {
		c.known[m.Peer] = at.post + 1
		c.add(step{kind: await, peer: m.Peer, count: uint32(at.post + 1)})
	}
	return ref{Span: m.Dst, slot: true, rank: m.Peer, unit: at.unit}
}

// strips finds rows of copies and combinations of the same length, which are
// carried out strip by strip, so that what one has written is still in the
// first cache when the next reads it.
func (c *compiler) strips() {
	for i := 0; i < len(c.steps); {
		n := 0
		for i+n < len(c.steps) && c.steps[i+n].kind >= copying && sameChunk(&c.steps[i], &c.steps[i+n], c.Chunks) {
			n++
		}
		c.steps[i].strip = n
		i += max(n, 1)
	}
}

// sameChunk reports whether two steps work on spans that are equally long
// whatever the lengths of the chunks are.
func sameChunk(a, b *step, chunks int) bool {
	return a.dst.Len() == 1 && b.dst.Len() == 1 && a.dst.Lo%chunks == b.dst.Lo%chunks
}

// A Load is what a Program does in a piece; lengths are parts of the vector.
type Load struct {
	Posts, Awaits    int
	Copied, Combined float64
}

// Load is what the program does in a piece.
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
			l.Copied += share
		case combine:
			l.Combined += share
		}
	}
	return l
}

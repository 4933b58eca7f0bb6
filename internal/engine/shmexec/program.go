package shmexec

import (
	"slices"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Program is the compiled plan of one rank. It runs once for each piece of the vector.
type Program struct {
	// Posts is the largest number of posts of a rank in a piece.
	Posts int
	// Units is the largest number of chunks that a rank posts in a piece.
	Units int
	// TempLo and TempHi are the chunks of Temp that need memory.
	TempLo, TempHi int
	// Single says that every span is a single chunk.
	Single bool
	// Chunks is the number of chunks into which the plan cuts a vector.
	Chunks int

	steps     []step
	readers   []int // the ranks that read posts of this rank
	distant   []int // the readers that are no neighbors
	unread    []int // the neighbors that this rank reads nothing from
	waiters   []int // the ranks that wait for the end of a piece: those that this rank reads, and unread
	needs     []int // readers and waiters: this rank uses their areas
	postsLess bool  // this rank has fewer posts than Posts
}

// A step is one action of a rank in a piece.
type step struct {
	kind  kind
	dst   ref
	a, b  ref
	peer  int    // await: the rank of the counter
	count uint32 // await, post: the value of the counter, relative to the start of the piece
	strip int    // the number of steps from this one on that are executed strip by strip
}

type kind uint8

const (
	await   kind = iota // wait for a post of another rank
	post                // raise the counter
	copying             // dst = a
	combine             // dst = a op b
)

// A ref refers to chunks of a buffer or of an area.
type ref struct {
	plan.Span
	inArea bool
	rank   int // the rank of the area
	unit   int // the first chunk there
}

// A Schedule determines when each rank posts its payloads, and their positions. It makes the plan of a rank
// when it needs it, so one goroutine at a time may use it.
type Schedule struct {
	plan   func(rank int) plan.Plan
	ranks  []*scheduled
	posts  int // the largest number of posts of a rank
	units  int // the largest number of chunks that a rank posts
	single bool
}

// scheduled has the plan of a rank, and its posts.
type scheduled struct {
	plan.Plan
	poster
}

// NewSchedule returns the Schedule of the plans of all ranks.
//
// A payload is posted as soon as it is complete, even if the plan sends it in a later round, and
// once for all its readers.
func NewSchedule(plans []plan.Plan) *Schedule {
	return newSchedule(func(rank int) plan.Plan { return plans[rank] }, len(plans), len(plans))
}

// ScheduleOf returns the Schedule of an algorithm.
func ScheduleOf(a plan.Algorithm, size, root int) *Schedule {
	first := size
	if a.Alike {
		first = min(size, alikeRanks)
	}
	return newSchedule(func(rank int) plan.Plan { return a.Plan(rank, size, root) }, size, first, root)
}

// alikeRanks is the number of first ranks that include a rank beside rank 0 and the root.
const alikeRanks = 3

// newSchedule returns the Schedule of some ranks. The first ones, and some more, post as often and as many chunks as any rank.
func newSchedule(of func(rank int) plan.Plan, size, first int, more ...int) *Schedule {
	s := &Schedule{plan: of, ranks: make([]*scheduled, size), single: true}
	check := func(rank int) {
		r := s.of(rank)
		s.posts = max(s.posts, len(r.rounds))
		s.units = max(s.units, r.units)
		s.single = s.single && r.Single()
	}
	for rank := range first {
		check(rank)
	}
	for _, rank := range more {
		check(rank)
	}
	return s
}

// of returns the plan and the posts of a rank.
func (s *Schedule) of(rank int) *scheduled {
	if s.ranks[rank] == nil {
		p := s.plan(rank)
		s.ranks[rank] = &scheduled{p, schedule(p)}
	}
	return s.ranks[rank]
}

// Units returns the largest number of chunks that a rank posts.
func (s *Schedule) Units() int { return s.units }

// Compile compiles the plan of a rank. Payloads that the plan receives into Temp are used in the
// area of their sender, if the plan only reads them.
func (s *Schedule) Compile(rank int) *Program {
	own := s.of(rank)
	p := &Program{
		Chunks: own.Chunks, Posts: s.posts, Units: s.units, Single: s.single,
		postsLess: len(own.rounds) < s.posts,
	}
	c := compiler{Program: p, rank: rank, schedule: s, taken: make([]int, len(s.ranks)), lazy: lazyTemp(own.Plan)}
	c.compile(own.Plan)
	c.strips()
	near := Neighbors(rank, len(s.ranks))
	for r, posts := range c.known {
		if posts > 0 {
			p.waiters = append(p.waiters, r)
		}
		if len(own.sentTo(r)) > 0 {
			p.readers = append(p.readers, r)
			if !slices.Contains(near, r) {
				p.distant = append(p.distant, r)
			}
		}
	}
	for _, r := range near {
		if c.known[r] == 0 {
			p.unread, p.waiters = append(p.unread, r), append(p.waiters, r)
		}
	}
	p.needs = slices.Concat(p.readers, p.waiters)
	slices.Sort(p.needs)
	p.needs = slices.Compact(p.needs)
	return p
}

// Neighbors returns the ranks before and after a rank, the first following the last.
//
// A rank compares its calls with those of its neighbors, and is at most Depth pieces ahead of
// them. If some ranks make another call than the others, there are two neighbors with different calls.
func Neighbors(rank, size int) []int {
	before, after := (rank+size-1)%size, (rank+1)%size
	switch {
	case size == 1:
		return nil
	case before == after:
		return []int{after}
	}
	return []int{before, after}
}

// CompileAlgorithm compiles the plan of one rank.
func CompileAlgorithm(a plan.Algorithm, size, root, rank int) *Program {
	return ScheduleOf(a, size, root).Compile(rank)
}

// Pieces returns the smallest number of pieces that makes the payloads of each fit into room bytes.
func (p *Program) Pieces(l exec.Layout, room int) int {
	pieces := 1
	for {
		need := p.room(l.Unit(p.Chunks, pieces))
		if need <= room {
			return pieces
		}
		pieces = max(pieces+1, pieces*need/room)
	}
}

func overlap(a, b plan.Span) bool { return a.Buf == b.Buf && a.Lo < b.Hi && b.Lo < a.Hi }

// A poster has the posts of a rank and the payloads in them.
type poster struct {
	rounds   []int     // by post: the round before which it is made
	payloads []payload // in the order of posts
	sends    []sent    // in the order of receivers, and of their receives
	units    int
}

// A sent is a payload for a receiver.
type sent struct {
	payload
	to int
}

// sentTo returns the payloads for a receiver.
func (p *poster) sentTo(rank int) []sent {
	at := func(rank int) int {
		i, _ := slices.BinarySearchFunc(p.sends, rank, func(s sent, to int) int { return s.to - to })
		return i
	}
	return p.sends[at(rank):at(rank+1)]
}

// A payload is a set of chunks that a rank posts.
type payload struct {
	plan.Span
	post int // the index of its post
	unit int // the first chunk in the area
}

// schedule determines the earliest round before which each payload can be posted: the round after
// the last one that writes its chunks.
func schedule(p plan.Plan) (s poster) {
	n := 0
	for _, round := range p.Rounds {
		for i := range round {
			if round[i].Kind == plan.Send {
				n++
			}
		}
	}
	if n == 0 {
		return s
	}
	s.rounds, s.sends = make([]int, 0, n), make([]sent, 0, n)
	for k, round := range p.Rounds {
		for i := range round {
			if m := &round[i]; m.Kind == plan.Send {
				ready := lastWrite(p, k, m.A)
				s.sends = append(s.sends, sent{payload{Span: m.A, post: ready}, m.Peer}) // post is a round until below
				s.rounds = append(s.rounds, ready)
			}
		}
	}
	slices.Sort(s.rounds)
	s.rounds = slices.Compact(s.rounds)
	payloads := 1 // at most
	for i := 1; i < n; i++ {
		if s.sends[i].payload != s.sends[i-1].payload {
			payloads++
		}
	}
	var units map[payload]int // by payload without its unit; a single payload has unit 0
	if payloads > 1 {
		units = make(map[payload]int, payloads)
	}
	s.payloads = make([]payload, 0, payloads)
	for i := range s.sends {
		x := &s.sends[i].payload
		x.post, _ = slices.BinarySearch(s.rounds, x.post)
		unit, isPosted := units[*x]
		if !isPosted && len(s.payloads) < payloads {
			unit = s.units
			if units != nil {
				units[*x] = unit
			}
			s.units += x.Len()
			s.payloads = append(s.payloads, payload{x.Span, x.post, unit})
		}
		x.unit = unit
	}
	slices.SortStableFunc(s.payloads, func(a, b payload) int { return a.post - b.post })
	slices.SortStableFunc(s.sends, func(a, b sent) int { return a.to - b.to })
	return s
}

// lastWrite returns the round after the last one before round k that writes to span, or 0.
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

// lazyTemp reports whether payloads received into Temp may stay in the area of their sender: all
// moves use the chunks of Temp one by one.
func lazyTemp(p plan.Plan) bool {
	for _, round := range p.Rounds {
		for i := range round {
			for _, s := range round[i].Spans() {
				if s.Buf == plan.Temp && s.Len() > 1 {
					return false
				}
			}
		}
	}
	return true
}

// A compiler produces the steps of one rank.
type compiler struct {
	*Program
	rank     int
	schedule *Schedule
	taken    []int // the number of messages received from each rank
	lazy     bool
	inPlace  map[int]ref // chunks of Temp that stay in the area of their sender
	known    []int       // the number of posts of each rank that were awaited
}

func (c *compiler) compile(p plan.Plan) {
	c.inPlace = make(map[int]ref)
	c.known = make([]int, len(c.schedule.ranks))
	own := c.schedule.of(c.rank).poster
	for k := 0; k <= len(p.Rounds); k++ {
		for post, round := range own.rounds {
			if round == k {
				own.payloads = c.post(post, own.payloads)
			}
		}
		if k < len(p.Rounds) {
			for i := range p.Rounds[k] {
				c.move(&p.Rounds[k][i])
			}
		}
	}
}

// post makes a post of the first payloads, and returns those of later posts.
func (c *compiler) post(i int, payloads []payload) []payload {
	for len(payloads) > 0 && payloads[0].post == i {
		x := payloads[0]
		payloads = payloads[1:]
		c.add(step{kind: copying, dst: ref{Span: x.Span, inArea: true, rank: c.rank, unit: x.unit}, a: c.read(x.Span)})
	}
	c.add(step{kind: post, count: uint32(i + 1)})
	return payloads
}

func (c *compiler) add(s step) { c.steps = append(c.steps, s) }

// read returns the position of the contents of a span.
func (c *compiler) read(s plan.Span) ref {
	if s.Buf == plan.Temp {
		if r, ok := c.inPlace[s.Lo]; ok {
			return r
		}
		c.useTemp(s)
	}
	return ref{Span: s}
}

// write returns the destination for a span.
func (c *compiler) write(s plan.Span) ref {
	if s.Buf == plan.Temp {
		for k := s.Lo; k < s.Hi; k++ {
			delete(c.inPlace, k)
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
			c.inPlace[m.Dst.Lo] = from
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

// take waits for the next message of a peer and returns its position.
func (c *compiler) take(m *plan.Move) ref {
	at := c.schedule.of(m.Peer).sentTo(c.rank)[c.taken[m.Peer]]
	c.taken[m.Peer]++
	if at.post+1 > c.known[m.Peer] {
		c.known[m.Peer] = at.post + 1
		c.add(step{kind: await, peer: m.Peer, count: uint32(at.post + 1)})
	}
	return ref{Span: m.Dst, inArea: true, rank: m.Peer, unit: at.unit}
}

// strips finds sequences of copies and combinations of the same length, which are executed strip
// by strip, so that the result of one is still in the first-level cache when the next reads it.
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

// sameChunk reports whether two steps work on spans of equal length, for all lengths of chunks.
func sameChunk(a, b *step, chunks int) bool {
	return a.dst.Len() == 1 && b.dst.Len() == 1 && a.dst.Lo%chunks == b.dst.Lo%chunks
}

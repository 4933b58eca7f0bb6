package plan

// A hierarchicalScan leaves on every rank the reduction of the vectors of ranks 0 up to itself, or before
// itself if it is exclusive, in their order. The head of each group of neighbors computes the sums
// within the group; the heads exchange the sums of their groups; and each rank combines its sum with that
// of the groups before its own. A rank waits three times, where in [RecursiveDoublingScan] it waits
// log n times. It is for shared memory, where received vectors stay in place.
//
// Groups are those of [Groups] if the ranks of a host are no neighbors.
type hierarchicalScan struct{ exclusive bool }

func (s hierarchicalScan) plan(h Hosts, rank, _ int) Plan {
	if !h.inOrder() {
		h = Groups(h.Size())
	}
	p := Plan{Chunks: 1}
	number := h.of[rank]
	own, within, before := one(Data, 0), one(Data, 0), Span{}
	if head := h.ranks[number][0]; head == rank {
		before = p.leadScan(h, number, s.exclusive)
	} else {
		p.round(send(own, head))
		within = one(Temp, 0)
		p.round(recv(within, head))
		if number > 0 {
			before = one(Temp, 1)
			p.round(recv(before, head))
		}
	}
	switch isHead := rank == h.ranks[number][0]; {
	case isHead && s.exclusive && number > 0:
		p.round(copyTo(own, before))
	case number > 0:
		p.round(combine(own, before, within))
	case !isHead:
		p.round(copyTo(own, within))
	}
	return p
}

// leadScan adds the rounds of the head of a group, up to the message with the sum of the groups before.
// It returns that sum.
func (p *Plan) leadScan(h Hosts, number int, exclusive bool) (before Span) {
	group := h.ranks[number]
	// Temp has the vectors of the group, the sums within it, and the sums of the groups before.
	vector := func(i int) Span { return one(Temp, i-1) }
	sum := func(i int) Span {
		if i == 0 {
			return one(Data, 0)
		}
		return one(Temp, len(group)+i-2)
	}
	other := func(i int) Span { return one(Temp, 2*len(group)-2+i) }

	var collect, post, carry, down Round
	for i := 1; i < len(group); i++ {
		collect = append(collect, recv(vector(i), group[i]))
	}
	p.round(collect...)
	for i := 1; i < len(group); i++ {
		p.round(combine(sum(i), sum(i-1), vector(i)))
	}
	for i := 1; i < len(group); i++ {
		if exclusive {
			post = append(post, send(sum(i-1), group[i]))
		} else {
			post = append(post, send(sum(i), group[i]))
		}
	}
	for later := number + 1; later < h.Count(); later++ {
		post = append(post, send(sum(len(group)-1), h.ranks[later][0]))
	}
	p.round(post...)
	if number == 0 {
		return before
	}
	for i := range number {
		carry = append(carry, recv(other(i), h.ranks[i][0]))
	}
	p.round(carry...)
	before = other(0)
	for i := 1; i < number; i++ {
		p.round(combine(other(number), before, other(i)))
		before = other(number)
	}
	for _, member := range group[1:] {
		down = append(down, send(before, member))
	}
	p.round(down...)
	return before
}

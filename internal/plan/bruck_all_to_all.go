package plan

// BruckAllToAll gives every rank its chunk of every other in ⌈log2 n⌉ rounds;
// each round moves about half of the vector. It is for short chunks, where the number of
// messages dominates. All chunks must have the same length.
//
// Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for
// all-to-all communications in multiport message-passing systems", IEEE TPDS
// 8(11), 1997, §3 with radix 2.
func BruckAllToAll(rank, size int) Plan {
	p := Plan{Chunks: size}

	// where[d] is the chunk that must travel d more ranks. In the round of bit b all chunks
	// with that bit in d travel b ranks, packed into one message.
	where := make([]Span, size)
	for d := range where {
		where[d] = one(Input, mod(rank+d, size))
	}
	packed := size / 2
	arrived := packed
	for bit := 1; bit < size; bit *= 2 {
		var pack []Move
		count := 0
		for d := range where {
			if d&bit != 0 {
				pack = appendCopy(pack, one(Temp, count), where[d])
				where[d] = one(Temp, arrived+count)
				count++
			}
		}
		p.round(pack...)
		p.round(
			send(span(Temp, 0, count), mod(rank+bit, size)),
			recv(span(Temp, arrived, arrived+count), mod(rank-bit, size)))
		arrived += count
	}
	var unpack []Move
	for d := range where {
		unpack = appendCopy(unpack, one(Data, mod(rank-d, size)), where[d])
	}
	p.round(unpack...)
	return p
}

// appendCopy appends a copy of one chunk, or makes the last copy longer if the
// chunk continues it.
func appendCopy(moves []Move, dst, src Span) []Move {
	if len(moves) > 0 {
		m := &moves[len(moves)-1]
		if m.Dst.Buf == dst.Buf && m.Dst.Hi == dst.Lo && m.A.Buf == src.Buf && m.A.Hi == src.Lo {
			m.Dst.Hi, m.A.Hi = dst.Hi, src.Hi
			return moves
		}
	}
	return append(moves, copyTo(dst, src))
}

package plan

// An arc is a sequence of neighboring chunks on the circle of all chunks.
type arc struct{ first, count int }

// spans returns the spans of the arc in a plan buffer of size chunks. The second is empty unless the
// arc runs past the last chunk.
func (a arc) spans(b Buf, size int) [2]Span {
	first := mod(a.first, size)
	if first+a.count <= size {
		return [2]Span{{b, first, first + a.count}, {}}
	}
	return [2]Span{{b, first, size}, {b, 0, first + a.count - size}}
}

// sendArc appends moves that send an arc to a peer.
func sendArc(to Round, b Buf, a arc, size, peer int) Round {
	for _, s := range a.spans(b, size) {
		if s.Len() > 0 {
			to = append(to, send(s, peer))
		}
	}
	return to
}

// recvArc appends moves that receive an arc from a peer.
func recvArc(to Round, b Buf, a arc, size, peer int) Round {
	for _, s := range a.spans(b, size) {
		if s.Len() > 0 {
			to = append(to, recv(s, peer))
		}
	}
	return to
}

// reduceArc appends moves that reduce an arc of plan buffer in with that of a peer.
func reduceArc(to Round, dst, in Buf, a arc, size, peer int) Round {
	for _, s := range a.spans(in, size) {
		if s.Len() > 0 {
			to = append(to, reduce(span(dst, s.Lo, s.Hi), s, peer))
		}
	}
	return to
}

// halvings returns size, size/2, size/4, …, 1, each rounded up: the numbers of chunks that a
// rank is responsible for, and the distances to its peers.
func halvings(size int) []int {
	hs := []int{size}
	for n := size; n > 1; {
		n = (n + 1) / 2
		hs = append(hs, n)
	}
	return hs
}

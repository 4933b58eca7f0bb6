package plan

// An arc is a sequence of neighboring chunks on the circle of all chunks.
type arc struct{ first, count int }

// spans returns the spans of the arc in a buffer of size chunks: two if it runs past the last
// chunk.
func (a arc) spans(b Buf, size int) []Span {
	first := mod(a.first, size)
	if first+a.count <= size {
		return []Span{{b, first, first + a.count}}
	}
	return []Span{{b, first, size}, {b, 0, first + a.count - size}}
}

// sendArc sends an arc to a peer.
func sendArc(b Buf, a arc, size, peer int) []Move {
	var ms []Move
	for _, s := range a.spans(b, size) {
		ms = append(ms, send(s, peer))
	}
	return ms
}

// recvArc receives an arc from a peer.
func recvArc(b Buf, a arc, size, peer int) []Move {
	var ms []Move
	for _, s := range a.spans(b, size) {
		ms = append(ms, recv(s, peer))
	}
	return ms
}

// reduceArc reduces an arc of buffer in with that of a peer.
func reduceArc(dst, in Buf, a arc, size, peer int) []Move {
	var ms []Move
	for _, s := range a.spans(in, size) {
		ms = append(ms, reduce(span(dst, s.Lo, s.Hi), s, peer))
	}
	return ms
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

package p2p

import "github.com/nexar-go/nexar/internal/link"

// Regions is the memory of one payload: First, followed by More.
type Regions struct {
	First []byte
	More  [][]byte
	// Elem is the size of an element in bytes. The length of a received message must be a multiple of
	// it; 0 allows every length.
	Elem int
	// Landing, of a receive, says that First is memory of a device, all of Landing. There is no More.
	Landing *link.Landing
	// Fetch, of a send, says that First is memory of a device: see [link.Transfer.Fetch]. There is no More.
	Fetch func(at, n int) []byte
	// Received, of a send, makes StartSend fail with ErrNoReceive if the message must wait for a receive and none that takes it has begun.
	Received bool
}

// Bytes returns contiguous memory as Regions.
func Bytes(b []byte) *Regions { return &Regions{First: b} }

// Len returns the length of all regions together, in bytes.
func (r *Regions) Len() int {
	n := len(r.First)
	for _, m := range r.More {
		n += len(m)
	}
	return n
}

// cut returns the regions that make up the first n bytes of r.
func (r *Regions) cut(n int) (first []byte, more [][]byte) {
	if n <= len(r.First) {
		return r.First[:n], nil
	}
	n -= len(r.First)
	for i, m := range r.More {
		if n <= len(m) {
			more := append([][]byte(nil), r.More[:i]...)
			return r.First, append(more, m[:n])
		}
		n -= len(m)
	}
	return r.First, r.More
}

// fill copies b to the first bytes of r.
func (r *Regions) fill(b []byte) {
	if r.Landing != nil {
		r.Landing.Put(b, 0)
		return
	}
	b = b[copy(r.First, b):]
	for _, m := range r.More {
		b = b[copy(m, b):]
	}
}

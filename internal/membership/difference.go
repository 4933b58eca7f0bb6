package membership

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
)

// A Hash is the SHA-256 of a whole view.
type Hash [sha256.Size]byte

// A Difference leads from a view to the next one that the seed distributes. The seed signs the
// epoch and the hash of the whole view that results, not the Difference: a receiver applies it to
// its own view, and compares the hash.
type Difference struct {
	Base, Epoch uint64   // of the view before and of the view after
	Gone        []uint32 // ranks in the view before, in ascending order
	Joined      []Node   // get the ranks after those of the nodes that stay
	Hash        Hash     // of the view after
	Signature   []byte   `wire:"signature"` // of the CA of the cluster, over Epoch and Hash
}

var errDifference = errors.New("the difference does not fit the view")

// Diff returns the difference between two views, without a signature. ok is false if there is none:
// the nodes of both views have a different order.
func Diff(before, after View) (d Difference, ok bool) {
	d = Difference{Base: before.Epoch, Epoch: after.Epoch, Hash: after.Hash()}
	stay := 0
	for rank, n := range before.Nodes {
		if stay < after.Size() && after.Nodes[stay].ID == n.ID {
			stay++
		} else {
			d.Gone = append(d.Gone, uint32(rank))
		}
	}
	d.Joined = after.Nodes[stay:]
	next, err := d.Apply(before)
	return d, err == nil && next.Hash() == d.Hash
}

// Apply returns the view that follows before. It does not verify the hash.
func (d *Difference) Apply(before View) (after View, err error) {
	if before.Epoch != d.Base || d.Epoch <= d.Base {
		return View{}, fmt.Errorf("%w: it leads from view %d to view %d, expected one from view %d", errDifference, d.Base, d.Epoch, before.Epoch)
	}
	after = View{Epoch: d.Epoch, Nodes: make([]Node, 0, before.Size()+len(d.Joined))}
	from := 0
	for _, gone := range d.Gone {
		if uint64(gone) < uint64(from) || uint64(gone) >= uint64(before.Size()) {
			return View{}, fmt.Errorf("%w: it removes rank %d of %d, expected ranks in ascending order", errDifference, gone, before.Size())
		}
		after.Nodes = append(after.Nodes, before.Nodes[from:gone]...)
		from = int(gone) + 1
	}
	after.Nodes = append(after.Nodes, before.Nodes[from:]...)
	after.Nodes = append(after.Nodes, d.Joined...)
	for i := max(after.Size()-len(d.Joined), 1); i < after.Size(); i++ {
		after.Nodes[i].share(&after.Nodes[i-1])
	}
	return after, nil
}

// share makes n share the memory of equal fields of another node.
func (n *Node) share(other *Node) {
	if n.Host == other.Host {
		n.Host = other.Host
	}
	if slices.Equal(n.Endpoints, other.Endpoints) {
		n.Endpoints = other.Endpoints
	}
}

// Hash returns the hash of the view. Two views have the same hash only if their epochs, and all
// fields of their nodes, are equal.
func (v View) Hash() (sum Hash) {
	w := hashWriter{hash: sha256.New()}
	w.number(v.Epoch)
	w.number(uint64(v.Size()))
	for i := range v.Nodes {
		n := &v.Nodes[i]
		w.b = append(w.b, n.ID[:]...)
		w.number(uint64(len(n.Addrs)))
		for _, a := range n.Addrs {
			w.text(a)
		}
		w.text(n.Host)
		w.text(n.Name)
		w.number(uint64(len(n.Endpoints)))
		for _, e := range n.Endpoints {
			w.text(e.Transport)
			w.text(e.Addr)
		}
	}
	w.flush()
	return Hash(w.hash.Sum(sum[:0]))
}

// A hashWriter writes fields to a hash, each text after its length.
type hashWriter struct {
	hash hash.Hash
	b    []byte
}

func (w *hashWriter) number(n uint64) {
	if w.b = binary.BigEndian.AppendUint64(w.b, n); len(w.b) > 4<<10 {
		w.flush()
	}
}

func (w *hashWriter) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *hashWriter) flush() {
	w.hash.Write(w.b) // never fails
	w.b = w.b[:0]
}

// clone returns a copy that shares no memory with d, except the texts of nodes.
func (d *Difference) clone() Difference {
	c := *d
	c.Gone, c.Signature = slices.Clone(d.Gone), slices.Clone(d.Signature)
	return c
}

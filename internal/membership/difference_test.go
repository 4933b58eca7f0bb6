package membership

import (
	"slices"
	"testing"
)

// TestDiff: every difference leads to the same view, and there is none if the order changes.
func TestDiff(t *testing.T) {
	var s State
	a, _ := s.Apply(Entry{Kind: Form, Nodes: []Node{node(0), node(1), node(2)}})
	b, _ := s.ApplyAll([]Entry{{Kind: Fail, IDs: []NodeID{a.Nodes[1].ID}}, {Kind: Join, Nodes: []Node{node(3)}}})
	d, ok := Diff(a, b)
	if !ok || d.Base != a.Epoch || d.Epoch != b.Epoch || !slices.Equal(d.Gone, []uint32{1}) || len(d.Joined) != 1 {
		t.Errorf("difference %+v (%v)", d, ok)
	}
	if got, err := d.Apply(a); err != nil || got.Hash() != b.Hash() {
		t.Errorf("it leads to %+v (%v), want %+v", got, err, b)
	}
	if _, err := d.Apply(b); err == nil {
		t.Error("it fits the view after, too")
	}
	c := View{Epoch: b.Epoch + 1, Nodes: []Node{b.Nodes[1], b.Nodes[0], b.Nodes[2]}}
	if d, ok := Diff(b, c); ok {
		got, err := d.Apply(b)
		if err != nil || got.Hash() != c.Hash() {
			t.Errorf("a view with another order has the difference %+v", d)
		}
	}
}

// TestViewHash: every field of a view changes its hash.
func TestViewHash(t *testing.T) {
	base := View{Epoch: 3, Nodes: []Node{{ID: node(1).ID, Addrs: []string{"a:1", "b:2"}, Host: "h", Name: "n", Endpoints: []Endpoint{{Transport: "tcp", Addr: "c:3"}}}, node(2)}}
	seen := map[Hash]int{base.Hash(): -1}
	for i, change := range []func(v *View){
		func(v *View) { v.Epoch++ },
		func(v *View) { v.Nodes = v.Nodes[:1] },
		func(v *View) { slices.Reverse(v.Nodes) },
		func(v *View) { v.Nodes[0].ID[15]++ },
		func(v *View) { v.Nodes[0].Addrs[0] = "a:2" },
		func(v *View) { v.Nodes[0].Addrs = []string{"a:1b:2"} },
		func(v *View) { v.Nodes[0].Host = "g" },
		func(v *View) { v.Nodes[0].Name = "m" },
		func(v *View) { v.Nodes[0].Host, v.Nodes[0].Name = "hn", "" },
		func(v *View) { v.Nodes[0].Endpoints[0].Transport = "quic" },
		func(v *View) { v.Nodes[0].Endpoints[0].Addr = "" },
		func(v *View) { v.Nodes[0].Endpoints = nil },
	} {
		v := base.clone()
		change(&v)
		if other, same := seen[v.Hash()]; same {
			t.Errorf("change %d has the hash of %d", i, other)
		}
		seen[v.Hash()] = i
	}
}

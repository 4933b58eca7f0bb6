package membership

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func ids(v View) []NodeID {
	var out []NodeID
	for _, n := range v.Nodes {
		out = append(out, n.ID)
	}
	return out
}

// Random entries have the documented effects: epochs rise by one, nodes that stay keep
// their order, new ones come last, and a replica that replays the log agrees.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, replica State
		next := rapid.IntRange(1, 9).Draw(t, "world")
		if _, err := s.Apply(Entry{Kind: Form, Nodes: nodes(next)}); err != nil {
			t.Fatal(err)
		}
		log := []Entry{{Kind: Form, Nodes: nodes(next)}}
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			before := s.View()
			e := Entry{Kind: rapid.SampledFrom([]Kind{Join, Leave, Fail}).Draw(t, "kind")}
			want := ids(before)
			if e.Kind == Join || before.Size() == 0 {
				e.Kind = Join
				for range rapid.IntRange(1, 3).Draw(t, "joiners") {
					e.Nodes = append(e.Nodes, node(next))
					want = append(want, node(next).ID)
					next++
				}
			} else {
				e.IDs = rapid.SliceOfNDistinct(rapid.SampledFrom(want), 1, -1, rapid.ID[NodeID]).Draw(t, "gone")
				want = slices.DeleteFunc(want, func(id NodeID) bool { return slices.Contains(e.IDs, id) })
			}
			got, err := s.Apply(e)
			if err != nil {
				t.Fatalf("%v: %v", e, err)
			}
			if got.Epoch != before.Epoch+1 || !slices.Equal(ids(got), want) {
				t.Fatalf("epoch %d, nodes %v, want epoch %d, nodes %v", got.Epoch, ids(got), before.Epoch+1, want)
			}
			for i, n := range got.Nodes {
				if r, ok := got.Rank(n.ID); r != i || !ok {
					t.Fatalf("node at %d has rank %d", i, r)
				}
			}
			log = append(log, e)
		}
		for _, e := range log {
			if _, err := replica.Apply(e); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(replica.View(), s.View()) {
			t.Fatalf("a replica has %v, want %v", replica.View(), s.View())
		}
	})
}

func TestStateRefuses(t *testing.T) {
	form := Entry{Kind: Form, Nodes: nodes(3)}
	fail := func(i int) Entry { return Entry{Kind: Fail, IDs: []NodeID{node(i).ID}} }
	join := func(i ...int) (e Entry) {
		e.Kind = Join
		for _, i := range i {
			e.Nodes = append(e.Nodes, node(i))
		}
		return e
	}
	tests := []struct {
		name string
		log  []Entry // all but the last are valid
		want error   // nil: any
	}{
		{"join before form", []Entry{join(1)}, ErrNotFormed},
		{"leave before form", []Entry{{Kind: Leave, IDs: []NodeID{node(1).ID}}}, ErrNotFormed},
		{"form twice", []Entry{form, {Kind: Form, Nodes: []Node{node(9)}}}, ErrFormed},
		{"a member joins", []Entry{form, join(1)}, ErrReused},
		{"a failed node joins again", []Entry{form, fail(1), join(1)}, ErrReused},
		{"twice in one entry", []Entry{form, join(7, 7)}, ErrReused},
		{"an unknown node fails", []Entry{form, fail(7)}, ErrUnknown},
		{"a failed node fails again", []Entry{form, fail(1), fail(1)}, ErrUnknown},
		{"fails twice in one entry", []Entry{form, {Kind: Fail, IDs: []NodeID{node(1).ID, node(1).ID}}}, ErrUnknown},
		{"no address", []Entry{form, {Kind: Join, Nodes: []Node{{ID: NodeID{9}}}}}, ErrAddress},
		{"empty address", []Entry{form, {Kind: Join, Nodes: []Node{{ID: NodeID{9}, Addrs: []string{""}}}}}, ErrAddress},
		{"form without nodes", []Entry{{Kind: Form}}, nil},
		{"leave without nodes", []Entry{form, {Kind: Leave}}, nil},
		{"joins and goes", []Entry{form, {Kind: Join, Nodes: []Node{node(7)}, IDs: []NodeID{node(1).ID}}}, nil},
		{"unknown kind", []Entry{form, {Kind: 77, IDs: []NodeID{node(1).ID}}}, nil},
	}
	for _, test := range tests {
		var s State
		for _, e := range test.log[:len(test.log)-1] {
			if _, err := s.Apply(e); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
		}
		before := s.View()
		_, err := s.Apply(test.log[len(test.log)-1])
		if err == nil || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
		if after := s.View(); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: a refused entry changed %v to %v", test.name, before, after)
		}
	}
}

// A view does not change with the values that it was made from or returned with.
func TestViewsShareNoMemory(t *testing.T) {
	var s State
	in := nodes(2)
	first, err := s.Apply(Entry{Kind: Form, Nodes: in})
	if err != nil {
		t.Fatal(err)
	}
	want := s.View()
	in[0].Addrs[0], first.Nodes[1].Addrs[0], first.Nodes[0].Name = "x:1", "y:1", "z"
	if got := s.View(); !reflect.DeepEqual(got, want) {
		t.Errorf("view is now %v, want %v", got, want)
	}
}

package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// node returns the i-th of a set of different nodes.
func node(i int) Node {
	return Node{
		ID:    NodeID{byte(i >> 8), byte(i), 1},
		Addrs: []string{fmt.Sprintf("10.0.%d.%d:7000", i>>8, i&0xff)},
		Host:  fmt.Sprintf("host%d", i),
		Name:  fmt.Sprintf("host%d:%d", i, 1000+i),
	}
}

func nodes(n int) []Node {
	var out []Node
	for i := range n {
		out = append(out, node(i))
	}
	return out
}

func TestViewRank(t *testing.T) {
	v := View{Epoch: 1, Nodes: nodes(5)}
	for want, n := range v.Nodes {
		if got, ok := v.Rank(n.ID); got != want || !ok {
			t.Errorf("rank %d (%v), want %d", got, ok, want)
		}
	}
	if got, ok := v.Rank(node(5).ID); ok {
		t.Errorf("an unknown node has rank %d", got)
	}
}

func TestViewDescribe(t *testing.T) {
	v := View{Epoch: 1, Nodes: nodes(2)}
	if got, want := v.Describe(1), "rank 1 10.0.0.1:7000 (host1:1001)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := v.Describe(2); !strings.Contains(got, "not in the view") {
		t.Errorf("got %q", got)
	}
}

func TestViewCheck(t *testing.T) {
	if err := (View{Epoch: 1, Nodes: nodes(5)}).Check(); err != nil {
		t.Error(err)
	}
	if err := (View{Nodes: append(nodes(2), node(0))}).Check(); err == nil {
		t.Error("a view with a node twice is accepted")
	}
	for _, addrs := range [][]string{nil, {""}, {"10.0.0.1:1", ""}} {
		if err := (View{Nodes: []Node{{Addrs: addrs}}}).Check(); !errors.Is(err, ErrAddress) {
			t.Errorf("addresses %q: error %v, want %v", addrs, err, ErrAddress)
		}
	}
}

// TestViewWithout: without removes the nodes that are gone and keeps the order. To append to the result does not change the
// view.
func TestViewWithout(t *testing.T) {
	v := View{Epoch: 3, Nodes: append(make([]Node, 0, 8), nodes(5)...)}
	for gone := -1; gone < 5; gone++ {
		w := v.without(func(id NodeID) bool { return id == node(gone).ID })
		want := slices.DeleteFunc(nodes(5), func(n Node) bool { return n.ID == node(gone).ID })
		if w.Epoch != 3 || !slices.EqualFunc(w.Nodes, want, func(a, b Node) bool { return a.ID == b.ID }) {
			t.Errorf("without node %d: %v", gone, w)
		}
		w.Nodes = append(w.Nodes, node(9))
	}
	if extra := v.Nodes[:6][5]; extra.ID != (NodeID{}) {
		t.Errorf("the view has got a node: %v", extra)
	}
	if n := testing.AllocsPerRun(10, func() { v.without(func(NodeID) bool { return false }) }); n > 0 {
		t.Errorf("%v allocations although no node is gone", n)
	}
}

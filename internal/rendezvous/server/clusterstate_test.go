package server

import (
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

// TestCheckOfSnapshots: a seed refuses a state that is malformed, or that lacks a view which
// it has distributed.
func TestCheckOfSnapshots(t *testing.T) {
	s := newSeed(t, 1, nil).Server
	s.Close()
	s.state.cluster = clusterState{}
	old, err := s.state.cluster.marshal()
	if err != nil {
		t.Fatal(err)
	}
	node := membership.Node{ID: membership.NodeID{1}, Addrs: []string{"127.0.0.1:1"}}
	if err := s.state.cluster.apply(change{Kind: changeView, Entries: []membership.Entry{{Kind: membership.Form, Nodes: []membership.Node{node}}}}); err != nil {
		t.Fatal(err)
	}
	current, err := s.state.cluster.marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		state []byte
		want  string // in the error; empty: none
	}{
		"the same":      {current, ""},
		"an older view": {old, "view"},
		"garbage":       {[]byte("garbage"), "invalid"},
		"nothing":       {nil, "unexpected end"},
	} {
		err := machine{s}.Check(test.state)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, test.want)
		}
	}
}

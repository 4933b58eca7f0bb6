package faults

import (
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestCloseDuringPanic: a rank panics, and a deferred call closes its node. The others learn that it has failed, and why. The panic
// goes on.
func TestCloseDuringPanic(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(n *nexar.Node)
		text string
	}{
		"deferred": {func(n *nexar.Node) {
			defer n.Close()
			panic("wrong shape")
		}, "it panicked: wrong shape"},
		"in a deferred function": {func(n *nexar.Node) {
			defer func() { n.Close() }()
			panic("wrong shape")
		}, "it panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, _ := worldtest.JoinAll(t, 3, nexar.SeedConfig{}, nexar.Config{})
			err := worldtest.ForEach(3, func(rank int) error {
				if rank == 1 {
					return panics(func() { test.run(nodes[1]) })
				}
				err := nodes[rank].World().Barrier(t.Context())
				p, ok := errors.AsType[*nexar.PeerError](err)
				if !ok || p.Rank != 1 || p.Left || !strings.Contains(err.Error(), test.text) {
					t.Errorf("rank %d: got error %v, want the failure of rank 1 with %q", rank, err, test.text)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// panics returns an error unless f panics with its own value.
func panics(f func()) (err error) {
	defer func() {
		if v := recover(); v != "wrong shape" {
			err = errors.New("the panic does not go on")
		}
	}()
	f()
	return nil
}

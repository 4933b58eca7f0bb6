package faults

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// collectiveMethods has the methods that all ranks call together, as errors name them.
var collectiveMethods = map[string]struct {
	op   string
	call func(ctx context.Context, n *nexar.Node) error
}{
	"Comm.Barrier":     {"barrier", func(ctx context.Context, n *nexar.Node) error { return n.World().Barrier(ctx) }},
	"Comm.Dup":         {"dup", func(ctx context.Context, n *nexar.Node) error { _, err := n.World().Dup(ctx); return err }},
	"Comm.Exclude":     {"exclude", func(ctx context.Context, n *nexar.Node) error { _, err := n.World().Exclude(ctx, nil); return err }},
	"Comm.Include":     {"include", func(ctx context.Context, n *nexar.Node) error { _, err := n.World().Include(ctx); return err }},
	"Comm.Split":       {"split", func(ctx context.Context, n *nexar.Node) error { _, err := n.World().Split(ctx, 0, 0); return err }},
	"Comm.SplitHost":   {"split_host", func(ctx context.Context, n *nexar.Node) error { _, err := n.World().SplitHost(ctx); return err }},
	"Comm.Sub":         {"sub", func(ctx context.Context, n *nexar.Node) error { _, err := n.World().Sub(ctx, []int{0, 1}); return err }},
	"Node.Reconfigure": {"reconfigure", func(ctx context.Context, n *nexar.Node) error { _, err := n.Reconfigure(ctx); return err }},
	"Sync":             {"sync", func(ctx context.Context, n *nexar.Node) error { return nexar.Sync(ctx, n.World(), new(int)) }},
}

// otherMethods has the methods with a context that wait for no call of the same method on all ranks. For Node.Epochs see
// TestEpochsInDeadlock and TestEpochsMismatch.
const otherMethods = "Comm.Call Comm.MatchedProbe Comm.StartBarrier Node.Epochs Node.Failures Node.Leave Node.Shutdown"

// TestCollectiveMethodsMismatch: one rank calls a method that all ranks have to call, and the other one an all-reduce. Both
// get an error that names both calls. The time is fake.
func TestCollectiveMethodsMismatch(t *testing.T) {
	for name, method := range collectiveMethods {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldtest.NewSimCluster(t, 1, 2)
				defer w.Close()
				nodes := w.JoinHosts(t, 2)
				var errs [2]error
				var calls sync.WaitGroup
				calls.Go(func() { errs[0] = method.call(w.Ctx, nodes[0]) })
				calls.Go(func() { errs[1] = nexar.AllReduce(w.Ctx, nodes[1].World(), []int{1}, nexar.Sum) })
				calls.Wait()
				for rank, err := range errs {
					m, ok := errors.AsType[*nexar.MismatchError](err)
					if !ok || m.Call.Op != method.op && m.PeerCall.Op != method.op || m.Call.Op != "all_reduce" && m.PeerCall.Op != "all_reduce" {
						t.Errorf("rank %d: %v, want a mismatch of %s and all_reduce", rank, err, method.op)
					}
				}
				for _, n := range nodes {
					n.Close()
				}
			})
		})
	}
	ctx := reflect.TypeFor[context.Context]()
	for _, of := range []reflect.Type{reflect.TypeFor[*nexar.Comm](), reflect.TypeFor[*nexar.Node]()} {
		for i := range of.NumMethod() {
			m := of.Method(i)
			name := of.Elem().Name() + "." + m.Name
			_, isCollective := collectiveMethods[name]
			if takes := m.Type.NumIn() > 1 && m.Type.In(1) == ctx; takes && !isCollective && !slices.Contains(strings.Fields(otherMethods), name) {
				t.Errorf("%s takes a context: add it to collectiveMethods, or to otherMethods", name)
			}
		}
	}
}

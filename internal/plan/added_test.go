package plan_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// shift is a collective: Data of a rank becomes Data of the next one.
var shift = plan.Descriptor{
	Name: "shift", Both: true,
	From: func(rank, size, _, chunk int) (from, at int) { return (rank + size - 1) % size, chunk },
	Algorithms: []plan.Algorithm{
		{Name: "direct", Plan: shiftPlan, Single: true, Uneven: true},
	},
}

// shiftPlan sends Data to the next rank. The message of the previous rank waits in Temp until Data is sent.
func shiftPlan(rank, size, _ int) plan.Plan {
	data, temp := plan.Span{Buf: plan.Data, Hi: 1}, plan.Span{Buf: plan.Temp, Hi: 1}
	if size == 1 {
		return plan.Plan{Chunks: 1}
	}
	return plan.Plan{Chunks: 1, Temps: 1, Rounds: []plan.Round{
		{{Kind: plan.Send, A: data, Peer: (rank + 1) % size}, {Kind: plan.Recv, Dst: temp, Peer: (rank + size - 1) % size}},
		{{Kind: plan.Copy, Dst: data, A: temp}},
	}}
}

// TestAddedCollective: a descriptor and a plan are all that a collective needs to be proved, to be found by its name, to be
// predicted and pinned, and to run over links and in shared memory.
func TestAddedCollective(t *testing.T) {
	kind := plan.Add(t, shift)
	if !slices.Contains(plan.Collectives(), kind) {
		t.Errorf("the collectives are %v", plan.Collectives())
	}
	for size := 1; size <= 20; size++ {
		if err := plan.Check(kind, 0, plan.Algorithms(kind)[0].Plans(size, 0)); err != nil {
			t.Error(err)
		}
	}
	wrong := plan.Algorithms(kind)[0].Plans(3, 0)
	wrong[1].Rounds = wrong[1].Rounds[:1]
	if err := plan.Check(kind, 0, wrong); err == nil {
		t.Error("a plan that lacks the result is proved right")
	}
	if pins, err := selector.ParsePins([]string{"shift=direct/2"}); err != nil || pins[kind] != (selector.Pin{Channels: 2}) {
		t.Errorf("the pin is %v, %v", pins, err)
	}
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			const size, count = 4, 1000
			each(t, runners(t, size, shared), func(r *collective.Runner) error {
				data := slices.Repeat([]uint32{uint32(r.Rank)}, count)
				vector := collective.Elements{At: (*byte)(unsafe.Pointer(&data[0])), N: count, Of: collective.Element{Type: uint8(kernel.Uint32), Size: 4}}
				task := new(collective.Task).OnVector(r, kind, vector, 0, 0)
				if task.Err != nil {
					return task.Err
				}
				op, err := r.Begin(task)
				if err == nil {
					err = task.End(t.Context(), op)
				}
				want := slices.Repeat([]uint32{uint32((r.Rank + size - 1) % size)}, count)
				if err == nil && !slices.Equal(data, want) {
					err = fmt.Errorf("got %d, ..., want %d", data[0], want[0])
				}
				call, name := collective.Describe(task.Schedule.Call), "direct"
				if shared {
					name += " in shared memory"
				}
				if call.Op != "shift" || call.Plan != name || call.Length != count {
					t.Errorf("the call is %+v", call)
				}
				return err
			})
		})
	}
}

// runners makes the communicator of a world of this process, and returns the runner of each rank.
func runners(t *testing.T, size int, shared bool) []*collective.Runner {
	t.Helper()
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	network, view := mem.NewNetwork(), membership.View{Epoch: 1}
	list, paths, ranks := make([]*collective.Runner, size), make([][]mesh.Path, size), make([]int, size)
	for rank := range size {
		id := membership.NodeID{byte(rank + 1)}
		view.Nodes = append(view.Nodes, membership.Node{ID: id, Addrs: []string{id.String()}, Host: "here"})
		areas := 0
		if shared {
			areas = negotiate.AreaSize()
		}
		network.Share(negotiate.Areas, areas)
		l, err := network.Listen(id.String())
		if err != nil {
			t.Fatal(err)
		}
		paths[rank], ranks[rank] = []mesh.Path{{Transport: l}}, rank
		list[rank] = &collective.Runner{Rank: rank, Size: size, Settings: new(collective.Settings)}
	}
	each(t, list, func(r *collective.Runner) error {
		m, err := mesh.Form(t.Context(), mesh.Config{Self: view.Nodes[r.Rank].ID, View: view, Paths: paths[r.Rank], Loop: mem.Loop})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = m.Close(context.Background()) })
		if err := m.Formed(); err != nil {
			return err
		}
		g, err := m.Group(view, ranks)
		if err != nil {
			return err
		}
		var classes cost.PathClasses
		for range size - 1 {
			classes.Add(transport.ClassMemory, true)
		}
		r.Engine, r.Selector = m.Engine().NewComm(1, r.Rank, g.Links), selector.New(r.Rank, size, pool, cost.New(cost.QUIC()))
		control := m.Engine().NewComm(2, r.Rank, g.Links)
		defer control.Close()
		_, err = negotiate.Run(t.Context(), negotiate.Config{
			Comm: r.Engine, Control: control, Rank: r.Rank, Hosts: plan.HostsOf(make([]string, size)), Classes: classes,
			Allocator: new(shmexec.Allocator), SameProcess: true, Selector: r.Selector, Pool: pool, Log: slog.New(slog.DiscardHandler),
		})
		return err
	})
	return list
}

// each calls f for all ranks concurrently, and requires that it succeeds.
func each(t *testing.T, list []*collective.Runner, f func(r *collective.Runner) error) {
	t.Helper()
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for rank, r := range list {
		all.Go(func() { errs[rank] = f(r) })
	}
	all.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
}

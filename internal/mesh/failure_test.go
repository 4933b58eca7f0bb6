package mesh

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/sim"
)

// pending starts a receive on some ranks from ranks that never send. It returns a function that
// waits for the errors.
func (w *world) pending(from func(rank int) int, ranks ...int) func() []error {
	errs := make([]error, len(w.comms))
	var all sync.WaitGroup
	for _, rank := range ranks {
		all.Go(func() {
			_, errs[rank] = recvOn(w.Context(), w.comms[rank], make([]byte, 8), 1, from(rank), 5)
		})
	}
	return func() []error {
		all.Wait()
		return errs
	}
}

// TestOneErrorForFailures: several nodes fail at the same time. The others log one error each, for the first of them.
func TestOneErrorForFailures(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		w.network.Crash(w.host(1))
		w.network.Crash(w.host(2))
		time.Sleep(time.Minute)
		for _, rank := range []int{0, 3} {
			if got := w.notes[rank].all(); !slices.Equal(got, []int{1, 2}) {
				t.Errorf("rank %d: failed nodes %v, want 1 and 2", rank, got)
			}
			if got := w.notes[rank].errors; got != 1 {
				t.Errorf("rank %d: %d lines with errors, want 1", rank, got)
			}
		}
	})
}

// TestFailureReachesAllRanks kills a node that some nodes do not watch. Waiting operations end on all
// ranks with errors that name the node.
func TestFailureReachesAllRanks(t *testing.T) {
	const n, victim = 10, 3
	for name, test := range map[string]struct {
		kill func(network *sim.Network, host string)
		most time.Duration
	}{
		"crash":     {(*sim.Network).Crash, 3 * delay}, // with a refused dial
		"power off": {(*sim.Network).PowerOff, silence + interval + 2*delay},
		"partition": {func(n *sim.Network, host string) { n.Partition(host) }, silence + interval + 2*delay},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, n, func(w *world) {
				w.form()
				time.Sleep(10*time.Second + 300*time.Millisecond)
				others := w.ranks(victim)
				// No rank waits for the victim itself.
				wait := w.pending(func(rank int) int { return (victim + 1 + (rank+1)%2) % n }, others...)
				time.Sleep(time.Second)
				test.kill(w.network, w.host(victim))
				began := time.Now()
				errs := wait()
				if took := time.Since(began); took > test.most {
					t.Errorf("it took %v, at most %v was needed", took, test.most)
				}
				time.Sleep(time.Minute)
				for _, rank := range others {
					wantPeerError(t, errs[rank], victim, false)
					if got := w.notes[rank].all(); !slices.Equal(got, []int{victim}) {
						t.Errorf("rank %d: failed nodes %v, want %d once", rank, got, victim)
					}
				}
				for rank, err := range w.reduce(others...) {
					if rank != victim {
						wantPeerError(t, err, victim, false)
					}
				}
			})
		})
	}
	if got := len(membership.Watchers(membership.View{Nodes: make([]membership.Node, n)}, victim, membership.WatchersDefault)); got >= n-1 {
		t.Fatalf("%d nodes watch the victim: the test shows nothing", got)
	}
}

// TestReportsAreForwarded: if the reports of the watchers of a failed node reach a rank late, those
// of other nodes reach it earlier.
func TestReportsAreForwarded(t *testing.T) {
	const n, victim = 10, 3
	inBubble(t, n, func(w *world) {
		w.form()
		time.Sleep(10 * time.Second)
		watchers := membership.Watchers(w.view, victim, membership.WatchersDefault)
		far := w.ranks(append(watchers, victim)...)[0]
		for _, rank := range watchers {
			w.network.SetOneWay(w.host(rank), w.host(far), sim.Link{Delay: 3 * time.Second})
		}
		wait := w.pending(func(int) int { return victim }, far)
		time.Sleep(10 * time.Second)
		w.network.PowerOff(w.host(victim))
		began := time.Now()
		wantPeerError(t, wait()[far], victim, false)
		if took, most := time.Since(began), timeout+2*interval+3*delay; took > most {
			t.Errorf("it took %v, at most %v was needed", took, most)
		}
	})
}

// TestReportBeforeGoodbye: a rank closes as soon as an operation has failed. Its report of the failed
// node arrives before its goodbye.
func TestReportBeforeGoodbye(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		w.network.SetOneWay(w.host(2), w.host(0), sim.Link{Delay: 3 * time.Second})
		wait := w.pending(func(int) int { return 1 }, 0)
		go func() {
			recvOn(w.Context(), w.comms[1], make([]byte, 8), 1, 2, 5)
			w.meshes[1].Close(w.Context())
		}()
		time.Sleep(time.Second)
		w.network.Crash(w.host(2))
		wantPeerError(t, wait()[0], 2, false)
	})
}

// TestFailureEndsACollective: the failure of a rank ends an all-reduce that waits for it.
func TestFailureEndsACollective(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		time.AfterFunc(time.Minute, func() { w.network.Crash(w.host(2)) })
		for rank, err := range w.reduce(0, 1, 3) {
			if rank != 2 {
				wantPeerError(t, err, 2, false)
			}
		}
	})
}

// TestPartition: each part of a network reports all nodes of the other part as failed, and no node of
// its own.
func TestPartition(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		w.form()
		parts := [2][]int{{0, 2, 3, 5, 9}, {1, 4, 6, 7, 8}}
		var hosts []string
		for _, rank := range parts[0] {
			hosts = append(hosts, w.host(rank))
		}
		w.network.Partition(hosts...)
		w.pending(func(rank int) int { return (rank + 1) % 10 }, w.ranks()...)()
		time.Sleep(time.Minute)
		for i, part := range parts {
			for _, rank := range part {
				if got := w.notes[rank].all(); !slices.Equal(got, parts[1-i]) {
					t.Errorf("rank %d: failed nodes %v, want %v", rank, got, parts[1-i])
				}
			}
		}
		w.network.Heal()
		time.Sleep(time.Minute)
		for i, part := range parts {
			for _, rank := range part {
				if got := w.notes[rank].all(); !slices.Equal(got, parts[1-i]) {
					t.Errorf("after Heal: rank %d: failed nodes %v, want %v", rank, got, parts[1-i])
				}
			}
		}
	})
}

// TestDoubtedNode: rank 0 loses rank 1, which ends the link of rank 1. Rank 2 gets the report
// and keeps its link to rank 1, so that both can be in the next view without rank 0.
func TestDoubtedNode(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		w.network.SetOneWay(w.host(1), w.host(0), sim.Link{Down: true})
		w.network.SetOneWay(w.host(0), w.host(2), sim.Link{Delay: time.Second})
		errs := w.pending(func(int) int { return 0 }, 1, 2)()
		wantPeerError(t, errs[1], 0, false)
		wantPeerError(t, errs[2], 1, false)
		time.Sleep(time.Minute)
		for rank, want := range [][]int{{1}, {0}, {1}} {
			if got := w.notes[rank].all(); !slices.Equal(got, want) {
				t.Errorf("rank %d: failed nodes %v, want %v", rank, got, want)
			}
		}
		next := membership.View{Epoch: 2, Nodes: w.meshes[1].cfg.View.Nodes[1:]}
		comms := make([]*engine.Comm, 2)
		for i, m := range w.meshes[1:] {
			if c := m.Engine().NewComm(2, i, linksOf(t, m, next)); c.Err() == nil && i == 1 {
				t.Error("rank 2 can use a communicator with a node that was reported lost")
			}
			w.adopt(m, next)
			comms[i] = m.Engine().NewComm(3, i, linksOf(t, m, next))
		}
		var all sync.WaitGroup
		for i, c := range comms {
			all.Go(func() {
				if err := reduce(w.Context(), c, i, 2); err != nil {
					t.Errorf("in the next view, rank %d: %v", i, err)
				}
			})
		}
		all.Wait()
		for rank, want := range map[int][]int{1: {0}, 2: {1}} {
			if got := w.notes[rank].all(); !slices.Equal(got, want) {
				t.Errorf("in the next view rank %d: failed nodes %v, want %v", rank, got, want)
			}
		}
	})
}

// TestStaleReports: a rank ignores reports about an earlier view than its own.
func TestStaleReports(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		next := membership.View{Epoch: 2, Nodes: w.view.Nodes}
		w.adopt(w.meshes[0], next)
		c := w.meshes[0].Engine().NewComm(2, 0, linksOf(t, w.meshes[0], next))
		report := func(epoch uint64) {
			w.linkOf(1, 0).Failed(wire.Failed{Node: idOf(2), Epoch: epoch}, "it is silent")
			time.Sleep(time.Second)
		}
		report(1)
		if err := c.Err(); err != nil || len(w.notes[0].all()) > 0 {
			t.Errorf("after a report about an earlier view: error %v of the communicator, failed nodes %v", err, w.notes[0].all())
		}
		report(2)
		wantPeerError(t, c.Err(), 2, false)
	})
}

// TestLeaving: a node that leaves has not failed, and operations that do not need it continue.
func TestLeaving(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		fromLeaver := w.pending(func(int) int { return 2 }, 0)
		goesOn := w.pending(func(int) int { return 3 }, 1)
		time.Sleep(time.Second)
		began := time.Now()
		if err := w.meshes[2].Close(w.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*delay+time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		wantPeerError(t, fromLeaver()[0], 2, true)
		time.Sleep(time.Minute)
		if err := sendOn(w.Context(), w.comms[3], make([]byte, 8), 1, 1, 5); err != nil {
			t.Error(err)
		}
		if err := goesOn()[1]; err != nil {
			t.Errorf("a receive that does not need the leaver: %v", err)
		}
		for _, rank := range []int{0, 1, 3} {
			if got := w.notes[rank].all(); len(got) > 0 {
				t.Errorf("rank %d: failed nodes %v", rank, got)
			}
			if got := w.meshes[rank].detached(); !slices.Equal(got, []int{2}) {
				t.Errorf("rank %d: Detached() = %v, want 2", rank, got)
			}
		}
		failed := false
		for rank, err := range w.reduce(0, 1, 3) {
			if rank != 2 && err == nil {
				t.Errorf("rank %d: an all-reduce without rank 2 has succeeded", rank)
			}
			failed = failed || err != nil
		}
		if !failed {
			t.Error("no all-reduce without rank 2 has failed")
		}
	})
}

// TestGoodbyeMissesANode: a node leaves, and its goodbye does not reach one of the others, which
// reports it as failed. For the rest the node has left.
func TestGoodbyeMissesANode(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		time.Sleep(10 * time.Second)
		w.network.SetLink(w.host(2), w.host(3), sim.Link{Down: true})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		w.meshes[2].Close(ctx)
		time.Sleep(time.Minute)
		for rank, want := range [][]int{nil, nil, nil, {2}} {
			if got := w.notes[rank].all(); !slices.Equal(got, want) {
				t.Errorf("rank %d: failed nodes %v, want %v", rank, got, want)
			}
		}
	})
}

// TestFailureAfterLeaving: a node leaves, then another one fails.
func TestFailureAfterLeaving(t *testing.T) {
	inBubble(t, 9, func(w *world) {
		w.form()
		w.meshes[4].Close(w.Context())
		time.Sleep(time.Second)
		wait := w.pending(func(rank int) int { return 8 }, 0, 1, 2, 3)
		time.Sleep(time.Second)
		w.network.PowerOff(w.host(6))
		for rank, err := range wait()[:4] {
			wantPeerError(t, err, 6, false)
			if got := w.notes[rank].all(); !slices.Equal(got, []int{6}) {
				t.Errorf("rank %d: failed nodes %v, want 6", rank, got)
			}
		}
	})
}

// TestFailureOverMem kills a node while all ranks work, in real time and over transport/mem.
func TestFailureOverMem(t *testing.T) {
	const n, victim = 6, 4
	network := mem.NewNetwork()
	view := membership.View{Epoch: 1}
	for rank := range n {
		view.Nodes = append(view.Nodes, membership.Node{ID: idOf(rank), Addrs: []string{idOf(rank).String()}, Host: "here"})
	}
	errs := make([]error, n)
	begun := make(chan struct{}, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() { errs[rank] = workUntilItFails(t.Context(), network, view, rank, begun) })
	}
	for range n {
		<-begun
	}
	network.Kill(idOf(victim).String())
	all.Wait()
	for rank, err := range errs {
		if rank != victim {
			wantPeerError(t, err, victim, false)
		} else if err == nil {
			t.Error("the victim has no error")
		}
	}
}

func workUntilItFails(ctx context.Context, network *mem.Network, view membership.View, rank int, begun chan<- struct{}) error {
	// The test waits for begun from every rank, also from one that fails early.
	var once sync.Once
	begin := func() { once.Do(func() { begun <- struct{}{} }) }
	defer begin()
	m, err := formOverMem(ctx, network, view, rank)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		m.Close(ctx)
	}()
	if err := m.Formed(); err != nil {
		return err
	}
	links, err := m.links(view)
	if err != nil {
		return err
	}
	c := m.Engine().NewComm(1, rank, links)
	return reduceForEver(ctx, c, rank, view.Size(), begin)
}

func formOverMem(ctx context.Context, network *mem.Network, view membership.View, rank int) (*Mesh, error) {
	var t transport.Transport
	t, err := network.Listen(idOf(rank).String())
	if err != nil {
		return nil, err
	}
	m, err := Form(ctx, Config{Self: idOf(rank), View: view, Paths: []Path{{Transport: t}}, Loop: mem.Loop})
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("form: %w", err)
	}
	return m, nil
}

func reduceForEver(ctx context.Context, c *engine.Comm, rank, n int, begin func()) error {
	for i := 0; ; i++ {
		if err := reduce(ctx, c, rank, n); err != nil {
			return err
		}
		if i == 20 {
			begin()
		}
	}
}

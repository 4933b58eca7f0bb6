package faults

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestExclude: ranks exclude a live rank, which gets an error, and then one that has left.
// Change describes how their ranks change.
func TestExclude(t *testing.T) {
	nodes, _ := worldtest.JoinAll(t, 4, nexar.SeedConfig{}, nexar.Config{Recovery: nexar.Manual, RecoveryTimeout: 10 * time.Second})
	excluded := make(chan error, 1)
	go func() {
		for _, err := range nodes[1].Epochs(t.Context()) {
			if err != nil {
				excluded <- err
			}
		}
	}()
	exclude := func(ranks ...int) func(rank int) error {
		return func(rank int) error {
			world := nodes[rank].World()
			c, err := world.Exclude(t.Context(), ranks)
			if err != nil {
				return err
			}
			x := []int32{1}
			if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil || int(x[0]) != c.Size() || nodes[rank].World() != c {
				return fmt.Errorf("the sum of %d ranks is %d: %v", c.Size(), x[0], err)
			}
			if _, err := world.Exclude(t.Context(), nil); !errors.Is(err, nexar.ErrClosed) {
				return fmt.Errorf("Exclude on the old communicator: got error %v, want ErrClosed", err)
			}
			return nil
		}
	}
	each := func(f func(rank int) error, ranks ...int) {
		t.Helper()
		if err := worldtest.ForEach(len(ranks), func(i int) error { return f(ranks[i]) }); err != nil {
			t.Fatal(err)
		}
	}
	each(exclude(1), 0, 2, 3)
	err := <-excluded
	for _, want := range []error{nexar.ErrExcluded, nexar.ErrRemoved, nexar.ErrNoQuorum} {
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "has excluded it") {
			t.Errorf("error of the excluded rank: %v, want %v and the rank that has excluded it", err, want)
		}
	}
	got, want := nodes[3].World().Change(), nexar.WorldChange{OldSize: 4, Size: 3, OldRank: 3, Rank: 2, Removed: []int{1}}
	if got.Epoch < 2 {
		t.Errorf("the change has epoch %d, want at least 2", got.Epoch)
	}
	if got.Epoch = 0; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := nodes[2].Close(); err != nil {
		t.Error(err)
	}
	each(exclude(1), 0, 3)
	if c := nodes[3].World(); c.Rank() != 1 || c.Size() != 2 {
		t.Errorf("got rank %d of %d, want 1 of 2", c.Rank(), c.Size())
	}
}

// TestTooFewNodes: ranks that wait for a world that has become too small get an error
// that says so.
func TestTooFewNodes(t *testing.T) {
	nodes, _ := worldtest.JoinAll(t, 2, nexar.SeedConfig{ElasticMin: 2}, nexar.Config{Recovery: nexar.Manual, RecoveryTimeout: 2 * time.Second})
	_, err := nodes[0].World().Exclude(t.Context(), []int{1})
	const want = "no new view within 2s: the world has 1 of at least 2 nodes, and waits for others"
	if !errors.Is(err, nexar.ErrNoQuorum) || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want ErrNoQuorum with %q", err, want)
	}
}

// TestInclude: ranks include a waiting node. If none waits, they keep their ranks.
func TestInclude(t *testing.T) {
	nodes, addr := worldtest.JoinAll(t, 2, nexar.SeedConfig{Elastic: true}, nexar.Config{Recovery: nexar.Manual})
	include := func(rank int) error {
		_, err := nodes[rank].World().Include(t.Context())
		return err
	}
	if err := worldtest.ForEach(2, include); err != nil {
		t.Fatal(err)
	}
	if got := nodes[1].World().Change(); got.Size != 2 || len(got.Removed)+len(got.Joined) > 0 || got.Rank != got.OldRank {
		t.Errorf("without a waiting node: got change %+v, want the same ranks", got)
	}
	late := make(chan error, 1)
	var joiner *nexar.Node
	go func() {
		var err error
		joiner, err = nexar.Join(t.Context(), nexar.Config{Seeds: []string{addr}, Listen: "127.0.0.1:0"})
		late <- err
	}()
	for end := time.Now().Add(worldtest.Patience); nodes[0].World().Size() < 3 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := worldtest.ForEach(2, include); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	defer joiner.Close()
	for i, n := range append(nodes, joiner) {
		e := n.World().Change()
		if was := i < 2; e.Size != 3 || was && (!slices.Equal(e.Joined, []int{2}) || e.OldRank != i) || !was && (e.OldRank != -1 || len(e.Joined) != 3) {
			t.Errorf("node %d: got change %+v, want a world of 3 with rank 2 new", i, e)
		}
	}
}

// TestRebuildMisuse: Include and Exclude return an error for invalid arguments at once.
func TestRebuildMisuse(t *testing.T) {
	local, err := nexar.Local(t.Context(), 2, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range local {
		defer c.Close()
	}
	if _, err := local[0].Include(t.Context()); err == nil {
		t.Error("Include of a world of Local: no error")
	}
	for _, ranks := range [][]int{{-1}, {2}, {0}} {
		if _, err := local[0].Exclude(t.Context(), ranks); !errors.Is(err, nexar.ErrInvalidRank) {
			t.Errorf("ranks %v: got error %v, want %v", ranks, err, nexar.ErrInvalidRank)
		}
	}
}

// TestFailureWatch: a loop over Failures ends with its context, and when the node is closed.
func TestFailureWatch(t *testing.T) {
	nodes, _ := worldtest.JoinAll(t, 2, nexar.SeedConfig{}, nexar.Config{RecoveryTimeout: 10 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for p, err := range nodes[0].Failures(ctx) {
		if p != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v, want only the error of the context", p, err)
		}
	}
	over := make(chan int)
	go func() {
		count := 0
		for range nodes[0].Failures(t.Context()) {
			count++
		}
		over <- count
	}()
	nodes[0].Close()
	if n := <-over; n > 0 {
		t.Errorf("got %d failures, want none", n)
	}
}

// TestLeaveEnds: Leave returns ErrClosed when the node is closed.
func TestLeaveEnds(t *testing.T) {
	nodes, _ := worldtest.JoinAll(t, 2, nexar.SeedConfig{}, nexar.Config{RecoveryTimeout: 10 * time.Second})
	left := make(chan error)
	go func() { left <- nodes[0].Leave(t.Context()) }()
	nodes[0].Close()
	if err := <-left; !errors.Is(err, nexar.ErrClosed) {
		t.Errorf("got error %v, want %v", err, nexar.ErrClosed)
	}
	if err := nodes[0].Leave(t.Context()); !errors.Is(err, nexar.ErrClosed) {
		t.Errorf("second call: got error %v, want %v", err, nexar.ErrClosed)
	}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSeedProgress: a seed reports each joining and leaving node, with its name and address.
func TestSeedProgress(t *testing.T) {
	events := make(chan nexar.SeedEvent, 10)
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true, Progress: func(e nexar.SeedEvent) { events <- e }})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	rank := 1
	nodes := make([]*nexar.Node, 2)
	joinBoth(t, seed, nodes, func(i int, cfg *nexar.Config) {
		if i == 1 {
			cfg.Rank = &rank
		}
	})
	for joined := 1; joined <= 2; joined++ {
		checkEvent(t, <-events, false, joined)
	}
	ranks := map[nexar.NodeID]int{nodes[0].ID(): nodes[0].World().Rank(), nodes[1].ID(): nodes[1].World().Rank()}
	for i := range nodes {
		if err := nodes[1-i].Close(); err != nil {
			t.Error(err)
		}
		e := <-events
		checkEvent(t, e, true, 1-i)
		if want, ok := ranks[e.Node]; !ok || e.Rank != want || e.Node != nodes[1-i].ID() {
			t.Errorf("node %v of rank %d has left, want %v", e.Node, e.Rank, nodes[1-i].ID())
		}
	}
	select {
	case <-seed.Done():
	case <-time.After(time.Minute):
		t.Error("the seed is not done after all nodes have left")
	}
}

// TestSeedEndedBeforeStart: the error of a seed with a context that has ended names the cause.
func TestSeedEndedBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("ended by a signal")
	cancel(cause)
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true})
	if err == nil {
		seed.Close()
	}
	if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("error %v, want %v with the cause %q", err, context.Canceled, cause)
	}
}

func checkEvent(t *testing.T, e nexar.SeedEvent, gone bool, joined int) {
	t.Helper()
	pid := ":" + strconv.Itoa(os.Getpid())
	if e.Gone != gone || e.Joined != joined || e.World != 2 || !strings.HasSuffix(e.Name, pid) ||
		!strings.HasPrefix(e.Addr, "127.0.0.1:") || gone == (e.Reason == "") || gone != e.Left || e.Node == (nexar.NodeID{}) {
		t.Errorf("got %+v, want gone %t, %d of 2 joined, of this process", e, gone, joined)
	}
}

// joinBoth joins two nodes concurrently.
func joinBoth(t *testing.T, seed *nexar.Seed, nodes []*nexar.Node, change func(i int, cfg *nexar.Config)) {
	t.Helper()
	err := worldtest.ForEach(len(nodes), func(i int) (err error) {
		cfg := nexar.Config{Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", FormTimeout: time.Minute}
		change(i, &cfg)
		nodes[i], err = nexar.Join(t.Context(), cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPeerClosesAtOnce: a node that is closed immediately after it has joined does not prevent the
// other from joining. The first operation that needs the closed node fails with a PeerError.
func TestPeerClosesAtOnce(t *testing.T) {
	for range 10 {
		seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true})
		if err != nil {
			t.Fatal(err)
		}
		err = worldtest.ForEach(2, func(i int) error {
			node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Rank: &i, FormTimeout: time.Minute})
			if err != nil {
				return err
			}
			if i == 1 {
				return node.Close()
			}
			defer node.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = node.World().Barrier(ctx)
			p, ok := errors.AsType[*nexar.PeerError](err)
			if !ok || !p.Left || p.Rank != 1 || !errors.Is(err, nexar.ErrPeerFailed) {
				return fmt.Errorf("%w, want a PeerError: rank 1 has left", err)
			}
			if err := node.Close(); err != nil {
				return err
			}
			// The communicator ended before Close.
			if err := node.World().Err(); !errors.Is(err, nexar.ErrRevoked) {
				return fmt.Errorf("after Close: %w", err)
			}
			return nil
		})
		if err := errors.Join(err, seed.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFormForEver: with a negative FormTimeout of a node or a seed, only the context ends Join.
func TestFormForEver(t *testing.T) {
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true, FormTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	for name, addr := range map[string]string{"a seed that waits": seed.Addr(), "no seed": "127.0.0.1:1"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = nexar.Join(ctx, nexar.Config{Seeds: []string{addr}, Listen: "127.0.0.1:0", FormTimeout: -1})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v, want context.DeadlineExceeded", name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := seed.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the seed: %v, want context.DeadlineExceeded", err)
	}
}

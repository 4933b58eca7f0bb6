package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// These tests are for faults of nexar 0.1 in nodes and calls; see faults_test.go.

// TestRebuiltAgainAndAgain: split or rebuilt communicators made neither barriers nor
// calls, and a world was rebuilt only once, since the agreement ignored the epoch.
func TestRebuiltAgainAndAgain(t *testing.T) {
	const ranks = 5
	for _, topology := range []string{"full", "k-regular:2", "hypercube"} {
		t.Run(topology, func(t *testing.T) {
			nodes, _ := worldtest.JoinAll(t, ranks, nexar.SeedConfig{}, nexar.Config{Topology: topology})
			ctx, cancel := context.WithTimeout(t.Context(), 4*worldtest.Patience)
			defer cancel()
			if err := worldtest.ForEach(ranks, func(rank int) error { return shrinkToTwo(ctx, nodes[rank]) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// shrinkToTwo makes the last rank of each epoch leave until two ranks are left. In each epoch it
// splits the communicator, and runs barriers and calls.
func shrinkToTwo(ctx context.Context, n *nexar.Node) error {
	epoch, size := uint64(0), 6
	for c, err := range n.Epochs(ctx) {
		if err != nil {
			return err
		}
		if c.Epoch() <= epoch || c.Size() != size-1 {
			return fmt.Errorf("epoch %d of %d ranks follows epoch %d of %d", c.Epoch(), c.Size(), epoch, size)
		}
		epoch, size = c.Epoch(), c.Size()
		half, err := c.Split(ctx, c.Rank()%2, c.Rank())
		if err != nil {
			return err
		}
		if err := barriersAndCalls(ctx, half); err != nil {
			return fmt.Errorf("epoch %d, half of %d ranks: %w", epoch, size, err)
		}
		if err := barriersAndCalls(ctx, c); err != nil {
			return fmt.Errorf("epoch %d, %d ranks: %w", epoch, size, err)
		}
		if size == 2 {
			return nil
		}
		// All ranks have completed the barriers before one leaves. Otherwise a rank in the next
		// barrier revokes the communicator while others are still in the previous one.
		if c.Rank() == size-1 {
			return errors.Join(receiveFromAll(ctx, c), n.Close())
		}
		if err := nexar.Send(ctx, c, []byte{1}, size-1, 0); err != nil {
			return err
		}
		for err == nil {
			err = c.Barrier(ctx) // until the last rank has left
		}
		if !errors.Is(err, nexar.ErrPeerFailed) {
			return err
		}
	}
	return errors.New("Epochs has ended")
}

// receiveFromAll receives a message from each of the other ranks.
func receiveFromAll(ctx context.Context, c *nexar.Comm) error {
	for range c.Size() - 1 {
		if _, err := nexar.Recv(ctx, c, make([]byte, 1), nexar.AnyRank, 0); err != nil {
			return err
		}
	}
	return nil
}

// barriersAndCalls runs barriers and calls all ranks.
func barriersAndCalls(ctx context.Context, c *nexar.Comm) error {
	c.Register("greet", func(_ context.Context, from int, args []byte) ([]byte, error) {
		return fmt.Appendf(nil, "%s %d, I am %d of epoch %d", args, from, c.Rank(), c.Epoch()), nil
	})
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for to := range c.Size() {
		got, err := c.Call(ctx, to, "greet", []byte("hello"))
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("hello %d, I am %d of epoch %d", c.Rank(), to, c.Epoch()); string(got) != want {
			return fmt.Errorf("rank %d says %q, want %q", to, got, want)
		}
	}
	return c.Barrier(ctx)
}

// TestUnknownFunctionEndsNothing: a call of an unknown function ended the goroutine that
// served calls, and the caller waited for half a minute.
func TestUnknownFunctionEndsNothing(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC(), worldtest.TLS()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 2, nexar.Config{})
			comms[1].Register("known", func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil })
			began := time.Now()
			for range 100 {
				if _, err := comms[0].Call(t.Context(), 1, "unknown", nil); !errors.Is(err, nexar.ErrUnknownFunction) {
					t.Fatalf("got error %v, want ErrUnknownFunction", err)
				}
				if got, err := comms[0].Call(t.Context(), 1, "known", []byte("x")); err != nil || string(got) != "x" {
					t.Fatalf("a call of a registered function after that: got %q, %v, want \"x\"", got, err)
				}
			}
			if took := time.Since(began); took > worldtest.Patience {
				t.Errorf("200 calls took %v, want at most %v", took, worldtest.Patience)
			}
		})
	}
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestEpochsAfterMistakes: if a communicator has ended and no node has failed, Epochs ends
// soon on all ranks, with the reason for the end of the communicator.
func TestEpochsAfterMistakes(t *testing.T) {
	const ranks = 2
	for name, test := range map[string]struct {
		mistake func(ctx context.Context, c *nexar.Comm) error
		is      func(err error) bool
	}{
		"mismatch": {func(ctx context.Context, c *nexar.Comm) error {
			return nexar.AllReduce(ctx, c, make([]float32, 10+c.Rank()), nexar.Sum)
		}, func(err error) bool { _, ok := errors.AsType[*nexar.MismatchError](err); return ok }},
		"cancelled": {func(ctx context.Context, c *nexar.Comm) error {
			if c.Rank() == 0 {
				ended, cancel := context.WithCancel(ctx)
				cancel()
				ctx = ended
			}
			return c.Barrier(ctx)
		}, func(err error) bool { return errors.Is(err, nexar.ErrRevoked) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
			defer cancel()
			token := nexar.NewToken()
			seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: ranks, Token: token})
			if err != nil {
				t.Fatal(err)
			}
			defer seed.Close()
			var loops, leaving sync.WaitGroup
			leaving.Add(ranks) // A node that leaves gives the others a new view.
			for rank := range ranks {
				loops.Go(func() {
					err := follow(ctx, nexar.Config{
						Seeds: []string{seed.Addr()}, Token: token, Listen: "127.0.0.1:0", Rank: &rank,
						RecoveryTimeout: 10 * worldtest.Patience,
					}, test.mistake, &leaving)
					if !test.is(err) || errors.Is(err, nexar.ErrNoQuorum) {
						t.Errorf("rank %d: got error %v, want the %s", rank, err, name)
					}
				})
			}
			loops.Wait()
		})
	}
}

// follow joins, and makes a mistake in each epoch. It returns the error with which Epochs ends.
func follow(ctx context.Context, cfg nexar.Config, mistake func(ctx context.Context, c *nexar.Comm) error, leaving *sync.WaitGroup) (why error) {
	node, err := nexar.Join(ctx, cfg)
	if err != nil {
		leaving.Done()
		return err
	}
	defer node.Close()
	defer leaving.Wait()
	defer leaving.Done()
	began := time.Now()
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			why = err
			break
		}
		if err := mistake(ctx, comm); err == nil {
			return errors.New("the mistake caused no error")
		}
	}
	if took := time.Since(began); took > worldtest.Patience {
		return fmt.Errorf("Epochs ended after %v, want at most %v: %w", took, worldtest.Patience, why)
	}
	return why
}

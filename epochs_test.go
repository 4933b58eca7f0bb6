package nexar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestEpochsAfterMistakes: where no node has failed the loop of each rank ends soon
// with the reason for which the communicator has ended.
func TestEpochsAfterMistakes(t *testing.T) {
	const ranks = 2
	for name, test := range map[string]struct {
		mistake func(ctx context.Context, c *Comm) error
		is      func(err error) bool
	}{
		"mismatch": {func(ctx context.Context, c *Comm) error {
			return AllReduce(ctx, c, make([]float32, 10+c.Rank()), Sum)
		}, func(err error) bool { _, ok := errors.AsType[*MismatchError](err); return ok }},
		"cancelled": {func(ctx context.Context, c *Comm) error {
			if c.Rank() == 0 {
				ended, cancel := context.WithCancel(ctx)
				cancel()
				ctx = ended
			}
			return c.Barrier(ctx)
		}, func(err error) bool { return errors.Is(err, ErrRevoked) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			token := NewToken()
			seed, err := StartSeed(ctx, SeedConfig{Listen: "127.0.0.1:0", World: ranks, Token: token})
			if err != nil {
				t.Fatal(err)
			}
			defer seed.Close()
			var loops, leaving sync.WaitGroup
			leaving.Add(ranks) // When one leaves there is a view for the others.
			for rank := range ranks {
				loops.Go(func() {
					err := follow(ctx, Config{
						Seeds: []string{seed.Addr()}, Token: token, Listen: "127.0.0.1:0", Rank: &rank,
						RecoveryTimeout: 10 * atOnce,
					}, test.mistake, &leaving)
					if !test.is(err) || errors.Is(err, ErrNoQuorum) {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			loops.Wait()
		})
	}
}

// follow joins and makes a mistake in each epoch. It returns why there is no next
// one.
func follow(ctx context.Context, cfg Config, mistake func(ctx context.Context, c *Comm) error, leaving *sync.WaitGroup) (why error) {
	node, err := Join(ctx, cfg)
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
			return errors.New("the mistake was none")
		}
	}
	if took := time.Since(began); took > atOnce {
		return fmt.Errorf("it took %v: %w", took, why)
	}
	return why
}

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A tally is a state that Sync copies by its exported fields.
type tally struct{ Step, Sum int64 }

// A ledger is a state with its own encoding.
type ledger struct {
	Owners map[string]int
	fail   bool
}

func (l *ledger) MarshalBinary() ([]byte, error) {
	if l.fail {
		return nil, errors.New("the ledger is locked")
	}
	return json.Marshal(l)
}

func (l *ledger) UnmarshalBinary(b []byte) error { return json.Unmarshal(b, l) }

// TestSync: all ranks get the state of rank 0, over every medium.
func TestSync(t *testing.T) {
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.QUIC(), worldtest.SHMLinks()} {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			worldtest.OnAll(t, m.Cluster(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
				weights, step, grown := []float32{float32(rank), 2}, int64(10+rank), make([]tally, rank)
				if rank == 0 {
					grown = []tally{{1, 2}, {3, 4}}
				}
				trialGenerator := &ledger{Owners: map[string]int{fmt.Sprint("of ", rank): rank}}
				if rank != 0 {
					trialGenerator.Owners = nil
				}
				for _, state := range []any{weights, &step, &grown, trialGenerator} {
					if err := nexar.Sync(t.Context(), c, state); err != nil {
						return err
					}
				}
				if !slices.Equal(weights, []float32{0, 2}) || step != 10 || !slices.Equal(grown, []tally{{1, 2}, {3, 4}}) || len(trialGenerator.Owners) != 1 || trialGenerator.Owners["of 0"] != 0 {
					return fmt.Errorf("it has %v, %d, %v and %v", weights, step, grown, trialGenerator.Owners)
				}
				return nil
			})
		})
	}
}

// TestSyncInvalid: an invalid state is an error on every rank, at once; if rank 0 cannot
// marshal it, all ranks get the error; and the communicator goes on.
func TestSyncInvalid(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		for _, state := range []any{nil, 3, "text", []string{"a"}, map[int]int{}, (*int)(nil), &struct{ p *int }{}} {
			if err := nexar.Sync(t.Context(), c, state); !errors.Is(err, nexar.ErrInvalidType) {
				return fmt.Errorf("of %T: got error %v, want %v", state, err, nexar.ErrInvalidType)
			}
		}
		err := nexar.Sync(t.Context(), c, &ledger{fail: true})
		if want := map[bool]string{true: "locked", false: "rank 0"}[rank == 0]; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %v, want one with %q", err, want)
		}
		return c.Barrier(t.Context())
	})
}

// TestSyncOfOtherLengths: slices of different lengths are a mismatch, except on rank 0 if
// it has ended before.
func TestSyncOfOtherLengths(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		state := slices.Repeat([]float32{7}, 1+rank)
		err := nexar.Sync(context.Background(), c, state)
		if slices.ContainsFunc(state, func(x float32) bool { return x != 7 }) {
			return fmt.Errorf("the state is %v after %v", state, err)
		}
		if _, ok := errors.AsType[*nexar.MismatchError](err); !ok && (rank != 0 || err != nil) {
			return fmt.Errorf("got error %v, want a MismatchError", err)
		}
		return nil
	})
}

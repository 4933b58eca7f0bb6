package nexar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A ledger is a state with a form of its own.
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

// TestSync: all ranks have the state of rank 0, over every medium.
func TestSync(t *testing.T) {
	for _, m := range []medium{overMem, overQUIC, overRings} {
		t.Run(m.name, func(t *testing.T) {
			m.needs(t)
			onAll(t, m.cluster(t, 3, Config{}), func(rank int, c *Comm) error {
				weights, step, grown := []float32{float32(rank), 2}, int64(10+rank), make([]tally, rank)
				if rank == 0 {
					grown = []tally{{1, 2}, {3, 4}}
				}
				book := &ledger{Owners: map[string]int{fmt.Sprint("of ", rank): rank}}
				if rank != 0 {
					book.Owners = nil
				}
				for _, state := range []any{weights, &step, &grown, book} {
					if err := Sync(t.Context(), c, state); err != nil {
						return err
					}
				}
				if !slices.Equal(weights, []float32{0, 2}) || step != 10 || !slices.Equal(grown, []tally{{1, 2}, {3, 4}}) || len(book.Owners) != 1 || book.Owners["of 0"] != 0 {
					return fmt.Errorf("it has %v, %d, %v and %v", weights, step, grown, book.Owners)
				}
				return nil
			})
		})
	}
}

// TestSyncOfWhatCannotBe: a state that is none is an error everywhere, at once; one
// that rank 0 cannot marshal is told to all; and the communicator works on.
func TestSyncOfWhatCannotBe(t *testing.T) {
	onAll(t, overMem.cluster(t, 3, Config{}), func(rank int, c *Comm) error {
		for _, state := range []any{nil, 3, "text", []string{"a"}, map[int]int{}, (*int)(nil), &struct{ p *int }{}} {
			if err := Sync(t.Context(), c, state); !errors.Is(err, ErrInvalidType) {
				return fmt.Errorf("of %T: got error %v, want %v", state, err, ErrInvalidType)
			}
		}
		err := Sync(t.Context(), c, &ledger{fail: true})
		if want := map[bool]string{true: "locked", false: "rank 0"}[rank == 0]; err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("got error %v, want one with %q", err, want)
		}
		return c.Barrier(t.Context())
	})
}

// TestSyncOfOtherLengths: slices that differ are a mismatch, on rank 0 unless it has
// ended well before that was known.
func TestSyncOfOtherLengths(t *testing.T) {
	onAll(t, overMem.cluster(t, 2, Config{}), func(rank int, c *Comm) error {
		state := slices.Repeat([]float32{7}, 1+rank)
		err := Sync(context.Background(), c, state)
		if slices.ContainsFunc(state, func(x float32) bool { return x != 7 }) {
			return fmt.Errorf("the state is %v after %v", state, err)
		}
		if _, ok := errors.AsType[*MismatchError](err); !ok && (rank != 0 || err != nil) {
			return fmt.Errorf("got error %v, want a MismatchError", err)
		}
		return nil
	})
}

// TestSyncWithoutState: ranks that have no state take no part of it for the state; if
// no rank has it, they are told so.
func TestSyncWithoutState(t *testing.T) {
	onAll(t, overMem.cluster(t, 3, Config{}), func(rank int, c *Comm) error {
		c.node.hasState.Store(rank == 2)
		x := []int32{int32(rank)}
		if err := Sync(t.Context(), c, x); err != nil || x[0] != 2 || !c.node.hasState.Load() {
			return fmt.Errorf("it has %v (%v), want that of rank 2", x, err)
		}
		if err := c.Barrier(t.Context()); err != nil {
			return err
		}
		c.node.hasState.Store(false)
		if err := Sync(t.Context(), c, x); !errors.Is(err, ErrNoState) {
			return fmt.Errorf("got error %v, want %v", err, ErrNoState)
		}
		return c.Barrier(t.Context())
	})
}

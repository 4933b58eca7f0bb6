package nexar

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/wire"

	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
)

func TestLateRank(t *testing.T) {
	for want, l := range map[string]LateRank{
		"rank 1 has not answered":                {Rank: 1},
		"rank 11 was last in barrier #4":         {Rank: 11, Answered: true, Call: Call{Op: "barrier", Seq: 4, Root: -1}},
		"rank 12 has called no collective":       {Rank: 12, Answered: true},
		"rank 13 has been in barrier #4":         {Rank: 13, Answered: true, Active: true, Call: Call{Op: "barrier", Seq: 4, Root: -1}},
		"rank 2 has been in barrier #4 for 31 s": {Rank: 2, Answered: true, Doing: "has been in barrier #4 for 31 s"},
	} {
		if got := l.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCallOfUnknown: unknown values from a newer peer are shown as numbers.
func TestCallOfUnknown(t *testing.T) {
	for want, call := range map[string]wire.Call{
		"barrier #2":                                {Kind: uint8(plan.Barrier), Seq: 2},
		"collective 99 #3 (5 × type 77, op 88)":     {Kind: 99, Type: 77, Op: 88, Seq: 3, Count: 5},
		"all_reduce #4 (0 × float32, sum)":          {Kind: uint8(plan.AllReduce), Type: 9, Op: 1, Seq: 4},
		"all_reduce_func #5 (1 × int8, a function)": {Kind: uint8(plan.AllReduce), Type: 1, Op: collective.FuncOp, Seq: 5, Count: 1},
	} {
		if got := describe(call).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := describe(wire.Call{Kind: 99, Plan: 12}).Plan; got != "algorithm 12" {
		t.Errorf("plan %q", got)
	}
}

// TestVastFingerprint: lengths in fingerprints and errors have 64 bits, or 39 bits for the total
// of blocks of different lengths.
func TestVastFingerprint(t *testing.T) {
	for _, count := range []uint64{1<<32 + 1000, 1<<32 + 1, 1 << 62} {
		if got := describe(wire.Call{Kind: uint8(plan.AllReduce), Seq: 1, Count: count}); got.Length != int(count) || got.Counts != 0 {
			t.Errorf("%d elements: got %+v", count, got)
		}
	}
	for _, total := range []uint64{1<<32 + 1000, 1<<32 + 1, 1<<39 - 1} {
		const digest = 0xabcdef
		if got := describe(wire.Call{Kind: uint8(plan.Gather), Seq: 1, Count: wire.Uneven(total, digest)}); got.Length != int(total) || got.Counts != digest {
			t.Errorf("%d elements of uneven blocks: got %+v", total, got)
		}
	}
}

// TestRemovedErrors: a removed node gets ErrRemoved, and ErrExcluded only if others have excluded it.
func TestRemovedErrors(t *testing.T) {
	for _, excluded := range []bool{false, true} {
		err := epochError(t.Context(), nil, &comm.LostError{Err: &client.RemovedError{Seed: "s:1", Text: "rank 2 has …", Excluded: excluded}})
		if !errors.Is(err, ErrNoQuorum) || !errors.Is(err, ErrRemoved) || errors.Is(err, ErrExcluded) != excluded || !strings.Contains(err.Error(), "rank 2 has …") {
			t.Errorf("excluded %v: got error %v", excluded, err)
		}
	}
	err := epochError(t.Context(), nil, &comm.LostError{Err: client.ErrSeedGone})
	if !errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrRemoved) {
		t.Errorf("without a seed: got error %v", err)
	}
}

// TestJoinErrorVersion: a version mismatch that the seed reports, or that the node finds, is an
// ErrVersion.
func TestJoinErrorVersion(t *testing.T) {
	for _, err := range []error{
		&handshake.RefusedError{Seed: "a:1", Code: wire.RefusedVersion, Text: "version 1"},
		fmt.Errorf("no answer: %w", &wire.VersionError{Ours: 3, Theirs: 2}),
	} {
		if got := explainJoin(err); !errors.Is(got, ErrVersion) || got.Error() != err.Error() {
			t.Errorf("%v becomes %v, want ErrVersion with the same text", err, got)
		}
	}
	if explainJoin(nil) != nil {
		t.Error("nil becomes an error")
	}
}

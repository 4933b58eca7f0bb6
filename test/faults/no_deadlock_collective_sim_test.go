package faults

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
)

// lateRanks has two ranks of eight that are late, so that other ranks of a dissemination wait for each other's later messages.
var lateRanks = []int{3, 7}

// TestLateRanksAreNoDeadlock: ranks 0 and 4 of a collective need messages of each other's third round, and each of them first
// needs one of a rank that computes. They are in no deadlock, however long that takes.
func TestLateRanksAreNoDeadlock(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	cfg := nexar.Config{Algorithms: []string{"barrier=dissemination", "all_gather=circulant"}, DeadlockTimeout: 20 * time.Second}
	stalled(t, 8, cfg, func(t *testing.T, comms world, log *testlog.Buffer) {
		for name, call := range map[string]func(c *nexar.Comm) error{
			"barrier": func(c *nexar.Comm) error { return c.Barrier(t.Context()) },
			"all_gather": func(c *nexar.Comm) error {
				return nexar.AllGather(t.Context(), c, make([]int32, c.Size()), []int32{int32(c.Rank())})
			},
		} {
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				if slices.Contains(lateRanks, rank) {
					time.Sleep(10 * time.Minute)
				}
				if err := call(c); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			})
		}
		noDeadlock(t, log)
	})
}

// TestDeadlockBehindLateRanks: the late ranks of such a collective come at last, but one of the others waits for a message in
// place of the collective. Then all ranks are in the deadlock.
func TestDeadlockBehindLateRanks(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	cfg := nexar.Config{Algorithms: []string{"barrier=dissemination"}, DeadlockTimeout: 20 * time.Second}
	stalled(t, 8, cfg, func(t *testing.T, comms world, log *testlog.Buffer) {
		time.AfterFunc(5*time.Minute-time.Second, func() { noDeadlock(t, log) })
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) (err error) {
			if slices.Contains(lateRanks, rank) {
				time.Sleep(5 * time.Minute)
			}
			if rank == 5 {
				err = recvInt(t.Context(), c, 0, 1)
			} else {
				err = c.Barrier(t.Context())
			}
			if !errors.Is(err, nexar.ErrDeadlock) {
				return fmt.Errorf("%w, want %w", err, nexar.ErrDeadlock)
			}
			return nil
		})
	})
}

package faults

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport/sim"
)

// stalled runs f in fake time with the ranks of a world over a simulated network. log gets the logs of
// all ranks.
func stalled(t *testing.T, n int, cfg nexar.Config, f func(t *testing.T, comms world, log *testlog.Buffer)) {
	t.Helper()
	var log testlog.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if cfg.CollectiveTimeout == 0 {
		cfg.CollectiveTimeout = 30 * time.Minute // the default; worldtest has another
	}
	worldtest.InFakeTimeWith(t, n, cfg, func(t *testing.T, w *worldtest.World, _ *sim.Network) { f(t, w.Comms, &log) })
}

// stalledLocal is stalled for ranks of one process, which exchange messages through memory. Collectives
// would spin there, and fake time would not pass.
func stalledLocal(t *testing.T, n int, cfg nexar.Config, f func(t *testing.T, comms world, log *testlog.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Buffer
		cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		comms, err := nexar.Local(t.Context(), n, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, c := range comms {
				c.Close()
			}
		}()
		f(t, comms, &log)
	})
}

// world is the communicators of a test.
type world = []*nexar.Comm

const large = 8 << 20

// TestCrossedSends: two ranks that send each other long messages without a receive get an error that
// names both, after a warning within 3 seconds.
func TestCrossedSends(t *testing.T) {
	stalledLocal(t, 2, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		start := time.Now()
		time.AfterFunc(3*time.Second, func() {
			if !strings.Contains(log.String(), "ranks wait for each other") {
				t.Errorf("nothing is logged after 3 s:\n%s", log)
			}
		})
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			err := nexar.Send(t.Context(), c, make([]byte, large), 1-rank, 7)
			const want = "Rank 0 waits in send to rank 1, which has been in send to rank 0 for 61 s: a deadlock: make one of them a StartSend, or use Exchange"
			deadlock, ok := errors.AsType[*nexar.DeadlockError](err)
			if !errors.Is(err, nexar.ErrDeadlock) || !ok || len(deadlock.Waits) != 2 || !strings.HasPrefix(deadlock.Waits[0].Site, "faults/deadlock_sim_test.go:") ||
				!strings.HasPrefix(deadlock.Sentence, "Rank 0 waits in send to rank 1 (faults/deadlock_sim_test.go:") || !strings.Contains(plain(err.Error()), want) {
				return fmt.Errorf("send: %v, want %q", err, want)
			}
			if took := time.Since(start); took < 60*time.Second || took > 65*time.Second {
				return fmt.Errorf("the deadlock ended after %v, want 60 s", took)
			}
			return nil
		})
	})
}

// TestReceiveCycle: three ranks that receive from each other in a cycle.
func TestReceiveCycle(t *testing.T) {
	stalledLocal(t, 4, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		time.AfterFunc(3*time.Second, func() {
			if n := strings.Count(log.String(), "ranks wait for each other"); n != 1 {
				t.Errorf("the deadlock is logged %d times after 3 s, want once:\n%s", n, log)
			}
		})
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 0 { // is in no call, and in no cycle
				<-c.Done()
				return nil
			}
			_, err := nexar.Recv(t.Context(), c, make([]int32, 1), rank%3+1, 5)
			const want = "Ranks 1–3 have waited for each other for 61 s, rank 1 in recv from rank 2, rank 2 in recv from rank 3 and rank 3 in recv from rank 1: a deadlock"
			if !errors.Is(err, nexar.ErrDeadlock) || !strings.Contains(plain(err.Error()), want) {
				return fmt.Errorf("recv: %v, want %q", err, want)
			}
			if _, err := nexar.Recv(t.Context(), c, make([]int32, 1), 0, 5); !errors.Is(err, nexar.ErrRevoked) || !errors.Is(err, nexar.ErrDeadlock) {
				return fmt.Errorf("a later recv: %v, want that the communicator has ended by the deadlock", err)
			}
			return nil
		})
	})
}

// logsWithin3s checks 3 s later that one deadlock has been logged, and that its line contains the calls.
func logsWithin3s(t *testing.T, log *testlog.Buffer, calls string) {
	time.AfterFunc(3*time.Second, func() {
		var found []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "ranks wait for each other") {
				found = append(found, line)
			}
		}
		if len(found) != 1 || !strings.Contains(plain(found[0]), calls) {
			t.Errorf("deadlocks logged after 3 s: %q, want one with %q; the log is\n%s", found, calls, log)
		}
	})
}

// TestCycleOverNetwork: two ranks that receive from each other over a network. The deadlock is logged
// within 3 s, long before it ends the calls.
func TestCycleOverNetwork(t *testing.T) {
	stalled(t, 2, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		const want = "Rank 0 waits in recv from rank 1, which has been in recv from rank 0 for "
		logsWithin3s(t, log, want)
		start := time.Now()
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			_, err := nexar.Recv(t.Context(), c, make([]int32, 1), 1-rank, 5)
			if !errors.Is(err, nexar.ErrDeadlock) || !strings.Contains(plain(err.Error()), want) {
				return fmt.Errorf("recv: %v, want %q", err, want)
			}
			if took := time.Since(start); took < 60*time.Second || took > 65*time.Second {
				return fmt.Errorf("the deadlock ended after %v, want 60 s", took)
			}
			return nil
		})
	})
}

// TestBarrierAgainstRecv: a rank in a barrier and a rank that receives from it. The deadlock is logged
// within 3 s.
func TestBarrierAgainstRecv(t *testing.T) {
	stalled(t, 2, nexar.Config{DeadlockTimeout: 5 * time.Second}, func(t *testing.T, comms world, log *testlog.Buffer) {
		logsWithin3s(t, log, "Rank 0 waits in barrier #1 for rank 1, which has been in recv from rank 0 for ")
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) (err error) {
			if rank == 0 {
				err = c.Barrier(t.Context())
			} else {
				_, err = nexar.Recv(t.Context(), c, make([]int32, 1), 0, 5)
			}
			const want = "Rank 0 waits in barrier #1 for rank 1, which has been in recv from rank 0 for "
			if !errors.Is(err, nexar.ErrDeadlock) || !strings.Contains(plain(err.Error()), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
			return nil
		})
	})
}

// TestDeadlockOfTwoCommunicators: three ranks, each pair with a communicator of its own, wait for each
// other. No rank belongs to all communicators, and each gets the error.
func TestDeadlockOfTwoCommunicators(t *testing.T) {
	stalled(t, 3, nexar.Config{DeadlockTimeout: 5 * time.Second}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			pairs := make([]*nexar.Comm, 3) // by the rank that is in no call on it
			for k := range pairs {
				color := 0
				if k == rank {
					color = 1
				}
				pair, err := c.Split(t.Context(), color, rank)
				if err != nil {
					return err
				}
				defer pair.Close()
				pairs[k] = pair
			}
			// Rank 0 waits for 1 on the pair 0 1, 1 for 2 on 1 2, and 2 for 0 on 0 2.
			pair := pairs[(rank+2)%3]
			var err error
			if rank == 1 {
				err = pair.Barrier(t.Context())
			} else {
				_, err = nexar.Recv(t.Context(), pair, make([]int32, 1), 1-pair.Rank(), 5)
			}
			deadlock, ok := errors.AsType[*nexar.DeadlockError](err)
			if !ok || len(deadlock.Waits) != 3 {
				return fmt.Errorf("%v, want a deadlock of three ranks", err)
			}
			for i, w := range deadlock.Waits {
				if w.Rank != i || w.WaitsFor != (i+1)%3 {
					return fmt.Errorf("wait %d is %+v, want that of rank %d for rank %d", i, w, i, (i+1)%3)
				}
			}
			return nil
		})
	})
}

// TestRescue: a goroutine that sends the missing message after 20 seconds, or after 20 seconds each,
// ends the waits. No rank gets an error.
func TestRescue(t *testing.T) {
	stalledLocal(t, 2, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			sent := make(chan error, 1)
			go func() {
				for tag := range nexar.Tag(4) { // the last is the message that is missing
					time.Sleep(20 * time.Second)
					if err := nexar.Send(t.Context(), c, make([]int32, 1), 1-rank, tag); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			_, err := nexar.Recv(t.Context(), c, make([]int32, 1), 1-rank, 3)
			return errors.Join(err, <-sent)
		})
		if !strings.Contains(log.String(), "ranks wait for each other") {
			t.Errorf("the deadlock is not logged:\n%s", log)
		}
	})
}

// TestLateRank: a rank that comes to a collective after 5 minutes ends nothing. One of the others names it
// in growing intervals.
func TestLateRank(t *testing.T) {
	stalled(t, 3, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		for after, want := range map[time.Duration]int{9 * time.Second: 0, 11 * time.Second: 1, 29 * time.Second: 1, 31 * time.Second: 2} {
			time.AfterFunc(after, func() {
				if n := strings.Count(log.String(), "for rank 2, which has made no call"); n != want {
					t.Errorf("after %v the late rank has been named %d times, want %d", after, n, want)
				}
			})
		}
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 2 {
				time.Sleep(5 * time.Minute)
			}
			return nexar.AllReduce(t.Context(), c, make([]float32, 1000), nexar.Sum)
		})
		text := log.String()
		if n := strings.Count(text, "for rank 2, which has made no call"); n != 4 {
			t.Errorf("the late rank is named %d times in 5 minutes, want 4 times by one of two ranks, after 10, 30, 70 and 150 s:\n%s", n, text)
		}
		if strings.Contains(text, "each other") {
			t.Errorf("a deadlock is logged:\n%s", text)
		}
	})
}

// TestLongCollective: all ranks of a collective over a slow network wait for each other for 20 seconds, while data moves. No log and
// no state of the cluster calls that a delay.
func TestLongCollective(t *testing.T) {
	var log testlog.Buffer
	cfg := nexar.Config{CollectiveTimeout: 30 * time.Minute, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	worldtest.InFakeTimeWith(t, 3, cfg, func(t *testing.T, w *worldtest.World, network *sim.Network) {
		for a := range w.Comms {
			for b := range a {
				network.SetLink(w.Host(a), w.Host(b), sim.Link{Delay: time.Millisecond, Rate: 200_000})
			}
		}
		var longest atomic.Int32
		start := time.Now()
		for after := time.Second; after < 20*time.Second; after += 500 * time.Millisecond {
			time.AfterFunc(after, func() {
				c := trace.Cluster{Formed: true, Epoch: 1, World: 3, Joined: 3}
				for rank, comm := range w.Comms {
					s := comm.Trace()
					c.Nodes = append(c.Nodes, trace.Node{Rank: rank, Snapshot: &s})
				}
				f := c.Findings()[0]
				if f.State != trace.Working {
					t.Errorf("after %v the cluster is %s: %s", after, f.State, f.Text)
				}
				if strings.Contains(f.Text, "ranks 0–2 have been in all_reduce #") {
					longest.Add(1)
				}
			})
		}
		worldtest.OnAll(t, w.Comms, func(_ int, c *nexar.Comm) error {
			return nexar.AllReduce(t.Context(), c, make([]float32, 1<<20), nexar.Sum)
		})
		if took := time.Since(start); took < 20*time.Second || longest.Load() < 15 {
			t.Errorf("the collective took %v, and %d states have its time", took, longest.Load())
		}
		if text := log.String(); text != "" {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// TestServerRank: a rank that waits for messages of any rank, twice for longer than MessageTimeout, while the others compute
// and work with each other, gets no error, and no warning.
func TestServerRank(t *testing.T) {
	require.NoRace(t, "an hour of fake time is millions of timers, and other tests have the same goroutines")
	const computing = 35 * time.Minute
	stalledLocal(t, 3, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 0 {
				for range 2 {
					if _, err := nexar.Recv(t.Context(), c, make([]int32, 1), nexar.AnyRank, nexar.AnyTag); err != nil {
						return err
					}
				}
				return nil
			}
			time.Sleep(computing)
			if rank == 1 { // receives from a rank that computes
				if _, err := nexar.Recv(t.Context(), c, make([]int32, 1), 2, 4); err != nil {
					return err
				}
			} else {
				time.Sleep(5 * time.Second)
				if err := nexar.Send(t.Context(), c, []int32{1}, 1, 4); err != nil {
					return err
				}
			}
			time.Sleep(computing)
			return nexar.Send(t.Context(), c, []int32{1}, 0, 4)
		})
		if text := log.String(); text != "" {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// TestServerInDeadlock: a rank that waits for messages of any rank is part of a deadlock when all
// other ranks are.
func TestServerInDeadlock(t *testing.T) {
	stalled(t, 3, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) (err error) {
			switch rank {
			case 0:
				_, err = nexar.Recv(t.Context(), c, make([]int32, 1), nexar.AnyRank, nexar.AnyTag)
			case 1:
				err = c.Barrier(t.Context())
			case 2:
				time.Sleep(2 * time.Minute)
				_, err = nexar.Recv(t.Context(), c, make([]int32, 1), 0, 1)
			}
			if deadlock, ok := errors.AsType[*nexar.DeadlockError](err); !ok || len(deadlock.Waits) != 3 {
				return fmt.Errorf("%v, want a deadlock of three ranks", err)
			}
			return nil
		})
	})
}

// TestDeadlockOfManyRanks: the error of every rank of a deadlock of 12 has the calls of the same ten of them, and the number of all.
func TestDeadlockOfManyRanks(t *testing.T) {
	const n = 12
	const want = "rank 0 in recv from rank 1, rank 1 in recv from rank 2, rank 2 in recv from rank 3 and 7 more in other calls: a deadlock of 12 ranks, of which 10 are known here"
	stalledLocal(t, n, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			_, err := nexar.Recv(t.Context(), c, make([]int32, 1), (rank+1)%n, 7)
			deadlock, ok := errors.AsType[*nexar.DeadlockError](err)
			if !ok || deadlock.Ranks != n || len(deadlock.Waits) != 10 || !strings.HasSuffix(plain(err.Error()), want) {
				return fmt.Errorf("%v, want %q", err, want)
			}
			return nil
		})
		if !strings.Contains(plain(log.String()), want) {
			t.Errorf("logged:\n%s", log)
		}
	})
}

// TestRunningGoroutine: two ranks, each with a goroutine in a cycle, are in no deadlock as long as
// another goroutine of one of them waits for a rank that computes.
func TestRunningGoroutine(t *testing.T) {
	stalled(t, 3, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			recv := func(from int, tag nexar.Tag) error {
				_, err := nexar.Recv(t.Context(), c, make([]int32, 1), from, tag)
				return err
			}
			switch rank {
			case 0:
				ended := make(chan error, 1)
				go func() { ended <- recv(1, 1) }()
				err := recv(2, 2)
				return errors.Join(err, nexar.Send(t.Context(), c, []int32{1}, 1, 3), <-ended)
			case 1:
				err := recv(0, 3)
				return errors.Join(err, nexar.Send(t.Context(), c, []int32{1}, 0, 1))
			}
			time.Sleep(10 * time.Minute)
			return nexar.Send(t.Context(), c, []int32{1}, 0, 2)
		})
		if text := log.String(); strings.Contains(text, "each other") {
			t.Errorf("a deadlock is logged:\n%s", text)
		}
	})
}

// TestHandleIsNoWait: an operation in progress is no wait as long as no goroutine waits for its handle.
func TestHandleIsNoWait(t *testing.T) {
	stalled(t, 2, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			one := make([]int32, 1)
			if rank == 1 {
				if _, err := nexar.Recv(t.Context(), c, one, 0, 1); err != nil {
					return err
				}
				return errors.Join(c.Barrier(t.Context()), nexar.Send(t.Context(), c, one, 0, 2))
			}
			received := nexar.StartRecv(t.Context(), c, one, 1, 2)
			barrier := c.StartBarrier(t.Context())
			time.Sleep(10 * time.Minute)
			err := nexar.Send(t.Context(), c, []int32{1}, 1, 1)
			return errors.Join(err, nexar.WaitAll(received, barrier))
		})
		if text := log.String(); strings.Contains(text, "each other") {
			t.Errorf("a deadlock is logged:\n%s", text)
		}
	})
}

// TestWaitOfHandles: goroutines that wait for handles are part of a deadlock.
func TestWaitOfHandles(t *testing.T) {
	stalled(t, 2, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) (err error) {
			if rank == 0 {
				_, err = nexar.WaitAny(t.Context(), nexar.StartRecv(t.Context(), c, make([]int32, 1), 1, 1), nexar.StartRecv(t.Context(), c, make([]int32, 1), 1, 2))
			} else {
				err = c.StartBarrier(t.Context()).Wait()
			}
			if !errors.Is(err, nexar.ErrDeadlock) {
				return fmt.Errorf("%v, want %v", err, nexar.ErrDeadlock)
			}
			return nil
		})
	})
}

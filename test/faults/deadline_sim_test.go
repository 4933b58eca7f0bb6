package faults

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestDeadline: a call that the deadline of its context ends names the rank that it waited for, with the call of that rank.
func TestDeadline(t *testing.T) {
	const late = 2
	for name, test := range map[string]struct {
		call    func(ctx context.Context, c *nexar.Comm) error
		waiting []int
		want    string
	}{
		"barrier": {func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) }, []int{late}, " in barrier #1"},
		"all-reduce": {func(ctx context.Context, c *nexar.Comm) error {
			return nexar.AllReduce(ctx, c, make([]float32, 8), nexar.Sum)
		}, nil, " in all_reduce #1"},
		"handle": {func(ctx context.Context, c *nexar.Comm) error {
			return nexar.StartAllReduce(ctx, c, make([]float32, 8), nexar.Sum).Wait()
		}, nil, " in all_reduce #1"},
		"send": {func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Send(ctx, c, make([]byte, large), late, 7)
		}, []int{late}, " waits in send to rank 2"},
		"recv": {func(ctx context.Context, c *nexar.Comm) error {
			_, err := nexar.Recv(ctx, c, make([]byte, 1), late, 7)
			return err
		}, []int{late}, " waits in recv from rank 2"},
		"handle of a receive": {func(ctx context.Context, c *nexar.Comm) error {
			return nexar.StartRecv(ctx, c, make([]byte, 1), late, 7).Wait()
		}, []int{late}, " waits in recv from rank 2"},
		"probe": {func(ctx context.Context, c *nexar.Comm) error {
			_, err := nexar.Probe[byte](ctx, c, late, 7)
			return err
		}, []int{late}, " waits in probe from rank 2"},
		"matched probe": {func(ctx context.Context, c *nexar.Comm) error {
			_, err := c.MatchedProbe(ctx, late, 7)
			return err
		}, []int{late}, " waits in probe from rank 2"},
		"exchange": {func(ctx context.Context, c *nexar.Comm) error {
			_, err := nexar.Exchange(ctx, c, make([]byte, 1), make([]byte, 1), late, late, 7)
			return err
		}, []int{late}, " waits in recv from rank 2"},
		"any of several handles": {func(ctx context.Context, c *nexar.Comm) error {
			last := context.WithoutCancel(ctx)
			_, err := nexar.WaitAny(ctx, nil, nexar.StartRecv(last, c, make([]byte, 1), late, 7), nexar.StartRecv(last, c, make([]byte, 1), late, 8))
			return err
		}, []int{late}, " waits in recv from rank 2"},
		"remote call": {func(ctx context.Context, c *nexar.Comm) error {
			_, err := c.Call(ctx, late, "slow", nil)
			return err
		}, []int{late}, ` waits in call of "slow" at rank 2`},
		"any rank": {func(ctx context.Context, c *nexar.Comm) error {
			_, err := nexar.Recv(ctx, c, make([]byte, 1), nexar.AnyRank, 7)
			return err
		}, nil, " waits in recv from any rank"},
	} {
		t.Run(name, func(t *testing.T) {
			stalled(t, 3, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
				comms[late].Register("slow", func(ctx context.Context, _ int, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == late {
						time.Sleep(10 * time.Second)
						return nil
					}
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
					defer cancel()
					err := test.call(ctx, c)
					e, ok := errors.AsType[*nexar.DeadlineError](err)
					switch {
					case errors.Is(err, nexar.ErrRevoked): // The deadline of the other rank has passed first.
						if !strings.Contains(err.Error(), test.want) {
							return fmt.Errorf("%w, want %q", err, test.want)
						}
					case !ok || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), test.want):
						return fmt.Errorf("%w, want a DeadlineError with %q", err, test.want)
					case test.waiting != nil && !slices.Equal(e.Waiting, test.waiting):
						return fmt.Errorf("it waited for %v, want %v", e.Waiting, test.waiting)
					case test.waiting != nil && name != "remote call" && !strings.Contains(e.Sentence, "which has made no call"):
						return fmt.Errorf("%w, want that rank 2 has made no call", err)
					}
					return nil
				})
			})
		})
	}
}

// TestDeadlineOfHandles: WaitAny names the ranks that its handles wait for, and not that of another call on the communicator. If one of them
// waits for any rank, it names none.
func TestDeadlineOfHandles(t *testing.T) {
	for name, test := range map[string]struct {
		sources, want []int
	}{
		"of one rank":      {[]int{1}, []int{1}},
		"of two ranks":     {[]int{3, 1}, []int{1, 3}},
		"of any rank, too": {[]int{3, nexar.AnyRank}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			stalled(t, 4, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
				c := comms[0]
				var other sync.WaitGroup
				defer other.Wait()
				running, cancel := context.WithCancel(t.Context())
				defer cancel()
				other.Go(func() { _, _ = nexar.Recv(running, c, make([]byte, 1), 2, 7) })
				var handles []*nexar.Handle
				for _, source := range test.sources {
					handles = append(handles, nexar.StartRecv(running, c, make([]byte, 1), source, 8))
				}
				ctx, stop := context.WithTimeout(running, 3*time.Second)
				defer stop()
				_, err := nexar.WaitAny(ctx, handles...)
				e, ok := errors.AsType[*nexar.DeadlineError](err)
				if !ok || !slices.Equal(e.Waiting, test.want) || strings.Contains(e.Sentence, "rank 2") {
					t.Errorf("got %v for %v, want a DeadlineError for %v", err, e, test.want)
				}
			})
		})
	}
}

// TestDeadlineAtOnce: a call names the rank that it waits for, also in shared memory and if the deadline passes before the node has looked for
// calls that wait.
func TestDeadlineAtOnce(t *testing.T) {
	var e *nexar.DeadlineError
	for after := time.Millisecond; (e == nil || len(e.Waiting) == 0) && after < 10*time.Second; after *= 2 { // It may pass before the call waits.
		comms, err := nexar.Local(t.Context(), 2, nexar.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), after)
		err = comms[0].Barrier(ctx)
		if e, _ = errors.AsType[*nexar.DeadlineError](err); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("barrier: %v", err)
		}
		cancel()
		for _, c := range comms {
			c.Close()
		}
	}
	if e == nil || !slices.Equal(e.Waiting, []int{1}) || !strings.HasPrefix(e.Sentence, "Rank 0 waits in barrier #1 for rank 1") {
		t.Errorf("%+v, want a DeadlineError that names rank 1", e)
	}
}

// TestCancelled: a cancelled call has the cause of its context, without more.
func TestCancelled(t *testing.T) {
	stalled(t, 2, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		cause := errors.New("the user has pressed stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(cause) })
		_, err := nexar.Recv(ctx, comms[0], make([]byte, 1), 1, 7)
		if _, is := errors.AsType[*nexar.DeadlineError](err); is || !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("recv: %v", err)
		}
	})
}

// TestStallIsLoggedOnce: one of eight ranks that wait for a late one logs its wait, after 10 seconds, in a sentence with the lines of the
// program.
func TestStallIsLoggedOnce(t *testing.T) {
	stalled(t, 8, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 5 {
				time.Sleep(15 * time.Second)
			}
			return c.Barrier(t.Context())
		})
		var found []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, " in barrier #1") {
				found = append(found, line)
			}
		}
		if len(found) != 1 || !strings.Contains(found[0], "for rank 5, which has made no call") || !strings.Contains(found[0], "in barrier #1 (faults/deadline_sim_test.go:") {
			t.Errorf("logged %d lines, want one:\n%s", len(found), log)
		}
	})
}

var ofSites = regexp.MustCompile(` \(\S+\.go:[0-9]+( or \S+\.go:[0-9]+)?\)`)

// plain returns a text without the lines of the tests that wait.
func plain(text string) string { return ofSites.ReplaceAllString(text, "") }

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// exchangeBy is Exchange, or StartExchange and Wait.
func exchangeBy(started bool, ctx context.Context, c *nexar.Comm, dst, src []int32, to, from int, tag nexar.Tag) (nexar.Status, error) {
	if !started {
		return nexar.Exchange(ctx, c, dst, src, to, from, tag)
	}
	h := nexar.StartExchange(ctx, c, dst, src, to, from, tag)
	if err := h.Wait(); err != nil {
		return nexar.Status{}, err
	}
	return h.Status(), nil
}

// TestExchange: ranks exchange messages of all lengths in rings and in pairs without a
// deadlock.
func TestExchange(t *testing.T) {
	ways := map[string]func(rank, n int) (to, from int){
		"ring":    func(rank, n int) (to, from int) { return (rank + 1) % n, (rank + n - 1) % n },
		"leap":    func(rank, n int) (to, from int) { return (rank + n/2) % n, (rank + n - n/2) % n },
		"pairs":   func(rank, _ int) (to, from int) { return rank ^ 1, rank ^ 1 },
		"mirror":  func(rank, n int) (to, from int) { return n - 1 - rank, n - 1 - rank },
		"oneself": func(rank, _ int) (to, from int) { return rank, rank },
		"anyone":  func(rank, n int) (to, from int) { return (rank + 1) % n, nexar.AnyRank },
	}
	for _, m := range worldtest.MessageMedia() {
		sizes := []int{1, 2, 3, 6}
		if m.Name != worldtest.Mem().Name {
			sizes = sizes[1:3]
		}
		if worldtest.Brief() {
			sizes = sizes[len(sizes)-1:]
		}
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, n), func(t *testing.T) {
				m.Require(t)
				comms := m.Cluster(t, n, nexar.Config{})
				for name, partners := range ways {
					if n%2 == 1 && name == "pairs" {
						continue
					}
					worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
						to, from := partners(rank, n)
						for k := range streamLengths {
							if err := exchangeOnce(t, c, to, from, k); err != nil {
								return fmt.Errorf("%s, round %d: %w", name, k, err)
							}
						}
						return c.Barrier(t.Context())
					})
				}
			})
		}
	}
}

// exchangeOnce exchanges the message of round k.
func exchangeOnce(t *testing.T, c *nexar.Comm, to, from, k int) error {
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	rank, source := c.Rank(), from
	if from == nexar.AnyRank {
		source = (rank + c.Size() - 1) % c.Size()
	}
	// The messages of a round have the lengths of this and of the next ones.
	out, in := stream{rank, to, nexar.Tag(k)}, stream{source, rank, nexar.Tag(k)}
	dst := make([]int32, 300_002)
	got, err := exchangeBy(k%2 == 1, ctx, c, dst, out.message(k+rank), to, from, nexar.Tag(k))
	if err != nil {
		return err
	}
	return in.check(k+source, got, dst)
}

// TestExchangeInvalid: an invalid argument is an error at once, and leaves no message, no
// receive and no buffer behind.
func TestExchangeInvalid(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	c := comms[0]
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	x, y := make([]int32, 8), make([]int32, 8)
	for _, test := range []struct {
		dst, src []int32
		to, from int
		tag      nexar.Tag
		want     error
		text     string
	}{
		{x, y, 3, 1, 4, nexar.ErrInvalidRank, "invalid rank: to rank 3 of 3 ranks"},
		{x, y, nexar.AnyRank, 1, 4, nexar.ErrInvalidRank, "invalid rank: to rank -1 (AnyRank) of 3 ranks: only a receive or a probe accepts it"},
		{x, y, 1, 3, 4, nexar.ErrInvalidRank, "invalid rank: from rank 3 of 3 ranks"},
		{x, y, 1, -3, 4, nexar.ErrInvalidRank, "invalid rank: from rank -3 of 3 ranks"},
		{x, y, 1, 1, nexar.AnyTag, nexar.ErrInvalidTag, "invalid tag: -1 (AnyTag): only a receive or a probe accepts it: use a tag of at least 0"},
		{x, y, 1, 1, -7, nexar.ErrInvalidTag, "invalid tag: -7: must be at least 0"},
		{x, x, 1, 1, 4, nexar.ErrOverlap, "vectors overlap: dst and src share memory"},
		{x[:5], x[4:], 1, nexar.AnyRank, 4, nexar.ErrOverlap, "vectors overlap: dst and src share memory"},
	} {
		for _, started := range []bool{false, true} {
			_, err := exchangeBy(started, ctx, c, test.dst, test.src, test.to, test.from, test.tag)
			if !errors.Is(err, test.want) || err.Error() != "nexar: exchange: "+test.text {
				t.Errorf("to %d, from %d, tag %d, started %v: %v, want %q", test.to, test.from, test.tag, started, err, test.text)
			}
			expectNothing(ctx, t, comms, test.dst)
		}
	}
	if _, err := nexar.Exchange(ctx, c, make([]*int, 1), make([]*int, 1), 1, 1, 4); !errors.Is(err, nexar.ErrInvalidType) {
		t.Errorf("pointers: %v, want ErrInvalidType", err)
	}
	worldtest.CheckWorks(t, comms)
}

// TestExchangeFails: if one of the two messages fails, the other one still arrives, on
// both sides.
func TestExchangeFails(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		for _, count := range []int{100, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, count), func(t *testing.T) {
				m.Require(t)
				comms := m.Cluster(t, 2, nexar.Config{})
				for _, started := range []bool{false, true} {
					worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
						ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
						defer cancel()
						dst, src := make([]int32, count-1+rank), slices.Repeat([]int32{int32(rank + 1)}, count)
						got, err := exchangeBy(started, ctx, c, dst, src, 1-rank, 1-rank, 3)
						// Rank 0 has no room for the message of rank 1, which gets
						// an error if the message needed a grant.
						want := nexar.ErrTruncated
						if rank == 1 && count == 100 {
							want = nil
						}
						if !errors.Is(err, want) || err == nil && (want != nil || got != nexar.Status{Source: 0, Tag: 3, Count: count}) {
							return fmt.Errorf("%+v, %w, want %v", got, err, want)
						}
						if want := int32(rank); slices.ContainsFunc(dst, func(x int32) bool { return x != want }) {
							return fmt.Errorf("received %d, …, want %d", dst[0], want)
						}
						return nil
					})
				}
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// TestExchangeAfterLeave: an exchange with a rank that has left does not start, and the
// next receive gets the message of another rank.
func TestExchangeAfterLeave(t *testing.T) {
	for _, count := range []int{100, 100_000} {
		comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		defer cancel()
		sent := nexar.StartSend(ctx, comms[1], make([]int32, count), 0, 4)
		if err := comms[2].Close(); err != nil {
			t.Fatal(err)
		}
		for comms[0].Err() == nil {
			err := worldtest.RecvError(ctx, comms[0], 2, 9) // until the end of rank 2 is known
			if p, ok := errors.AsType[*nexar.PeerError](err); ok && p.Left {
				break
			}
		}
		dst, src := make([]int32, count), make([]int32, count)
		for _, started := range []bool{false, true} {
			_, err := exchangeBy(started, ctx, comms[0], dst, src, 2, 1, 4)
			if p, ok := errors.AsType[*nexar.PeerError](err); !ok || p.Rank != 2 || !p.Left || !strings.HasPrefix(err.Error(), "nexar: exchange: rank 2 ") {
				t.Errorf("%d elements: %v, want that rank 2 has left", count, err)
			}
		}
		if got, err := nexar.Recv(ctx, comms[0], dst, 1, 4); err != nil || got.Count != count {
			t.Errorf("%d elements: %+v, %v", count, got, err)
		}
		if err := sent.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestExchangeCancelled: an exchange without a partner that is cancelled after it has sent its message changes nothing if
// the message needs no grant, and otherwise revokes the communicator.
func TestExchangeCancelled(t *testing.T) {
	for _, count := range []int{100, 100_000} {
		for _, started := range []bool{false, true} {
			comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
			ctx := cancelledByMessage(t, comms[1], 4)
			dst, src := make([]int32, count), make([]int32, count)
			_, err := exchangeBy(started, ctx, comms[0], dst, src, 1, 1, 4)
			if !errors.Is(err, worldtest.ErrCancelled) || !errors.Is(err, context.Canceled) {
				t.Errorf("%d elements: %v, want %v", count, err, worldtest.ErrCancelled)
			}
			if err := comms[0].Err(); errors.Is(err, nexar.ErrRevoked) != (count > 100) {
				t.Errorf("%d elements: the communicator: %v", count, err)
			}
			if count == 100 {
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				if got, err := nexar.Recv(ctx, comms[1], make([]int32, count), 0, 4); err != nil || got.Count != count {
					t.Errorf("the message of the exchange: %+v, %v", got, err)
				}
				expectNothing(ctx, t, comms, dst)
			}
		}
	}
}

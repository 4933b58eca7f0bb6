package nexar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// exchangeBy is Exchange, or StartExchange and Wait.
func exchangeBy(started bool, ctx context.Context, c *Comm, dst, src []int32, to, from int, tag Tag) (Status, error) {
	if !started {
		return Exchange(ctx, c, dst, src, to, from, tag)
	}
	h := StartExchange(ctx, c, dst, src, to, from, tag)
	if err := h.Wait(); err != nil {
		return Status{}, err
	}
	return h.Status(), nil
}

// TestExchange: ranks exchange messages of all lengths, each of another one, in
// rings and in pairs, none of which comes to a standstill.
func TestExchange(t *testing.T) {
	ways := map[string]func(rank, n int) (to, from int){
		"ring":    func(rank, n int) (to, from int) { return (rank + 1) % n, (rank + n - 1) % n },
		"leap":    func(rank, n int) (to, from int) { return (rank + n/2) % n, (rank + n - n/2) % n },
		"pairs":   func(rank, _ int) (to, from int) { return rank ^ 1, rank ^ 1 },
		"mirror":  func(rank, n int) (to, from int) { return n - 1 - rank, n - 1 - rank },
		"oneself": func(rank, _ int) (to, from int) { return rank, rank },
		"anyone":  func(rank, n int) (to, from int) { return (rank + 1) % n, AnyRank },
	}
	for _, m := range messageMedia() {
		sizes := []int{1, 2, 3, 6}
		if m.name != overMem.name {
			sizes = sizes[1:3]
		}
		if raceDetector {
			sizes = sizes[len(sizes)-2:]
		}
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.name, n), func(t *testing.T) {
				m.needs(t)
				comms := m.cluster(t, n, Config{})
				for name, way := range ways {
					if n%2 == 1 && name == "pairs" {
						continue
					}
					onAll(t, comms, func(rank int, c *Comm) error {
						to, from := way(rank, n)
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
func exchangeOnce(t *testing.T, c *Comm, to, from, k int) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rank, source := c.Rank(), from
	if from == AnyRank {
		source = (rank + c.Size() - 1) % c.Size()
	}
	// The messages of a round have the lengths of this and of the next ones.
	out, in := stream{rank, to, Tag(k)}, stream{source, rank, Tag(k)}
	dst := make([]int32, 300_002)
	got, err := exchangeBy(k%2 == 1, ctx, c, dst, out.message(k+rank), to, from, Tag(k))
	if err != nil {
		return err
	}
	return in.check(k+source, got, dst)
}

// TestExchangeInvalid: a wrong argument is an error at once, and nothing is left
// behind: no message, none that is asked for, and no memory in use.
func TestExchangeInvalid(t *testing.T) {
	comms := overMem.cluster(t, 3, Config{})
	c := comms[0]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x, y := make([]int32, 8), make([]int32, 8)
	for _, test := range []struct {
		dst, src []int32
		to, from int
		tag      Tag
		want     error
		text     string
	}{
		{x, y, 3, 1, 4, ErrInvalidRank, "invalid rank: to rank 3 of 3 ranks"},
		{x, y, AnyRank, 1, 4, ErrInvalidRank, "invalid rank: to rank -1 of 3 ranks"},
		{x, y, 1, 3, 4, ErrInvalidRank, "invalid rank: from rank 3 of 3 ranks"},
		{x, y, 1, -2, 4, ErrInvalidRank, "invalid rank: from rank -2 of 3 ranks"},
		{x, y, 1, 1, AnyTag, ErrInvalidTag, "invalid tag: -1"},
		{x, y, 1, 1, -7, ErrInvalidTag, "invalid tag: -7"},
		{x, x, 1, 1, 4, ErrOverlap, "vectors overlap: dst and src share memory"},
		{x[:5], x[4:], 1, AnyRank, 4, ErrOverlap, "vectors overlap: dst and src share memory"},
	} {
		for _, started := range []bool{false, true} {
			_, err := exchangeBy(started, ctx, c, test.dst, test.src, test.to, test.from, test.tag)
			if !errors.Is(err, test.want) || err.Error() != "nexar: exchange: "+test.text {
				t.Errorf("to %d, from %d, tag %d, started %v: %v, want %q", test.to, test.from, test.tag, started, err, test.text)
			}
			nothingLeft(ctx, t, comms, test.dst)
		}
	}
	if _, err := Exchange(ctx, c, make([]*int, 1), make([]*int, 1), 1, 1, 4); !errors.Is(err, ErrInvalidType) {
		t.Errorf("pointers: %v, want ErrInvalidType", err)
	}
	stillWorks(t, comms)
}

// nothingLeft checks that rank 0 has neither sent anything nor asks for a
// message into dst: another receive gets it.
func nothingLeft(ctx context.Context, t *testing.T, comms []*Comm, dst []int32) {
	t.Helper()
	for rank := range comms {
		if _, ok, err := comms[rank].comm.Peek(AnyRank, int64(AnyTag)); ok || err != nil {
			t.Errorf("rank %d: there is a message, or the error is %v", rank, err)
		}
	}
	h := StartRecv(ctx, comms[0], dst, AnyRank, AnyTag)
	if err := Send(ctx, comms[1], []int32{5, 6}, 0, 4); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(); err != nil || h.Status() != (Status{1, 4, 2}) || dst[0] != 5 || dst[1] != 6 {
		t.Errorf("the receive after it: %+v, %v, %v", h.Status(), err, dst)
	}
}

// TestExchangeFails: if one of the two messages fails, the other arrives all the
// same, on both sides.
func TestExchangeFails(t *testing.T) {
	for _, m := range messageMedia() {
		for _, count := range []int{100, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", m.name, count), func(t *testing.T) {
				m.needs(t)
				comms := m.cluster(t, 2, Config{})
				for _, started := range []bool{false, true} {
					onAll(t, comms, func(rank int, c *Comm) error {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						dst, src := make([]int32, count-1+rank), slices.Repeat([]int32{int32(rank + 1)}, count)
						got, err := exchangeBy(started, ctx, c, dst, src, 1-rank, 1-rank, 3)
						// Rank 0 has no room for the message of rank 1, which
						// hears of it if that had to be granted.
						want := ErrTruncated
						if rank == 1 && count == 100 {
							want = nil
						}
						if !errors.Is(err, want) || err == nil && (want != nil || got != Status{0, 3, count}) {
							return fmt.Errorf("%+v, %w, want %v", got, err, want)
						}
						if want := int32(rank); slices.ContainsFunc(dst, func(x int32) bool { return x != want }) {
							return fmt.Errorf("received %d, …, want %d", dst[0], want)
						}
						return nil
					})
				}
				stillWorks(t, comms)
			})
		}
	}
}

// TestExchangeWithOneWhoLeft: nothing is begun with a rank that has left, and
// what others send is there for the next.
func TestExchangeWithOneWhoLeft(t *testing.T) {
	for _, count := range []int{100, 100_000} {
		comms := overMem.cluster(t, 3, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		sent := StartSend(ctx, comms[1], make([]int32, count), 0, 4)
		if err := comms[2].Close(); err != nil {
			t.Fatal(err)
		}
		for comms[0].Err() == nil {
			err := recvError(ctx, comms[0], 2, 9) // until it has heard of that
			if p, ok := errors.AsType[*PeerError](err); ok && p.Left {
				break
			}
		}
		dst, src := make([]int32, count), make([]int32, count)
		for _, started := range []bool{false, true} {
			_, err := exchangeBy(started, ctx, comms[0], dst, src, 2, 1, 4)
			if p, ok := errors.AsType[*PeerError](err); !ok || p.Rank != 2 || !p.Left || !strings.HasPrefix(err.Error(), "nexar: exchange: rank 2 ") {
				t.Errorf("%d elements: %v, want that rank 2 has left", count, err)
			}
		}
		if got, err := Recv(ctx, comms[0], dst, 1, 4); err != nil || got.Count != count {
			t.Errorf("%d elements: %+v, %v", count, got, err)
		}
		if err := sent.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestExchangeCancelled: an exchange for which nobody comes changes nothing if
// its message need not be granted, and otherwise ends the communicator.
func TestExchangeCancelled(t *testing.T) {
	for _, count := range []int{100, 100_000} {
		for _, started := range []bool{false, true} {
			comms := overMem.cluster(t, 2, Config{})
			ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errEnough)
			defer cancel()
			dst, src := make([]int32, count), make([]int32, count)
			_, err := exchangeBy(started, ctx, comms[0], dst, src, 1, 1, 4)
			if !errors.Is(err, errEnough) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d elements: %v, want %v", count, err, errEnough)
			}
			if err := comms[0].Err(); errors.Is(err, ErrRevoked) != (count > 100) {
				t.Errorf("%d elements: the communicator: %v", count, err)
			}
			if count == 100 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if got, err := Recv(ctx, comms[1], make([]int32, count), 0, 4); err != nil || got.Count != count {
					t.Errorf("what was sent: %+v, %v", got, err)
				}
				nothingLeft(ctx, t, comms, dst)
			}
		}
	}
}

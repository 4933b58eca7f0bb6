package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// callMedia returns the media for tests of calls.
func callMedia() []worldtest.Medium {
	return worldtest.Media(append(worldtest.MessageMedia(), worldtest.MemLinks(), worldtest.Sim().OnDemand(), worldtest.TLS().OnDemand(), worldtest.SHMLinks(), worldtest.TLS(),
		worldtest.TLS().Eager(), worldtest.Mixed())...)
}

// bytesFor returns n bytes for the call of a given number.
//
//go:norace
func bytesFor(number, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + number)
	}
	return b
}

// turned returns the result of the function "turn", which depends on both ranks and the
// arguments. The first 8 bytes of the arguments are the length of the result.
func turned(rank, from int, args []byte) []byte {
	want := int(binary.BigEndian.Uint64(args))
	sum := rank*31 + from
	for _, b := range args[:min(len(args), 100)] {
		sum = sum*31 + int(b)
	}
	return bytesFor(sum+len(args), want)
}

// registerTurn registers "turn" on all ranks. It overwrites its arguments, which it owns.
func registerTurn(comms []*nexar.Comm) {
	for rank, c := range comms {
		c.Register("turn", func(_ context.Context, from int, args []byte) ([]byte, error) {
			result := turned(rank, from, args)
			clear(args)
			return result, nil
		})
	}
}

// callTurn calls "turn" with arguments and a result of different lengths.
func callTurn(ctx context.Context, c *nexar.Comm, to, number, args, result int) error {
	b := bytesFor(number, max(8, args))
	binary.BigEndian.PutUint64(b, uint64(result))
	kept := slices.Clone(b)
	got, err := c.Call(ctx, to, "turn", b)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, turned(to, c.Rank(), kept)):
		return fmt.Errorf("call %d of rank %d with %d bytes: %d bytes, which differ from the expected result", number, to, args, len(got))
	case !bytes.Equal(b, kept):
		return fmt.Errorf("call %d of rank %d with %d bytes has changed its arguments", number, to, args)
	}
	return nil
}

// callLengths returns lengths around the longest message without a grant, minus the headers of a
// call and of an answer, and longer ones.
func callLengths(all bool) []int {
	const call, answer = 22, 26
	heads := []int{call, answer}
	if all {
		heads = append(heads, 0, wire.RemoteHeadMax)
	}
	lengths := []int{8, 9, 1000}
	for _, head := range heads {
		for delta := -1; delta <= 1; delta++ {
			lengths = append(lengths, wire.PayloadMax-head+delta)
		}
	}
	if all {
		return append(lengths, 1<<20, 1<<20+1, 20<<20)
	}
	return append(lengths, 1<<20+1)
}

// TestCall: all ranks call all ranks, including themselves, with arguments and results of all
// lengths.
func TestCall(t *testing.T) {
	for _, m := range callMedia() {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 3, nexar.Config{})
			registerTurn(comms)
			lengths := callLengths(m.Name == worldtest.Mem().Name && !worldtest.Brief())
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				if err := c.Barrier(t.Context()); err != nil {
					return err
				}
				for to := range comms {
					for i, n := range lengths {
						result := lengths[(i+1+to)%len(lengths)]
						if i%2 == 0 {
							result = i // empty or a few bytes
						}
						if err := callTurn(t.Context(), c, to, i, n, result); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// TestEmptyCall: arguments and results may be empty.
func TestEmptyCall(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		comms := m.Cluster(t, 2, nexar.Config{})
		for _, c := range comms {
			c.Register("n", func(_ context.Context, from int, args []byte) ([]byte, error) {
				if from != 0 || len(args) > 0 {
					return nil, fmt.Errorf("called by rank %d with %q", from, args)
				}
				return nil, nil
			})
		}
		for to := range comms {
			for _, args := range [][]byte{nil, {}} {
				if got, err := comms[0].Call(t.Context(), to, "n", args); err != nil || len(got) > 0 {
					t.Errorf("call of rank %d: got %q, %v, want an empty result", to, got, err)
				}
			}
		}
	}
}

// TestLongCall: arguments and a result of 256 MiB.
func TestLongCall(t *testing.T) {
	long := 256 << 20
	if worldtest.Brief() {
		long /= 8
	}
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	comms[1].Register("last", func(_ context.Context, _ int, args []byte) ([]byte, error) {
		args[0] = args[len(args)-1]
		return args, nil
	})
	args := make([]byte, long)
	args[long-1] = 7
	got, err := comms[0].Call(t.Context(), 1, "last", args)
	if err != nil || len(got) != long || got[0] != 7 || got[long-1] != 7 || args[0] != 0 {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, long)
	}
}

// TestCallsOfCommunicators: each communicator has its own functions, and concurrent calls on
// several communicators do not mix.
func TestCallsOfCommunicators(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			world := m.Cluster(t, 4, nexar.Config{})
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
				defer cancel()
				half, err := c.Split(ctx, rank%2, -rank)
				if err != nil {
					return err
				}
				twin, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				comms := []*nexar.Comm{c, half, twin}
				for i, c := range comms {
					c.Register("who", func(_ context.Context, from int, args []byte) ([]byte, error) {
						return fmt.Appendf(nil, "%s: rank %d of communicator %d of rank %d, by rank %d", args, c.Rank(), i, rank, from), nil
					})
				}
				twin.Register("twin", func(context.Context, int, []byte) ([]byte, error) { return nil, nil })
				if err := c.Barrier(ctx); err != nil {
					return err
				}
				var calls sync.WaitGroup
				answered := make([]error, len(comms))
				for i, c := range comms {
					calls.Go(func() { answered[i] = askAll(ctx, c, i, 50) })
				}
				calls.Wait()
				errs := []error{errors.Join(answered...)}
				if _, err := c.Call(ctx, 0, "twin", nil); !errors.Is(err, nexar.ErrUnknownFunction) {
					errs = append(errs, fmt.Errorf("a function of another communicator: %w", err))
				}
				errs = append(errs, c.Barrier(ctx), half.Close(), twin.Close())
				return errors.Join(errs...)
			})
		})
	}
}

// askAll calls a function of all ranks, times times. index is the number of c in its test.
func askAll(ctx context.Context, c *nexar.Comm, index, times int) error {
	for k := range times {
		for to := range c.Size() {
			got, err := c.Call(ctx, to, "who", fmt.Appendf(nil, "%d", k))
			if err != nil {
				return err
			}
			want := fmt.Sprintf("%d: rank %d of communicator %d of rank %d, by rank %d", k, to, index, c.WorldRank(to), c.Rank())
			if string(got) != want {
				return fmt.Errorf("got %q, want %q", got, want)
			}
		}
	}
	return nil
}

// TestHandlersCall: a function may call functions of other ranks, including itself, and a
// collective on another communicator.
func TestHandlersCall(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			world := m.Cluster(t, 3, nexar.Config{})
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				other, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				defer other.Close()
				// "down" calls itself on the next rank until its number is 0.
				down := nexar.Func[int, int]{Name: "down"}
				down.Register(c, func(ctx context.Context, _ int, x int) (int, error) {
					if x == 0 {
						return 0, nil
					}
					y, err := down.Call(ctx, c, (rank+1)%3, x-1)
					return y + rank, err
				})
				sum := nexar.Func[int64, int64]{Name: "sum"}
				sum.Register(c, func(ctx context.Context, _ int, x int64) (int64, error) {
					all := []int64{x}
					err := nexar.AllReduce(ctx, other, all, nexar.Sum)
					return all[0], err
				})
				if err := c.Barrier(ctx); err != nil {
					return err
				}
				if got, err := down.Call(ctx, c, rank, 30); err != nil || got != 30 {
					return fmt.Errorf("down: %d, %w, want 30", got, err)
				}
				if err := c.Barrier(ctx); err != nil {
					return err
				}
				// Each rank makes the next one call a collective.
				if got, err := sum.Call(ctx, c, (rank+1)%3, int64(rank+1)); err != nil || got != 6 {
					return fmt.Errorf("sum: %d, %w, want 6", got, err)
				}
				return c.Barrier(ctx)
			})
		})
	}
}

// A ticket is the argument of functions.
type ticket struct {
	Name  string
	Seats []int
	Extra map[string]float64
}

// TestFunc: calls with every Codec pass the values unchanged.
func TestFunc(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	want := ticket{"round", []int{1, 2, 3}, map[string]float64{"x": 0.5}}
	for name, codec := range map[string]nexar.Codec{"default": nil, "gob": nexar.Gob{}, "json": nexar.JSON{}} {
		f := nexar.Func[ticket, *ticket]{Name: name, Codec: codec}
		f.Register(comms[1], func(_ context.Context, from int, req ticket) (*ticket, error) {
			req.Seats = append(req.Seats, from)
			return &req, nil
		})
		got, err := f.Call(t.Context(), comms[0], 1, want)
		if err != nil || got.Name != want.Name || !slices.Equal(got.Seats, []int{1, 2, 3, 0}) || got.Extra["x"] != 0.5 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if got, err := f.Call(t.Context(), comms[0], 1, ticket{}); err != nil || got.Name != "" || !slices.Equal(got.Seats, []int{0}) {
			t.Errorf("%s: the zero value: got %+v, %v", name, got, err)
		}
	}
}

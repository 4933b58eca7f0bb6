package nexar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A wrong argument is an error that says which and why, at once and on this
// rank alone: the communicator goes on.
func TestInvalidArguments(t *testing.T) {
	comms := overMem.cluster(t, 3, Config{})
	c := comms[0]
	ctx := t.Context()
	ints, floats, halves, brains := make([]int32, 6), make([]float32, 6), make([]Float16, 6), make([]BFloat16, 6)
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"broadcast", Broadcast(ctx, c, ints, 3), ErrInvalidRank, "nexar: broadcast: invalid rank: root 3 of 3 ranks"},
		{"reduce", Reduce(ctx, c, ints, Sum, -1), ErrInvalidRank, "nexar: reduce: invalid rank: root -1 of 3 ranks"},
		{"gather", Gather(ctx, c, ints, ints[:2], 7), ErrInvalidRank, "nexar: gather: invalid rank: root 7 of 3 ranks"},
		{"scatter", Scatter(ctx, c, ints[:2], ints, -2), ErrInvalidRank, "nexar: scatter: invalid rank: root -2 of 3 ranks"},

		{"gather", Gather(ctx, c, ints[:5], ints[:2], 0), ErrInvalidLength, "dst has 5 elements, not 6"},
		{"all_gather", AllGather(ctx, c, ints, ints[:1]), ErrInvalidLength, "dst has 6 elements, not 3"},
		{"scatter", Scatter(ctx, c, ints[:2], ints[:4], 0), ErrInvalidLength, "src has 4 elements, not 6"},
		{"reduce_scatter", ReduceScatter(ctx, c, ints[:2], ints[:5], Sum), ErrInvalidLength, "src has 5 elements, not 6"},
		{"all_to_all", AllToAll(ctx, c, ints, ints[:3]), ErrInvalidLength, "dst has 6 elements, not 3"},
		{"all_to_all", AllToAll(ctx, c, make([]int32, 4), ints[:4]), ErrInvalidLength, "no multiple of 3 ranks"},
		{"all_to_all", AllToAll(ctx, c, ints[:3], ints[2:5]), ErrOverlap, "dst and src share memory"},

		{"all_to_all", AllToAll(ctx, c, ints, ints), ErrOverlap, "dst and src share memory"},
		{"gather", Gather(ctx, c, ints, ints[1:3], 0), ErrOverlap, "src shares memory with dst, of which it may only be block 0"},
		{"all_gather", AllGather(ctx, c, ints, ints[2:4]), ErrOverlap, "src shares memory with dst, of which it may only be block 0"},
		{"all_gather", AllGather(ctx, c, ints, ints[1:3]), ErrOverlap, "of which it may only be block 0"},
		{"scatter", Scatter(ctx, c, ints[4:6], ints, 0), ErrOverlap, "dst shares memory with src, of which it may only be block 0"},
		{"reduce_scatter", ReduceScatter(ctx, c, ints[1:3], ints, Sum), ErrOverlap, "dst shares memory with src"},
		{"reduce_scatter", ReduceScatter(ctx, comms[1], ints[:2], ints, Sum), ErrOverlap, "of which it may only be block 1"},

		{"all_reduce", AllReduce(ctx, c, ints, 0), ErrInvalidOp, "nexar: all_reduce: invalid op"},
		{"all_reduce", AllReduce(ctx, c, ints, 9), ErrInvalidOp, "nexar: all_reduce: invalid op"},
		{"all_reduce", AllReduce(ctx, c, ints, 255), ErrInvalidOp, "nexar: all_reduce: invalid op"},
		{"all_reduce", AllReduce(ctx, c, floats, BitAnd), ErrInvalidOp, "bit_and of float32"},
		{"all_reduce", AllReduce(ctx, c, make([]float64, 1), BitXor), ErrInvalidOp, "bit_xor of float64"},
		{"reduce", Reduce(ctx, c, halves, BitOr, 0), ErrInvalidOp, "bit_or of float16"},
		{"reduce_scatter", ReduceScatter(ctx, c, brains[:2], brains, BitXor), ErrInvalidOp, "bit_xor of bfloat16"},
		{"scan", Scan(ctx, c, floats, BitAnd), ErrInvalidOp, "bit_and of float32"},
		{"exclusive_scan", ExclusiveScan(ctx, c, floats, 42), ErrInvalidOp, "nexar: exclusive_scan: invalid op"},
		{"all_reduce_func", AllReduceFunc(ctx, c, floats, nil), ErrInvalidOp, "the function is nil"},

		{"send", Send(ctx, c, ints, 3, 0), ErrInvalidRank, "to rank 3 of 3 ranks"},
		{"send", Send(ctx, c, ints, AnyRank, 0), ErrInvalidRank, "to rank -1 of 3 ranks"},
		{"send", Send(ctx, c, ints, 1, AnyTag), ErrInvalidTag, "invalid tag: -1"},
		{"recv", recvError(ctx, c, 3, 0), ErrInvalidRank, "from rank 3 of 3 ranks"},
		{"recv", recvError(ctx, c, -2, 0), ErrInvalidRank, "from rank -2 of 3 ranks"},
		{"recv", recvError(ctx, c, 1, -2), ErrInvalidTag, "invalid tag: -2"},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "nexar: "+test.name+": ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want %v and the text %q", test.name, test.err, test.want, test.text)
		}
	}
	stillWorks(t, comms)
}

func recvError(ctx context.Context, c *Comm, from int, tag Tag) error {
	_, err := Recv(ctx, c, make([]int32, 1), from, tag)
	return err
}

// stillWorks checks that a communicator can be used.
func stillWorks(t *testing.T, comms []*Comm) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	onAll(t, comms, func(rank int, c *Comm) error {
		x := []int64{int64(rank)}
		if err := AllReduce(ctx, c, x, Sum); err != nil {
			return err
		}
		if want := int64(c.Size() * (c.Size() - 1) / 2); x[0] != want {
			return fmt.Errorf("sum = %d, want %d", x[0], want)
		}
		return c.Barrier(ctx)
	})
}

func TestLocalOfNoRanks(t *testing.T) {
	for _, n := range []int{0, -1} {
		if _, err := Local(t.Context(), n, Config{}); !errors.Is(err, ErrConfig) {
			t.Errorf("Local of %d ranks: %v, want ErrConfig", n, err)
		}
	}
}

func TestClosed(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	c := comms[0]
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	ctx, x := t.Context(), make([]int32, 2)
	for name, err := range map[string]error{
		"barrier":    c.Barrier(ctx),
		"all_reduce": AllReduce(ctx, c, x, Sum),
		"broadcast":  Broadcast(ctx, c, x, 0),
		"gather":     Gather(ctx, c, x, x[:1], 0),
		"send":       Send(ctx, c, x, 1, 0),
		"recv":       recvError(ctx, c, AnyRank, AnyTag),
	} {
		if !errors.Is(err, ErrClosed) || err.Error() != "nexar: "+name+": closed" {
			t.Errorf("%s of a closed communicator: %v", name, err)
		}
	}
}

// A rank that closes ends what others wait for it in, and what waits for it
// later. The error names it.
func TestCloseDuringOperation(t *testing.T) {
	x := make([]float32, 300_000)
	for _, m := range []medium{overMem, overSim, overQUIC} {
		for name, op := range map[string]func(ctx context.Context, c *Comm) error{
			"barrier":   func(ctx context.Context, c *Comm) error { return c.Barrier(ctx) },
			"recv":      func(ctx context.Context, c *Comm) error { return recvError(ctx, c, 1, 5) },
			"send":      func(ctx context.Context, c *Comm) error { return Send(ctx, c, x, 1, 5) },
			"broadcast": func(ctx context.Context, c *Comm) error { return Broadcast(ctx, c, make([]float32, len(x)), 1) },
			"scatter":   func(ctx context.Context, c *Comm) error { return Scatter(ctx, c, make([]float32, 1), nil, 1) },
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				comms := m.cluster(t, 3, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				onAll(t, comms, func(rank int, c *Comm) error {
					if rank == 1 {
						time.Sleep(10 * time.Millisecond)
						return c.Close()
					}
					for range 2 {
						err := op(ctx, c)
						if !errors.Is(err, ErrPeerFailed) && !errors.Is(err, ErrRevoked) || !strings.Contains(err.Error(), "rank 1 ") {
							return fmt.Errorf("%s: %v, want an error that names rank 1", name, err)
						}
					}
					return nil
				})
			})
		}
	}
}

// Those that are in an operation with a rank that closes in the middle of it
// get an error that says so.
func TestCloseInMiddle(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC} {
		t.Run(m.name, func(t *testing.T) {
			comms := m.cluster(t, 4, Config{})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			onAll(t, comms, func(rank int, c *Comm) error {
				if rank == 2 {
					time.AfterFunc(30*time.Millisecond, func() { c.Close() })
				}
				x := make([]float32, 500_000)
				for {
					err := AllReduce(ctx, c, x, Sum)
					switch {
					case err == nil:
						continue
					case rank == 2 && errors.Is(err, ErrClosed):
						return nil
					case (errors.Is(err, ErrRevoked) || errors.Is(err, ErrPeerFailed)) && strings.Contains(err.Error(), "rank 2"):
						return nil
					}
					return err
				}
			})
		})
	}
}

// A message that was announced by a rank that has left can no longer come.
func TestRecvOfOneWhoLeft(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sent := make(chan error)
	go func() { sent <- Send(ctx, comms[0], make([]float32, 100_000), 1, 3) }()
	onAll(t, comms, func(rank int, c *Comm) error { return c.Barrier(ctx) })
	time.Sleep(10 * time.Millisecond)
	if err := comms[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; !errors.Is(err, ErrClosed) {
		t.Errorf("send: %v, want ErrClosed", err)
	}
	_, err := Recv(ctx, comms[1], make([]float32, 100_000), 0, 3)
	if p, ok := errors.AsType[*PeerError](err); !ok || p.Rank != 0 || !p.Left {
		t.Errorf("recv: %v, want a PeerError: rank 0 has left", err)
	}
}

// What a rank has sent before it left can still be received.
func TestRecvBeforeLeaving(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC} {
		for _, count := range []int{0, 10, 200_000} {
			for range 5 {
				comms := m.cluster(t, 2, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				onAll(t, comms, func(rank int, c *Comm) error {
					if rank == 0 {
						return errors.Join(Send(ctx, c, stream{0, 1, 0}.message(2)[:0], 1, 4), Send(ctx, c, make([]float32, count), 1, 3), c.Close())
					}
					x := make([]float32, count)
					if _, err := Recv(ctx, c, x, 0, 3); err != nil {
						return err
					}
					if count < 1000 {
						time.Sleep(5 * time.Millisecond) // by now rank 0 has left
						return errors.Join(recvError(ctx, c, 0, 4), c.Close())
					}
					return c.Close()
				})
				cancel()
			}
		}
	}
}

package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// reverse returns the rank of the caller and the reversed arguments, which it
// overwrites.
func reverse(_ context.Context, from int, args []byte) ([]byte, error) {
	result := append([]byte{byte(from)}, args...)
	slices.Reverse(result[1:])
	clear(args)
	return result, nil
}

func echo(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil }

// pattern returns n bytes that depend on their positions.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

// Arguments and results of all lengths, between all ranks, with and without a context
// that can end.
func TestCall(t *testing.T) {
	for name, slow := range map[string]func(int) time.Duration{"taken at once": nil, "taken later": func(int) time.Duration { return time.Microsecond }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, Config{PayloadMax: 4 << 20}, func(f *fabric) { f.slow = slow })
			w.register(t, "reverse", reverse)
			with, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, ctx := range []context.Context{context.Background(), with} {
				for _, n := range []int{0, 1, 64, wire.PayloadMax - 30, wire.PayloadMax, wire.PayloadMax + 1, promptBytes + 1} {
					want := pattern(n)
					for from, s := range w.services {
						for to := range w.services {
							checkReverse(t, s, ctx, from, to, want)
						}
					}
				}
			}
		})
	}
}

// checkReverse checks the result of a call of reverse, and that it leaves the caller's
// arguments alone.
func checkReverse(t *testing.T, s *Service, ctx context.Context, from, to int, want []byte) {
	t.Helper()
	args := bytes.Clone(want)
	got, err := s.Call(ctx, to, "reverse", args)
	if err != nil || len(got) != len(want)+1 || got[0] != byte(from) {
		t.Fatalf("rank %d calls rank %d with %d bytes: %d bytes, %v", from, to, len(want), len(got), err)
	}
	if !bytes.Equal(args, want) {
		t.Errorf("rank %d calls rank %d with %d bytes, and the handler changes them", from, to, len(want))
	}
	slices.Reverse(got[1:])
	if !bytes.Equal(got[1:], want) {
		t.Errorf("rank %d calls rank %d with %d bytes: wrong result", from, to, len(want))
	}
}

// The result that a handler keeps and the one that the caller gets are not the same
// memory, even within a rank.
func TestResultIsCopied(t *testing.T) {
	w := newWorld(t, 2, Config{})
	kept := []byte("kept")
	w.register(t, "get", func(context.Context, int, []byte) ([]byte, error) { return kept, nil })
	for to := range w.services {
		got, err := w.services[0].Call(t.Context(), to, "get", nil)
		if err != nil {
			t.Fatal(err)
		}
		clear(got)
		if string(kept) != "kept" {
			t.Fatalf("the result of rank %d is the handler's memory", to)
		}
	}
}

// Each of ten thousand concurrent calls, over paths of different delays, gets its own
// answer.
func TestConcurrentCalls(t *testing.T) {
	w := newWorld(t, 3, Config{}, func(f *fabric) {
		f.delay = func() time.Duration { return rand.N(50 * time.Microsecond) }
	})
	var ran atomic.Int64
	w.register(t, "echo", func(_ context.Context, _ int, args []byte) ([]byte, error) {
		ran.Add(1)
		return args, nil
	})
	const calls = 10_000
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			args := binary.BigEndian.AppendUint64(make([]byte, 0, 64), uint64(i))
			got, err := w.services[i%3].Call(t.Context(), i/3%3, "echo", args)
			if err != nil || !bytes.Equal(got, args) {
				t.Errorf("call %d: %x, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if got := ran.Load(); got != calls {
		t.Errorf("%d calls were carried out, want %d", got, calls)
	}
}

// Later calls are answered before earlier, slow ones.
func TestAnswersInAnyOrder(t *testing.T) {
	w := newWorld(t, 2, Config{})
	const calls = 10
	turns := make([]chan struct{}, calls+1) // turns[i] is closed when call i may end
	for i := range turns {
		turns[i] = make(chan struct{})
	}
	w.register(t, "turn", func(_ context.Context, _ int, args []byte) ([]byte, error) {
		<-turns[args[0]]
		return args, nil
	})
	for to := range w.services {
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				got, err := w.services[0].Call(t.Context(), to, "turn", []byte{byte(i)})
				if err != nil || len(got) != 1 || got[0] != byte(i) {
					t.Errorf("call %d: %v, %v", i, got, err)
				}
				if i > 0 {
					close(turns[i-1])
				}
			})
		}
		close(turns[calls-1])
		wg.Wait()
		for i := range turns {
			turns[i] = make(chan struct{})
		}
	}
}

// Long arguments in transfer do not delay other calls.
func TestLongArgumentsDelayNoCall(t *testing.T) {
	entered, free := make(chan struct{}), make(chan struct{})
	var back atomic.Bool // the second one of the two long messages is the result
	w := newWorld(t, 2, Config{}, func(f *fabric) {
		f.slow = func(bytes int) time.Duration {
			if bytes > 1<<20 && !back.Swap(true) {
				close(entered)
				<-free
			}
			return 0
		}
	})
	w.register(t, "echo", echo)
	long := make(chan error)
	go func() {
		_, err := w.services[0].Call(context.Background(), 1, "echo", pattern(2<<20))
		long <- err
	}()
	<-entered
	for i := range 100 {
		if _, err := w.services[0].Call(t.Context(), 1, "echo", pattern(i)); err != nil {
			t.Error(err)
		}
	}
	close(free)
	if err := <-long; err != nil {
		t.Error(err)
	}
}

// A handler may call functions, also of its caller.
func TestHandlersCall(t *testing.T) {
	w := newWorld(t, 3, Config{})
	for rank, s := range w.services {
		err := s.Register("down", func(ctx context.Context, from int, args []byte) ([]byte, error) {
			if args[0] == 0 {
				return []byte(fmt.Sprint(rank)), nil
			}
			below, err := s.Call(ctx, (rank+int(args[0]))%3, "down", []byte{args[0] - 1})
			return append(below, fmt.Sprint(rank)...), err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.services[0].Call(t.Context(), 1, "down", []byte{5})
	if want := "101101"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func BenchmarkCall(b *testing.B) {
	with, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, bench := range []struct {
		name string
		ctx  context.Context
		to   int
		n    int
	}{
		{"64B", context.Background(), 1, 64},
		{"64B-deadline", with, 1, 64},
		{"64B-self", context.Background(), 0, 64},
		{"1MiB", context.Background(), 1, 1 << 20},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := newWorld(b, 2, Config{})
			w.register(b, "echo", echo)
			args := pattern(bench.n)
			b.ReportAllocs()
			if bench.n > 64 {
				b.SetBytes(2 * int64(bench.n))
			}
			for b.Loop() {
				if _, err := w.services[0].Call(bench.ctx, bench.to, "echo", args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCallParallel(b *testing.B) {
	w := newWorld(b, 2, Config{})
	w.register(b, "echo", echo)
	args := pattern(64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.services[0].Call(context.Background(), 1, "echo", args); err != nil {
				b.Error(err)
			}
		}
	})
}

package rpc

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// A cancelled call returns at once. The context of its handler ends when the
// cancellation arrives, with the cause; its result is dropped, and another call may
// begin when it has returned.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, Config{InFlight: 1}, late(time.Second))
		causes, finish := make(chan error, 1), make(chan struct{})
		w.register(t, "stubborn", func(ctx context.Context, _ int, args []byte) ([]byte, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			<-finish
			return args, nil
		})
		w.register(t, "echo", echo)
		began := time.Now()
		because := errors.New("no longer needed")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(because) })
		_, err := w.services[0].Call(ctx, 1, "stubborn", []byte("x"))
		var given *CancelledError
		if !errors.As(err, &given) || !errors.Is(err, because) || !given.Begun || given.Rank != 1 || given.Fn != "stubborn" {
			t.Errorf("error %#v, want a CancelledError by %q", err, because)
		}
		if got := time.Since(began); got != 5*time.Second {
			t.Errorf("Call returned after %v, want 5s", got)
		}
		cause := <-causes
		if !errors.Is(cause, context.Canceled) || !strings.Contains(cause.Error(), "rank 0 has cancelled") {
			t.Errorf("the handler's context ended by %v", cause)
		}
		if got := time.Since(began); got != 6*time.Second {
			t.Errorf("the handler's context ended after %v, want 6s", got)
		}
		time.AfterFunc(10*time.Second, func() { close(finish) })
		if got, err := w.services[0].Call(t.Context(), 1, "echo", []byte("y")); err != nil || string(got) != "y" {
			t.Errorf("the next call: %q, %v", got, err)
		}
		// 6 s until the cancellation arrives, 10 s until the handler returns, and one
		// second for each of three messages.
		if got := time.Since(began); got != 19*time.Second {
			t.Errorf("the next call ended after %v, want 19s", got)
		}
	})
}

// A call returns when its context ends even if nothing can be sent. When sending is
// possible again, the call is sent first, and then its cancellation. Its answer is
// dropped.
func TestCancelWhileSending(t *testing.T) {
	for name, test := range map[string]struct {
		bytes   int
		expires bool
	}{
		"short":               {10, false},
		"long":                {1 << 20, false},
		"short, by its time":  {10, true},
		"longer, by its time": {1 << 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkCancelWhileSending(t, test.bytes, test.expires) })
		})
	}
}

func checkCancelWhileSending(t *testing.T, n int, expires bool) {
	s, x := newRawPeer(t, Config{InFlight: 1})
	waits, pass := s.port.(*port).block()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	args := pattern(n)
	returned := make(chan error)
	go func() {
		_, err := s.Call(ctx, 1, "f", args)
		returned <- err
	}()
	<-waits
	if !expires {
		cancel()
	}
	if err := <-returned; !errors.Is(err, ctx.Err()) {
		t.Errorf("error %v", err)
	}
	if n <= wire.PayloadMax {
		clear(args) // They belong to the caller again.
	}
	pass()
	c, fn, got := x.asked()
	if fn != "f" || !bytes.Equal(got, pattern(n)) {
		t.Errorf("the call of %q comes with %d bytes", fn, len(got))
	}
	if after, err := wire.ParseRemoteCancel(x.next()); err != nil || after.ID != c.ID || after.Expired != expires {
		t.Errorf("call %d is followed by %+v, %v", c.ID, after, err)
	}
	x.reply(c.ID, "late")
	go func() {
		c, _, _ := x.asked()
		x.reply(c.ID, "mine")
	}()
	if got, err := s.Call(t.Context(), 1, "f", nil); err != nil || string(got) != "mine" {
		t.Errorf("the next call: %q, %v", got, err)
	}
}

// An answer may arrive before Send has returned. The caller waits for Send, since its
// arguments are in use, until ctx ends.
func TestAnswerWhileSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, x := newRawPeer(t, Config{})
		waits, pass := s.port.(*port).block()
		type end struct {
			result []byte
			err    error
		}
		var ends [2]chan end
		ctx, cancel := context.WithCancel(t.Context())
		for i, ctx := range []context.Context{context.Background(), ctx} {
			ends[i] = make(chan end, 1)
			go func() {
				result, err := s.Call(ctx, 1, "f", nil)
				ends[i] <- end{result, err}
			}()
			<-waits
			x.reply(uint64(i+1), "early") // The IDs start at 1.
		}
		synctest.Wait()
		if len(ends[0]) > 0 || len(ends[1]) > 0 {
			t.Error("a call has returned before its Send")
		}
		cancel()
		if e := <-ends[1]; !errors.Is(e.err, context.Canceled) {
			t.Errorf("the cancelled call: %q, %v", e.result, e.err)
		}
		pass()
		if e := <-ends[0]; e.err != nil || string(e.result) != "early" {
			t.Errorf("the other call: %q, %v", e.result, e.err)
		}
	})
}

// A cancellation may overtake long arguments. Then the function is not called.
func TestCancelOvertakes(t *testing.T) {
	free := make(chan struct{})
	called := make(chan struct{}, 2)
	w := newWorld(t, 2, Config{}, func(f *fabric) {
		f.slow = func(bytes int) time.Duration {
			if bytes >= 1<<20 {
				<-free
			}
			return 0
		}
	})
	w.register(t, "f", func(context.Context, int, []byte) ([]byte, error) { called <- struct{}{}; return nil, nil })
	x := &rawPeer{t: t, port: w.ports[1], came: make(chan struct{}, 1)}
	x.arrived = x.ring
	sent := make(chan struct{})
	go func() {
		x.call(1, "f", make([]byte, 1<<20))
		close(sent)
	}()
	s := w.services[0]
	until(s, func() bool { return s.peer(1).taking == 1 })
	x.cancel(1)
	x.cancel(2) // No call has this ID.
	until(s, func() bool { return len(s.peer(1).early) == 2 })
	close(free)
	<-sent
	if a, _ := x.answer(); a.ID != 1 || a.Status != wire.RemoteEnded {
		t.Errorf("answer %+v, want that the call has ended", a)
	}
	x.call(2, "f", nil)
	if a, _ := x.answer(); a.ID != 2 || a.Status != wire.RemoteDone {
		t.Errorf("answer %+v, want the result", a)
	}
	<-called
	select {
	case <-called:
		t.Error("the cancelled call was made")
	default:
	}
}

// A cancellation may arrive after the call has ended, more than once, and for calls
// that never existed.
func TestCancelUnknownCalls(t *testing.T) {
	s, x := newRawPeer(t, Config{})
	if err := s.Register("echo", echo); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id < 10; id++ {
		x.cancel(id)
		x.call(id, "echo", []byte("x"))
		if a, rest := x.answer(); a.ID != id || a.Status != wire.RemoteDone || string(rest) != "x" {
			t.Errorf("answer %+v, %q", a, rest)
		}
		x.cancel(id)
	}
}

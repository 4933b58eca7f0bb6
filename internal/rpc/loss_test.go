package rpc

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waiting returns a handler that reports when it begins, and the cause with which its
// context ends.
func waiting(began chan<- struct{}, causes chan<- error) Handler {
	return func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}
}

// When a rank is gone, all calls to it end: those in flight, those being sent, and
// those that wait for their turn. Calls to others continue.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, Config{InFlight: 2}, func(f *fabric) { f.slow = func(int) time.Duration { return time.Hour } }, late(time.Second))
		w.register(t, "wait", untilDone)
		s := w.services[0]
		other := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
			defer cancel()
			_, err := s.Call(ctx, 2, "wait", nil)
			other <- err
		}()
		results := make(chan error, 5)
		for _, n := range []int{0, 1 << 20, 1, 2, 3} { // The last three wait for their turn.
			go func() {
				_, err := s.Call(context.Background(), 1, "wait", make([]byte, n))
				results <- err
			}()
			synctest.Wait()
		}
		began := time.Now()
		w.lose(1)
		want := &GoneError{1, "wait", false, errTestLost}
		for range 5 {
			if err := <-results; !reflect.DeepEqual(err, want) {
				t.Errorf("error %#v, want %#v", err, want)
			}
		}
		if _, err := s.Call(context.Background(), 1, "wait", nil); !reflect.DeepEqual(err, want) || !errors.Is(err, errTestLost) {
			t.Errorf("the next call: error %#v, want %#v", err, want)
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("the calls ended after %v, want at once", got)
		}
		if err := <-other; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call to another rank: %v", err)
		}
		if !strings.Contains(want.Error(), `function "wait" of rank 1, which has gone: the process has died`) {
			t.Error(want)
		}
	})
}

// Handlers of a lost caller are cancelled, and delay nothing.
func TestLostCaller(t *testing.T) {
	w := newWorld(t, 3, Config{})
	began, causes := make(chan struct{}, 2), make(chan error, 2)
	w.register(t, "wait", waiting(began, causes))
	var wg sync.WaitGroup
	wg.Go(func() {
		var closed *GoneError
		if _, err := w.services[0].Call(t.Context(), 1, "wait", nil); !errors.As(err, &closed) || !closed.Closed || !errors.Is(err, errTestClosed) {
			t.Errorf("error %v, want a GoneError of this rank, since the caller is gone", err)
		}
	})
	<-began
	w.lose(0)
	if cause := <-causes; !errors.Is(cause, errTestLost) || !strings.Contains(cause.Error(), `rank 0, which has called "wait", is gone`) {
		t.Errorf("the handler's context ended by %v", cause)
	}
	wg.Wait()
	w.services[1].Lost(0, errors.New("again")) // This changes nothing.
	if _, err := w.services[1].Call(t.Context(), 0, "wait", nil); !errors.Is(err, errTestLost) {
		t.Errorf("error %v", err)
	}
	w.services[1].Close(errTestClosed) // This error is more specific.
	if _, err := w.services[1].Call(t.Context(), 0, "wait", nil); !errors.Is(err, errTestClosed) {
		t.Errorf("error %v", err)
	}
}

// A call fails if its message cannot be sent.
func TestSendFails(t *testing.T) {
	w := newWorld(t, 2, Config{})
	close(w.ports[1].gone) // No rank has noticed yet.
	_, err := w.services[0].Call(t.Context(), 1, "f", nil)
	if want := (&GoneError{1, "f", false, errTestLost}); !reflect.DeepEqual(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
}

// Close ends all calls and cancels all handlers without waiting for them; Wait waits.
func TestClose(t *testing.T) {
	w := newWorld(t, 2, Config{InFlight: 1})
	s := w.services[0]
	began, finish, causes := make(chan struct{}), make(chan struct{}), make(chan error, 3)
	w.register(t, "stubborn", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
		began <- struct{}{}
		<-finish
		causes <- context.Cause(ctx)
		return nil, nil
	})
	results := make(chan error, 3)
	for _, to := range []int{0, 1, 1} { // The last one waits for its turn.
		go func() {
			_, err := s.Call(context.Background(), to, "stubborn", nil)
			results <- err
		}()
	}
	go func() {
		_, err := w.services[1].Call(context.Background(), 0, "stubborn", nil)
		if err == nil {
			t.Error("a call to a closed rank has a result")
		}
	}()
	for range 3 {
		<-began
	}
	until(s, func() bool { return s.peer(1).window.waiting.Len() == 1 })
	s.Close(errTestClosed)
	s.Close(errors.New("again")) // This changes nothing.
	s.Lost(1, errTestLost)
	for range 3 {
		err := <-results
		var closed *GoneError
		if !errors.As(err, &closed) || !closed.Closed || closed.Err != errTestClosed || closed.Fn != "stubborn" {
			t.Errorf("error %v, want a GoneError of this rank", err)
		}
	}
	if _, err := s.Call(t.Context(), 1, "stubborn", nil); !errors.Is(err, errTestClosed) {
		t.Errorf("the next call: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: error %v while handlers run", err)
	}
	w.services[1].Lost(0, errTestLost)
	close(finish)
	if err := s.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	ends := make(map[error]int)
	for range 3 {
		ends[errors.Unwrap(<-causes)]++
	}
	if want := map[error]int{errTestClosed: 2, errTestLost: 1}; !reflect.DeepEqual(ends, want) {
		t.Errorf("the handlers' contexts ended by %v, want %v", ends, want)
	}
}

// Messages that arrive at a closed Service are not refused: their senders learn the
// reason from the end of the communicator.
func TestClosedRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, Config{})
		w.services[1].Close(errTestClosed)
		results := make(chan error, 2)
		for range cap(results) {
			go func() {
				_, err := w.services[0].Call(context.Background(), 1, "f", make([]byte, 200<<10))
				results <- err
			}()
		}
		if synctest.Wait(); len(results) > 0 {
			t.Errorf("before the reason is known: %v", <-results)
		}
		w.lose(1)
		for range cap(results) {
			if err := <-results; !errors.Is(err, errTestLost) {
				t.Errorf("error %v, want a GoneError", err)
			}
		}
	})
}

// Wait on a Service that is not closed fails at the end of its context.
func TestWaitBeforeClose(t *testing.T) {
	w := newWorld(t, 2, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.services[0].Wait(ctx); err == nil {
		t.Error("Wait succeeds on an open Service")
	}
}

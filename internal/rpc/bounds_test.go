package rpc

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/wire"
)

// A rank has no more calls in flight to another than the limit; the others wait, until
// their ctx ends.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, calls = 3, 30
		w := newWorld(t, 2, Config{InFlight: limit}, late(time.Millisecond))
		var running, most atomic.Int64
		w.register(t, "slow", func(context.Context, int, []byte) ([]byte, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			return nil, nil
		})
		w.register(t, "quick", echo)
		began := time.Now()
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				if _, err := w.services[0].Call(context.Background(), 1, "slow", nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		// The window is full. Calls in flight to other ranks do not count.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := w.services[0].Call(ctx, 1, "quick", nil)
		if want := (&CancelledError{Rank: 1, Fn: "quick", Turn: Turn{time.Millisecond, limit, limit}, Err: context.DeadlineExceeded}); !reflect.DeepEqual(err, want) {
			t.Errorf("error %#v, want %#v", err, want)
		}
		if _, err := w.services[0].Call(t.Context(), 0, "quick", nil); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if got := most.Load(); got != limit {
			t.Errorf("%d calls at once, want %d", got, limit)
		}
		if got, want := time.Since(began), calls/limit*(time.Second+2*time.Millisecond); got != want {
			t.Errorf("all calls took %v, want %v", got, want)
		}
	})
}

// The same holds for the bytes of arguments: calls wait, and none is refused.
func TestInFlightBytes(t *testing.T) {
	const limit = 1 << 20
	w := newWorld(t, 2, Config{PayloadMax: limit}, func(f *fabric) {
		f.slow = func(int) time.Duration { return time.Microsecond }
	})
	var bytes, most atomic.Int64
	w.register(t, "keep", func(_ context.Context, _ int, args []byte) ([]byte, error) {
		n := bytes.Add(int64(len(args)))
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		bytes.Add(-int64(len(args)))
		return args, nil // the result has the same length
	})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			n := []int{limit, limit / 2, limit / 7, 10}[i%4]
			if got, err := w.services[0].Call(t.Context(), 1, "keep", make([]byte, n)); err != nil || len(got) != n {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	if got := most.Load(); got > limit {
		t.Errorf("%d bytes of arguments at once, at most %d", got, limit)
	}
}

// A peer that exceeds the limit gets a busy answer, and no more handlers than the
// limit.
func TestBusy(t *testing.T) {
	const limit, calls = 4, 10
	s, x := newRawPeer(t, Config{InFlight: limit})
	finish := make(chan struct{})
	var running atomic.Int64
	err := s.Register("wait", func(context.Context, int, []byte) ([]byte, error) {
		running.Add(1)
		<-finish
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); id <= calls; id++ {
		x.call(id, "wait", nil)
	}
	for id := uint64(limit + 1); id <= calls; id++ {
		want := wire.RemoteAnswer{ID: id, Status: wire.RemoteBusy, Size: payloadMax, Max: limit}
		if a, _ := x.answer(); a != want {
			t.Errorf("answer %+v, want %+v", a, want)
		}
	}
	close(finish)
	for range limit {
		if a, _ := x.answer(); a.Status != wire.RemoteDone {
			t.Errorf("answer %+v, want a result", a)
		}
	}
	if got := running.Load(); got != limit {
		t.Errorf("%d handlers ran, want %d", got, limit)
	}
	x.call(calls+1, "wait", nil)
	if a, _ := x.answer(); a.ID != calls+1 || a.Status != wire.RemoteDone {
		t.Errorf("answer %+v, want a result, as no call is in flight", a)
	}
}

// The caller of a busy rank gets an error with its limits.
func TestBusyError(t *testing.T) {
	s, x := newRawPeer(t, Config{})
	go func() {
		c, _, _ := x.asked()
		a := wire.RemoteAnswer{ID: c.ID, Status: wire.RemoteBusy, Size: 1 << 20, Max: 5}
		x.say(a.Append(nil))
	}()
	_, err := s.Call(t.Context(), 1, "f", nil)
	if want := (&AnswerError{Rank: 1, Fn: "f", Status: wire.RemoteBusy, Size: 1 << 20, Max: 5}); !reflect.DeepEqual(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
}

// A peer that does not read its answers gets at most twice as many handlers as the limit, for
// any number of calls.
func TestUnreadAnswers(t *testing.T) {
	const limit = 4
	w := newWorld(t, 2, Config{InFlight: limit}, func(f *fabric) { f.eager = 300 })
	s := w.services[0]
	var ran atomic.Int64
	err := s.Register("f", func(context.Context, int, []byte) ([]byte, error) {
		ran.Add(1)
		return make([]byte, 1000), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &rawPeer{t: t, port: w.ports[1], came: make(chan struct{}, 1)}
	x.arrived = x.ring
	p := s.peer(1)
	for id := uint64(1); id <= 2*limit; id++ {
		x.call(id, "f", nil)
		until(s, func() bool { return p.held == 0 }) // No call is in flight at the peer.
	}
	for id := uint64(2*limit + 1); id <= 4*limit; id++ {
		x.call(id, "f", nil)
	}
	until(s, func() bool { return len(p.replies) == 0 && !p.replying })
	if got := ran.Load(); got != 2*limit {
		t.Errorf("%d handlers have run, want %d", got, 2*limit)
	}
	if p.working != 2*limit || p.held != limit || len(p.parked) != limit {
		t.Errorf("%d goroutines, %d calls of which %d wait, want %d, %d, %d", p.working, p.held, len(p.parked), 2*limit, limit, limit)
	}
	// When it reads them, all calls continue.
	done, busy := 0, 0
	for done+busy < 4*limit {
		switch a, _ := x.answer(); a.Status {
		case wire.RemoteDone:
			done++
		case wire.RemoteBusy:
			busy++
		}
	}
	if done != 3*limit || busy != limit || ran.Load() != 3*limit {
		t.Errorf("%d results and %d times busy, want %d and %d", done, busy, 3*limit, limit)
	}
}

// A peer with more pending short answers than it could request has broken the protocol.
func TestTooManyReplies(t *testing.T) {
	require.NoRace(t, "it counts up to a limit")
	broken := make(chan error, 2)
	s, x := newRawPeer(t, Config{Broken: func(_ int, err error) { broken <- err }})
	waits, pass := s.port.(*port).block()
	defer pass()
	x.call(0, "none", nil)
	<-waits
	for id := uint64(1); id <= repliesMax; id++ {
		x.call(id, "none", nil)
	}
	select {
	case err := <-broken:
		t.Fatalf("%v, after as many calls as are allowed", err)
	default:
	}
	x.call(repliesMax+1, "none", nil)
	if err := <-broken; err == nil {
		t.Error("no error")
	}
}

// A blankPort announces messages of any length.
type blankPort struct {
	told  int
	taken int
}

func (p *blankPort) Send(int, ...[]byte) error { return errTestLost }

func (p *blankPort) Poll() (Message, bool) {
	p.told++
	return Message{Source: 1, Bytes: 1<<30 - p.told}, p.told <= 1000
}

func (p *blankPort) Take(m Message, buf []byte, done func(error)) {
	if buf != nil {
		p.taken++
		done(errTestLost)
	}
}

// Nothing is allocated by a length of a peer before it is checked, and all bytes in
// flight are counted.
func TestLengthsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(blankPort)
		s := New(p, 0, 2, Config{PayloadMax: 1 << 20})
		s.Arrived()
		synctest.Wait()
		s.Close(errTestClosed)
		if err := s.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.told != 1001 || p.taken != 0 {
			t.Errorf("told %d times, and %d messages were taken", p.told, p.taken)
		}
	})
}

// Long messages of one peer in flight have no more bytes than its calls may have, and
// its due answers.
func TestBytesInFlight(t *testing.T) {
	const payload = 1 << 20
	s, x := newRawPeer(t, Config{PayloadMax: payload, InFlight: 10})
	if err := s.Register("wait", untilDone); err != nil {
		t.Fatal(err)
	}
	x.call(1, "wait", make([]byte, payload))
	c := wire.RemoteCall{ID: 2}
	if err := x.Send(0, c.Append(nil, "wait"), make([]byte, payload/2)); !errors.Is(err, ErrRefused) {
		t.Errorf("error %v, want that a call beyond the limit is refused", err)
	}
	// With an answer due, there is room for it, and it is taken. A call in its place is
	// not carried out.
	results := make(chan int)
	go func() {
		got, err := s.Call(context.Background(), 1, "f", nil)
		if err != nil {
			t.Error(err)
		}
		results <- len(got)
	}()
	due, _, _ := x.asked()
	x.call(3, "wait", make([]byte, payload/2))
	if a, _ := x.answer(); a.ID != 3 || a.Status != wire.RemoteBusy {
		t.Errorf("answer %+v, want that the rank is busy", a)
	}
	a := wire.RemoteAnswer{ID: due.ID, Status: wire.RemoteDone}
	x.say(a.Append(nil), make([]byte, payload))
	if got := <-results; got != payload {
		t.Errorf("a result of %d bytes, want %d", got, payload)
	}
	x.cancel(1)
	if a, _ := x.answer(); a.ID != 1 || a.Status != wire.RemoteEnded {
		t.Errorf("answer %+v, want that the call has ended", a)
	}
	x.call(4, "echo", make([]byte, payload))
	if a, _ := x.answer(); a.ID != 4 || a.Status != wire.RemoteUnknown {
		t.Errorf("answer %+v", a)
	}
}

// An announcer announces short messages, and sends none.
type announcer struct {
	announced int
	done      []func(error) // of messages that were taken
	refused   int
}

func (p *announcer) Send(int, ...[]byte) error { return nil }

func (p *announcer) Poll() (Message, bool) {
	p.announced++
	return Message{Source: 1, Bytes: wire.PayloadMax}, p.announced <= 20_000
}

func (p *announcer) Take(_ Message, buf []byte, done func(error)) {
	if buf == nil {
		p.refused++
		return
	}
	p.done = append(p.done, done)
}

// Short messages are never refused. A peer that announces many and sends none uses a
// bounded amount of memory, and has broken the protocol.
func TestAnnouncedAndNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 10
		p, broken := new(announcer), make(chan error, 1)
		s := New(p, 0, 2, Config{InFlight: calls, Broken: func(_ int, err error) { broken <- err }})
		s.Arrived()
		synctest.Wait()
		if err := <-broken; !strings.Contains(err.Error(), "rank 1 has announced 1064 messages and sends none") {
			t.Errorf("broken: %v", err)
		}
		if most := s.peer(1).takingMax(); len(p.done) != most || p.refused != 20_000-most {
			t.Errorf("%d messages are awaited and %d were refused, want %d awaited", len(p.done), p.refused, most)
		}
		for _, done := range p.done {
			done(errTestLost)
		}
		s.Close(errTestClosed)
		if err := s.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

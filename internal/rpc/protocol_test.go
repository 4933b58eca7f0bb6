package rpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// A message that no Service sends is reported once, and ends the state shared with its
// sender.
func TestBrokenProtocol(t *testing.T) {
	call := func(id uint64, fn string) []byte {
		c := wire.RemoteCall{ID: id}
		return c.Append(nil, fn)
	}
	status := func(id uint64, s wire.RemoteStatus) []byte {
		a := wire.RemoteAnswer{ID: id, Status: s}
		return a.Append(nil)
	}
	answer := func(id uint64) []byte { return status(id, wire.RemoteDone) }
	for name, test := range map[string]struct {
		messages [][]byte
		answered int // calls of the service answered before
		want     string
	}{
		"empty":                  {[][]byte{{}}, 0, "truncated"},
		"of another type":        {[][]byte{{9, 1, 2}}, 0, "unknown message type 9"},
		"a call cut off":         {[][]byte{call(1, "wait")[:20]}, 0, "truncated"},
		"an answer cut off":      {[][]byte{answer(1)[:20]}, 0, "truncated"},
		"a cancel with a tail":   {[][]byte{{3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}}, 0, "trailing"},
		"an answer to nothing":   {[][]byte{answer(99)}, 0, "call 99, which does not wait for an answer"},
		"two answers":            {[][]byte{answer(1), answer(1)}, 1, "call 1, which does not wait for an answer"},
		"an end without a cause": {[][]byte{status(1, wire.RemoteEnded)}, 0, "was not cancelled and has no deadline"},
		"the same call twice":    {[][]byte{call(5, "wait"), call(5, "wait")}, 0, "call 5 twice"},
		"repeated violations":    {[][]byte{{9}, {9}, {9}, call(1, "wait")}, 0, "unknown message type 9"},
	} {
		t.Run(name, func(t *testing.T) { checkBroken(t, test.messages, test.answered, test.want) })
	}
}

// checkBroken checks that messages break the protocol, with an error that contains
// want, after some of two calls were answered.
func checkBroken(t *testing.T, messages [][]byte, answered int, want string) {
	broken := make(chan error, 10)
	s, x := newRawPeer(t, Config{Broken: func(source int, err error) {
		if source != 1 {
			t.Errorf("reported rank %d", source)
		}
		broken <- err
	}})
	if err := s.Register("wait", untilDone); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := s.Call(context.Background(), 1, "f", nil)
			results <- err
		}()
	}
	x.asked()
	x.asked()
	for _, m := range messages {
		x.say(m)
	}
	err := <-broken
	if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "rpc: protocol error: ") {
		t.Errorf("error %q, want one with %q", err, want)
	}
	for range 2 {
		var lost *GoneError
		switch got := <-results; {
		case got == nil:
			answered--
		case !errors.As(got, &lost) || lost.Closed || lost.Err.Error() != err.Error():
			t.Errorf("a call ended by %v, want %v", got, err)
		}
	}
	if answered != 0 {
		t.Errorf("%d more calls should have had results", answered)
	}
	if _, ok := s.port.Poll(); ok {
		t.Error("a message is pending")
	}
	if len(broken) > 0 {
		t.Errorf("reported twice: %v", <-broken)
	}
}

// untilDone is a handler that waits for the end of its context.
func untilDone(ctx context.Context, _ int, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// fuzzWorld returns a service with functions and one call in flight to a rawPeer.
func fuzzWorld(t *testing.T, broken *atomic.Bool) (*Service, *rawPeer) {
	s, x := newRawPeer(t, Config{PayloadMax: 1000, InFlight: 4, Broken: func(int, error) { broken.Store(true) }})
	for fn, h := range map[string]Handler{
		"e": echo,
		"p": func(context.Context, int, []byte) ([]byte, error) { panic("p") },
		"w": untilDone,
	} {
		if err := s.Register(fn, h); err != nil {
			t.Fatal(err)
		}
	}
	return s, x
}

// FuzzMessages finds messages of a peer that make a Service panic, hang, or lose an
// answer. Each input is several messages, each prefixed with its length.
func FuzzMessages(f *testing.F) {
	c := wire.RemoteCall{ID: 1}
	a := wire.RemoteAnswer{ID: 1, Status: wire.RemoteDone}
	x := wire.RemoteCancel{ID: 1}
	pack := func(messages ...[]byte) (b []byte) {
		for _, m := range messages {
			b = append(append(b, byte(len(m))), m...)
		}
		return b
	}
	f.Add(pack(c.Append(nil, "e"), a.Append(nil)))
	f.Add(pack(c.Append(nil, "w"), x.Append(nil), a.Append(nil)))
	f.Add(pack(c.Append(nil, "p"), c.Append(nil, "p")))
	f.Add(pack(c.Append(nil, "none"), []byte{4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var broken atomic.Bool
		s, x := fuzzWorld(t, &broken)
		returned := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := s.Call(ctx, 1, "f", nil)
			returned <- err
		}()
		x.asked()
		owed := make(map[uint64]bool)
		for len(b) > 0 && !broken.Load() {
			n := min(int(b[0]), len(b)-1)
			m := b[1 : 1+n]
			b = b[1+n:]
			x.say(m)
			if c, _, _, err := wire.ParseRemoteCall(m); err == nil && m[0] == byte(wire.TypeRemoteCall) && !broken.Load() {
				owed[c.ID] = true
				x.cancel(c.ID)
			}
		}
		for len(owed) > 0 && !broken.Load() {
			a, _ := x.answer()
			delete(owed, a.ID)
		}
		cancel()
		<-returned
	})
}

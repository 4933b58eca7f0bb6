package faults

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/rpc"
	"github.com/nexar-go/nexar/test/worldtest"
)

// registerFailing registers functions that fail.
func registerFailing(c *nexar.Comm) {
	for name, h := range map[string]func(ctx context.Context, from int, args []byte) ([]byte, error){
		"fail":  func(context.Context, int, []byte) ([]byte, error) { return []byte("x"), errors.New("no such record") },
		"long":  func(context.Context, int, []byte) ([]byte, error) { return nil, errors.New(strings.Repeat("é", 1000)) },
		"mute":  func(context.Context, int, []byte) ([]byte, error) { return nil, errors.New("") },
		"panic": func(context.Context, int, []byte) ([]byte, error) { panic(fmt.Errorf("index %d", 7)) },
		"exit":  func(context.Context, int, []byte) ([]byte, error) { runtime.Goexit(); return nil, nil },
		"flood": func(context.Context, int, []byte) ([]byte, error) { return make([]byte, 1<<30+1), nil },
		"wait": func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		},
		"echo": func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil },
	} {
		c.Register(name, h)
	}
}

// callText returns the expected text of an error of a call.
func callText(w *worldtest.World, to int, fn, text string) string {
	return fmt.Sprintf("nexar: call: function %q of rank %d (node %s at %s): %s", fn, to, w.ID(to), w.Addr(to), text)
}

// TestCallErrors: every failure of a call has a type, and names the rank, its node and the
// function, also if a rank calls itself.
func TestCallErrors(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		w := m.World(t, 2, nexar.Config{})
		comms := w.Comms
		for _, c := range comms {
			registerFailing(c)
		}
		for _, test := range []struct {
			fn   string
			want error
			text string
		}{
			{"none", nexar.ErrUnknownFunction, "unknown function"},
			{strings.Repeat("n", 255), nexar.ErrUnknownFunction, "unknown function"},
			{"", rpc.ErrName, "name of 0 bytes: name of a function must have 1 to 255 bytes"},
			{strings.Repeat("n", 256), rpc.ErrName, "name of 256 bytes: name of a function must have 1 to 255 bytes"},
			{"fail", &nexar.HandlerError{Text: "no such record"}, "no such record"},
			{"long", &nexar.HandlerError{Text: strings.Repeat("é", 512)}, strings.Repeat("é", 512)},
			{"mute", &nexar.HandlerError{Text: ""}, ""},
			{"panic", &nexar.PanicError{Text: "index 7"}, "it has panicked: index 7"},
			{"exit", &nexar.PanicError{Text: "its goroutine was ended by runtime.Goexit"}, "it has panicked: its goroutine was ended by runtime.Goexit"},
		} {
			for to := range comms {
				_, err := comms[0].Call(t.Context(), to, test.fn, []byte("x"))
				if want := callText(w, to, test.fn, test.text); err == nil || err.Error() != want {
					t.Errorf("%s: %.300v\nwant %.300s", m.Name, err, want)
				}
				e, ok := errors.AsType[*nexar.CallError](err)
				if !ok || e.Rank != to || e.Fn != test.fn || e.Node != w.ID(to) || !sameCause(err, test.want) {
					t.Errorf("%s: got error %.300v, want a CallError of rank %d with %v", m.Name, err, to, test.want)
				}
			}
		}
		worldtest.CheckWorks(t, comms)
	}
}

// sameCause reports whether err is want, or has its text.
func sameCause(err, want error) bool {
	switch want := want.(type) {
	case *nexar.HandlerError:
		e, ok := errors.AsType[*nexar.HandlerError](err)
		return ok && *e == *want
	case *nexar.PanicError:
		e, ok := errors.AsType[*nexar.PanicError](err)
		return ok && *e == *want
	}
	return errors.Is(err, want)
}

// TestCallTooLarge: arguments and results beyond the limit are not sent.
func TestCallTooLarge(t *testing.T) {
	w := worldtest.Mem().World(t, 2, nexar.Config{})
	comms := w.Comms
	huge := make([]byte, 1<<30+1) // Its pages are never touched.
	for _, c := range comms {
		c.Register("flood", func(context.Context, int, []byte) ([]byte, error) { return huge, nil })
	}
	for to := range comms {
		for part, args := range map[string][]byte{"arguments": huge, "result": nil} {
			_, err := comms[0].Call(t.Context(), to, "flood", args)
			want := callText(w, to, "flood", "too large: "+part+" of 1073741825 bytes, at most 1073741824 are allowed")
			if !errors.Is(err, nexar.ErrTooLarge) || err.Error() != want {
				t.Errorf("got error %v, want %q", err, want)
			}
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestCallInvalid: a call with invalid arguments returns an error and sends nothing.
func TestCallInvalid(t *testing.T) {
	w := worldtest.Mem().World(t, 2, nexar.Config{})
	comms := w.Comms
	registerFailing(comms[1])
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(worldtest.ErrCancelled)
	late, cancelLate := context.WithTimeout(t.Context(), -1)
	defer cancelLate()
	for _, test := range []struct {
		ctx  context.Context
		to   int
		want error
		text string
	}{
		{t.Context(), 2, nexar.ErrInvalidRank, `nexar: call: invalid rank: rank 2 of 2 ranks, for function "echo"`},
		{t.Context(), nexar.AnyRank, nexar.ErrInvalidRank, `nexar: call: invalid rank: rank -1 of 2 ranks, for function "echo"`},
		{ended, 1, worldtest.ErrCancelled, "nexar: call: context canceled: cancelled by the test"},
		{late, 1, context.DeadlineExceeded, "nexar: call: context deadline exceeded"},
	} {
		if _, err := comms[0].Call(test.ctx, test.to, "echo", nil); !errors.Is(err, test.want) || err.Error() != test.text {
			t.Errorf("%v, want %q", err, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestRegisterPanics: Register of an invalid name or handler panics.
func TestRegisterPanics(t *testing.T) {
	w := worldtest.Mem().World(t, 1, nexar.Config{})
	comms := w.Comms
	echo := func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil }
	comms[0].Register("taken", echo)
	comms[0].Register(strings.Repeat("n", 255), echo)
	for _, test := range []struct {
		register func()
		want     string
	}{
		{func() { comms[0].Register("", echo) }, "nexar: register: name of 0 bytes: name of a function must have 1 to 255 bytes"},
		{func() { comms[0].Register(strings.Repeat("n", 256), echo) }, "nexar: register: name of 256 bytes: name of a function must have 1 to 255 bytes"},
		{func() { comms[0].Register("none", nil) }, `nexar: register "none": handler is nil`},
		{func() { comms[0].Register("taken", echo) }, `nexar: register "taken": another function has this name`},
		{func() { nexar.Func[int, int]{Name: "none"}.Register(comms[0], nil) }, `nexar: register "none": handler is nil`},
	} {
		got := func() (p any) {
			defer func() { p = recover() }()
			test.register()
			return nil
		}()
		if got != test.want {
			t.Errorf("got panic %v, want %q", got, test.want)
		}
	}
	if got, err := comms[0].Call(t.Context(), 0, "taken", []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("call of the first function of the name: got %q, %v, want \"x\"", got, err)
	}
}

// TestFuncErrors: a call with a value that cannot be encoded or decoded returns an error that names
// the function and, after the argument was sent, the rank.
func TestFuncErrors(t *testing.T) {
	w := worldtest.Mem().World(t, 2, nexar.Config{})
	comms := w.Comms
	nexar.Func[string, string]{Name: "s", Codec: nexar.JSON{}}.Register(comms[1], func(_ context.Context, _ int, s string) (string, error) { return s, nil })
	nexar.Func[int, func()]{Name: "f", Codec: nexar.JSON{}}.Register(comms[1], func(context.Context, int, int) (func(), error) { return func() {}, nil })
	ctx, c := t.Context(), comms[0]
	_, sent := nexar.Func[chan int, int]{Name: "s", Codec: nexar.JSON{}}.Call(ctx, c, 1, nil)
	_, decoded := nexar.Func[int, string]{Name: "s", Codec: nexar.JSON{}}.Call(ctx, c, 1, 7)
	_, result := nexar.Func[string, int]{Name: "s", Codec: nexar.JSON{}}.Call(ctx, c, 1, "seven")
	_, encoded := nexar.Func[int, int]{Name: "f", Codec: nexar.JSON{}}.Call(ctx, c, 1, 7)
	for i, test := range []struct {
		err     error
		handler bool
		text    string
	}{
		{sent, false, `nexar: call: the argument of function "s" cannot be encoded: json: unsupported type: chan int`},
		{decoded, true, callText(w, 1, "s", "its argument cannot be decoded: json: cannot unmarshal number into Go value of type string")},
		{result, false, `nexar: call: the result of function "s" of rank 1 cannot be decoded: json: cannot unmarshal string into Go value of type int`},
		{encoded, true, callText(w, 1, "f", "its result cannot be encoded: json: unsupported type: func()")},
	} {
		_, handler := errors.AsType[*nexar.HandlerError](test.err)
		if test.err == nil || test.err.Error() != test.text || handler != test.handler {
			t.Errorf("%d: %v, want %q", i, test.err, test.text)
		}
	}
}

// TestCallEnded: a call in progress fails if the called rank leaves or dies, or if the
// communicator ends, and the error gives the reason.
func TestCallEnded(t *testing.T) {
	for _, m := range callMedia() {
		for name, test := range map[string]struct {
			end  func(w *worldtest.World)
			want error
			text string // "" if rank 1 has left
		}{
			"left":    {func(w *worldtest.World) { w.Comms[1].Close() }, nexar.ErrPeerFailed, ""},
			"died":    {func(w *worldtest.World) { w.Kill(1) }, nexar.ErrPeerFailed, "nexar: call: rank 1 (node "},
			"closed":  {func(w *worldtest.World) { w.Comms[0].Close() }, nexar.ErrClosed, "nexar: call: closed by this rank"},
			"revoked": {func(w *worldtest.World) { worldtest.Revoke(w.Comms[2], worldtest.ErrCancelled) }, nexar.ErrRevoked, "nexar: call: communicator revoked by rank 2: its call was cancelled: cancelled by the test"},
			"here":    {func(w *worldtest.World) { worldtest.Revoke(w.Comms[0], worldtest.ErrCancelled) }, nexar.ErrRevoked, "nexar: call: communicator revoked by rank 0: its call was cancelled: cancelled by the test"},
		} {
			t.Run(m.Name+"/"+name, func(t *testing.T) {
				m.Require(t)
				t.Parallel()
				w := m.World(t, 3, nexar.Config{})
				comms := w.Comms
				running := make(chan struct{})
				comms[1].Register("wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
					close(running)
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				called := make(chan error, 1)
				go func() {
					_, err := comms[0].Call(t.Context(), 1, "wait", nil)
					called <- err
				}()
				<-running
				test.end(w)
				err := <-called
				if test.text == "" {
					test.text = fmt.Sprintf("nexar: call: rank 1 (node %s at %s) has left", w.ID(1), w.Addr(1))
				}
				if p, ok := errors.AsType[*nexar.PeerError](err); !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), test.text) ||
					errors.Is(test.want, nexar.ErrPeerFailed) && (!ok || p.Rank != 1 || p.Left != (name == "left")) {
					t.Errorf("%v, want %v and %q", err, test.want, test.text)
				}
				if _, err := comms[0].Call(t.Context(), 1, "wait", nil); !errors.Is(err, test.want) {
					t.Errorf("next call: got error %v, want %v", err, test.want)
				}
			})
		}
	}
}

// TestCallBusy: a rank with a lower MaxConcurrentCalls than the caller refuses calls above it and
// answers the others.
func TestCallBusy(t *testing.T) {
	nodes := joinDifferent(t, nexar.Config{MaxConcurrentCalls: 8}, nexar.Config{MaxConcurrentCalls: 2})
	comms, peer := []*nexar.Comm{nodes[0].World(), nodes[1].World()}, nodes[0].Peers()[0]
	release, running := make(chan struct{}), make(chan struct{}, 2)
	comms[1].Register("hold", func(context.Context, int, []byte) ([]byte, error) {
		running <- struct{}{}
		<-release
		return []byte("held"), nil
	})
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := comms[0].Call(t.Context(), 1, "hold", nil)
			results <- err
		}()
		<-running
	}
	_, err := comms[0].Call(t.Context(), 1, "hold", nil)
	want := fmt.Sprintf("nexar: call: function \"hold\" of rank 1 (node %s at %s): busy: it takes 2 calls of each rank, with 1073741824 bytes of arguments, at a time", peer.Node, peer.Addr)
	if !errors.Is(err, nexar.ErrBusy) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	close(release)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, err := comms[0].Call(t.Context(), 1, "hold", nil); err != nil {
		t.Errorf("later call: %v", err)
	}
}

// joinDifferent joins nodes with different settings.
func joinDifferent(t *testing.T, cfgs ...nexar.Config) []*nexar.Node {
	t.Helper()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: len(cfgs), AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]*nexar.Node, len(cfgs))
	t.Cleanup(func() {
		err := worldtest.ForEach(len(nodes), func(rank int) error {
			if nodes[rank] == nil {
				return nil
			}
			return nodes[rank].Close()
		})
		if err := errors.Join(err, seed.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	err = worldtest.ForEach(len(cfgs), func(rank int) (err error) {
		cfg := cfgs[rank]
		cfg.Seeds, cfg.Listen, cfg.Rank, cfg.Transports = []string{seed.Addr()}, "127.0.0.1:0", &rank, []string{"quic"}
		nodes[rank], err = nexar.Join(t.Context(), cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestCallTimeout: a call without a deadline ends after Config.CallTimeout.
func TestCallTimeout(t *testing.T) {
	const limit = 20 * time.Millisecond
	w := worldtest.Mem().World(t, 2, nexar.Config{CallTimeout: limit})
	comms := w.Comms
	for _, c := range comms {
		registerFailing(c)
	}
	for to := range comms {
		began := time.Now()
		_, err := comms[0].Call(t.Context(), to, "wait", nil)
		if want := callText(w, to, "wait", "context deadline exceeded"); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
		if took := time.Since(began); took < limit {
			t.Errorf("the call ended after %v, want at least %v", took, limit)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	comms[1].Register("slow", func(context.Context, int, []byte) ([]byte, error) { time.Sleep(2 * limit); return nil, nil })
	if _, err := comms[0].Call(ctx, 1, "slow", nil); err != nil {
		t.Errorf("call with a longer deadline: %v", err)
	}
}

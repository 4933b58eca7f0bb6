package nexar

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/rpc"
)

// registerFailing registers functions that fail.
func registerFailing(c *Comm) {
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

// callText is the error of a call as users read it.
func callText(c *Comm, to int, fn, text string) string {
	n := c.impl.Nodes[to]
	return fmt.Sprintf("nexar: call: function %q of rank %d (node %s at %s): %s", fn, to, n.ID, n.Addrs[0], text)
}

// TestCallErrors: what goes wrong in a call has a type and names the rank, its
// node and the function, of another rank as of oneself.
func TestCallErrors(t *testing.T) {
	for _, m := range []medium{overMem, overQUIC} {
		comms := m.cluster(t, 2, Config{})
		for _, c := range comms {
			registerFailing(c)
		}
		for _, test := range []struct {
			fn   string
			want error
			text string
		}{
			{"none", ErrUnknownFunction, "unknown function"},
			{strings.Repeat("n", 255), ErrUnknownFunction, "unknown function"},
			{"", rpc.ErrName, "a name of 0 bytes: the name of a function has 1 to 255 bytes"},
			{strings.Repeat("n", 256), rpc.ErrName, "a name of 256 bytes: the name of a function has 1 to 255 bytes"},
			{"fail", &HandlerError{"no such record"}, "no such record"},
			{"long", &HandlerError{strings.Repeat("é", 512)}, strings.Repeat("é", 512)},
			{"mute", &HandlerError{""}, ""},
			{"panic", &PanicError{"index 7"}, "it has panicked: index 7"},
			{"exit", &PanicError{"its goroutine was ended by runtime.Goexit"}, "it has panicked: its goroutine was ended by runtime.Goexit"},
		} {
			for to := range comms {
				_, err := comms[0].Call(t.Context(), to, test.fn, []byte("x"))
				if want := callText(comms[0], to, test.fn, test.text); err == nil || err.Error() != want {
					t.Errorf("%s: %.300v\nwant %.300s", m.name, err, want)
				}
				e, ok := errors.AsType[*CallError](err)
				if !ok || e.Rank != to || e.Fn != test.fn || e.Node != NodeID(comms[0].impl.Nodes[to].ID) || !sameCause(err, test.want) {
					t.Errorf("%s: %.300v is no CallError with %v", m.name, err, test.want)
				}
			}
		}
		stillWorks(t, comms)
	}
}

// sameCause reports whether err is want, or says what want does.
func sameCause(err, want error) bool {
	switch want := want.(type) {
	case *HandlerError:
		e, ok := errors.AsType[*HandlerError](err)
		return ok && *e == *want
	case *PanicError:
		e, ok := errors.AsType[*PanicError](err)
		return ok && *e == *want
	}
	return errors.Is(err, want)
}

// TestCallTooLarge: arguments and results that are too long go nowhere.
func TestCallTooLarge(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	huge := make([]byte, 1<<30+1) // Nobody ever looks into it.
	for _, c := range comms {
		c.Register("flood", func(context.Context, int, []byte) ([]byte, error) { return huge, nil })
	}
	for to := range comms {
		for what, args := range map[string][]byte{"arguments": huge, "result": nil} {
			_, err := comms[0].Call(t.Context(), to, "flood", args)
			want := callText(comms[0], to, "flood", "too large: "+what+" of 1073741825 bytes, at most 1073741824 are allowed")
			if !errors.Is(err, ErrTooLarge) || err.Error() != want {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	stillWorks(t, comms)
}

// TestCallInvalid: what cannot be a call is an error of this rank.
func TestCallInvalid(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	registerFailing(comms[1])
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	late, cancelLate := context.WithTimeout(t.Context(), -1)
	defer cancelLate()
	for _, test := range []struct {
		ctx  context.Context
		to   int
		want error
		text string
	}{
		{t.Context(), 2, ErrInvalidRank, `nexar: call: invalid rank: rank 2 of 2 ranks, for function "echo"`},
		{t.Context(), AnyRank, ErrInvalidRank, `nexar: call: invalid rank: rank -1 of 2 ranks, for function "echo"`},
		{ended, 1, errEnough, "nexar: call: context canceled: the user has had enough"},
		{late, 1, context.DeadlineExceeded, "nexar: call: context deadline exceeded"},
	} {
		if _, err := comms[0].Call(test.ctx, test.to, "echo", nil); !errors.Is(err, test.want) || err.Error() != test.text {
			t.Errorf("%v, want %q", err, test.text)
		}
	}
	stillWorks(t, comms)
}

// TestRegisterPanics: a function that cannot be registered is a mistake in the
// program.
func TestRegisterPanics(t *testing.T) {
	comms := overMem.cluster(t, 1, Config{})
	echo := func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil }
	comms[0].Register("taken", echo)
	comms[0].Register(strings.Repeat("n", 255), echo)
	for _, test := range []struct {
		register func()
		want     string
	}{
		{func() { comms[0].Register("", echo) }, "nexar: register: a name of 0 bytes: the name of a function has 1 to 255 bytes"},
		{func() { comms[0].Register(strings.Repeat("n", 256), echo) }, "nexar: register: a name of 256 bytes: the name of a function has 1 to 255 bytes"},
		{func() { comms[0].Register("none", nil) }, `nexar: register "none": no handler`},
		{func() { comms[0].Register("taken", echo) }, `nexar: register "taken": the name is taken by another function`},
		{func() { Func[int, int]{Name: "none"}.Register(comms[0], nil) }, `nexar: register "none": no handler`},
	} {
		got := func() (p any) {
			defer func() { p = recover() }()
			test.register()
			return nil
		}()
		if got != test.want {
			t.Errorf("it panics with %v, want %q", got, test.want)
		}
	}
	if got, err := comms[0].Call(t.Context(), 0, "taken", []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("the first function of the name: %q, %v", got, err)
	}
}

// TestFuncErrors: what cannot be encoded, or decoded, is said by the rank that
// cannot, and ends nothing else.
func TestFuncErrors(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	Func[string, string]{Name: "s", Codec: JSON{}}.Register(comms[1], func(_ context.Context, _ int, s string) (string, error) { return s, nil })
	Func[int, func()]{Name: "f", Codec: JSON{}}.Register(comms[1], func(context.Context, int, int) (func(), error) { return func() {}, nil })
	ctx, c := t.Context(), comms[0]
	_, sent := Func[chan int, int]{Name: "s", Codec: JSON{}}.Call(ctx, c, 1, nil)
	_, decoded := Func[int, string]{Name: "s", Codec: JSON{}}.Call(ctx, c, 1, 7)
	_, result := Func[string, int]{Name: "s", Codec: JSON{}}.Call(ctx, c, 1, "seven")
	_, encoded := Func[int, int]{Name: "f", Codec: JSON{}}.Call(ctx, c, 1, 7)
	for i, test := range []struct {
		err     error
		handler bool
		text    string
	}{
		{sent, false, `nexar: call: the argument of function "s" cannot be encoded: json: unsupported type: chan int`},
		{decoded, true, callText(c, 1, "s", "its argument cannot be decoded: json: cannot unmarshal number into Go value of type string")},
		{result, false, `nexar: call: the result of function "s" of rank 1 cannot be decoded: json: cannot unmarshal string into Go value of type int`},
		{encoded, true, callText(c, 1, "f", "its result cannot be encoded: json: unsupported type: func()")},
	} {
		_, handler := errors.AsType[*HandlerError](test.err)
		if test.err == nil || test.err.Error() != test.text || handler != test.handler {
			t.Errorf("%d: %v, want %q", i, test.err, test.text)
		}
	}
}

// TestCallEnded: a call under way ends when its rank leaves, or dies, or the
// communicator ends, and says so.
func TestCallEnded(t *testing.T) {
	for _, m := range callMedia() {
		for name, test := range map[string]struct {
			end  func(comms []*Comm)
			want error
			text string // "" for that rank 1 has left
		}{
			"left":    {func(comms []*Comm) { comms[1].Close() }, ErrPeerFailed, ""},
			"died":    {func(comms []*Comm) { kill(comms, 1) }, ErrPeerFailed, "nexar: call: rank 1 (node "},
			"closed":  {func(comms []*Comm) { comms[0].Close() }, ErrClosed, "nexar: call: closed"},
			"revoked": {func(comms []*Comm) { comms[2].comm.Cancel(errEnough) }, ErrRevoked, "nexar: call: communicator revoked by rank 2: its call was cancelled: the user has had enough"},
			"here":    {func(comms []*Comm) { comms[0].comm.Cancel(errEnough) }, ErrRevoked, "nexar: call: communicator revoked by rank 0: its call was cancelled: the user has had enough"},
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				m.needs(t)
				t.Parallel()
				comms := m.cluster(t, 3, Config{})
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
				test.end(comms)
				err := <-called
				if test.text == "" {
					n := comms[0].impl.Nodes[1]
					test.text = fmt.Sprintf("nexar: call: rank 1 (node %s at %s) has left", n.ID, n.Addrs[0])
				}
				if p, ok := errors.AsType[*PeerError](err); !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), test.text) ||
					errors.Is(test.want, ErrPeerFailed) && (!ok || p.Rank != 1 || p.Left != (name == "left")) {
					t.Errorf("%v, want %v and %q", err, test.want, test.text)
				}
				if _, err := comms[0].Call(t.Context(), 1, "wait", nil); !errors.Is(err, test.want) {
					t.Errorf("the next call: %v, want %v", err, test.want)
				}
			})
		}
	}
}

// TestCallBusy: a rank with lower limits than the caller's refuses what is too
// much, and goes on with the rest.
func TestCallBusy(t *testing.T) {
	comms := unlike(t, overMem, Config{CallsInFlight: 8}, Config{CallsInFlight: 2})
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
	want := callText(comms[0], 1, "hold", "busy: it takes 2 calls of each rank, with 1073741824 bytes of arguments, at a time")
	if !errors.Is(err, ErrBusy) || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	close(release)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, err := comms[0].Call(t.Context(), 1, "hold", nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// unlike makes a cluster of ranks whose settings are not alike.
func unlike(t *testing.T, m medium, cfgs ...Config) []*Comm {
	t.Helper()
	view, transports, end, err := m.listen(len(cfgs))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	comms := make([]*Comm, len(cfgs))
	err = forEach(len(cfgs), func(rank int) (err error) {
		cfg, err := cfgs[rank].fill()
		if err == nil {
			comms[rank], err = rankOver(ctx, []mesh.Path{{Transport: transports[rank]}}, view, rank, m.network, cfg)
		}
		return err
	})
	t.Cleanup(func() {
		errs := []error{end()}
		for _, c := range comms {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
		if err := errors.Join(errs...); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

// TestCallTimeout: a call without a deadline has that of its settings.
func TestCallTimeout(t *testing.T) {
	const limit = 20 * time.Millisecond
	comms := overMem.cluster(t, 2, Config{CallTimeout: limit})
	for _, c := range comms {
		registerFailing(c)
	}
	for to := range comms {
		began := time.Now()
		_, err := comms[0].Call(t.Context(), to, "wait", nil)
		if want := callText(comms[0], to, "wait", "context deadline exceeded"); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
		if took := time.Since(began); took < limit {
			t.Errorf("it ended after %v, want %v", took, limit)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // which is longer
	defer cancel()
	comms[1].Register("slow", func(context.Context, int, []byte) ([]byte, error) { time.Sleep(2 * limit); return nil, nil })
	if _, err := comms[0].Call(ctx, 1, "slow", nil); err != nil {
		t.Errorf("with a deadline of its own: %v", err)
	}
}

package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// brokenError panics in Error.
type brokenError struct{}

func (*brokenError) Error() string { panic("no text") }

// Each failure of a call has its own error, on any rank, and the rank continues.
func TestErrors(t *testing.T) {
	const limit = 1000
	w := newWorld(t, 2, Config{PayloadMax: limit})
	for fn, h := range map[string]Handler{
		"fail":   func(context.Context, int, []byte) ([]byte, error) { return []byte("x"), errors.New("no such file") },
		"long":   func(context.Context, int, []byte) ([]byte, error) { return nil, errors.New(strings.Repeat("x", 5000)) },
		"panic":  func(context.Context, int, []byte) ([]byte, error) { panic(errors.New("index out of range")) },
		"colour": func(context.Context, int, []byte) ([]byte, error) { return nil, errors.New("\x1b[31m\n\xff") },
		"nil":    func(context.Context, int, []byte) ([]byte, error) { panic(nil) }, //nolint:govet // a PanicNilError
		"text":   func(context.Context, int, []byte) ([]byte, error) { return nil, new(brokenError) },
		"goexit": func(context.Context, int, []byte) ([]byte, error) { runtime.Goexit(); return nil, nil },
		"large":  func(context.Context, int, []byte) ([]byte, error) { return make([]byte, limit+1), nil },
		"echo":   echo,
	} {
		w.register(t, fn, h)
	}
	for to := range w.services {
		for _, test := range []struct {
			fn    string
			bytes int
			want  *AnswerError // without the rank and the function
			text  string
		}{
			{"none", 0, &AnswerError{Status: wire.RemoteUnknown}, `function "none" of rank %d: the rank has no function of this name`},
			{"fail", 0, &AnswerError{Status: wire.RemoteFailed, Text: "no such file"}, `function "fail" of rank %d: no such file`},
			{"long", 0, &AnswerError{Status: wire.RemoteFailed, Text: strings.Repeat("x", wire.TextMax)}, `function "long" of rank %d: xxx`},
			{"panic", 0, &AnswerError{Status: wire.RemotePanicked, Text: "index out of range"}, `function "panic" of rank %d: it has panicked: index out of range`},
			{"colour", 0, &AnswerError{Status: wire.RemoteFailed, Text: "\x1b[31m\n\xff"}, `function "colour" of rank %d: \x1b[31m\n\xff`},
			{"nil", 0, &AnswerError{Status: wire.RemotePanicked, Text: "panic called with nil argument"}, "panicked"},
			{"text", 0, &AnswerError{Status: wire.RemotePanicked, Text: "no text"}, "panicked: no text"},
			{"goexit", 0, &AnswerError{Status: wire.RemotePanicked, Text: "its goroutine was ended by runtime.Goexit"}, "runtime.Goexit"},
			{"large", 0, &AnswerError{Status: wire.RemoteResultTooLong, Size: limit + 1, Max: limit}, `function "large" of rank %d: result of 1001 bytes, at most 1000`},
			{"echo", limit + 1, &AnswerError{Status: wire.RemoteArgsTooLong, Size: limit + 1, Max: limit}, `function "echo" of rank %d: arguments of 1001 bytes, at most 1000`},
			{"echo", limit, nil, ""},
		} {
			result, err := w.services[0].Call(t.Context(), to, test.fn, make([]byte, test.bytes))
			var want error
			if test.want != nil {
				test.want.Rank, test.want.Fn = to, test.fn
				want = test.want
			}
			if !reflect.DeepEqual(err, want) || err != nil && result != nil {
				t.Errorf("%s of rank %d: %d bytes, error %#v, want %#v", test.fn, to, len(result), err, want)
				continue
			}
			if want := strings.ReplaceAll(test.text, "%d", fmt.Sprint(to)); err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s of rank %d: error %q, want one with %q", test.fn, to, err, want)
			}
		}
	}
}

// Ranks with different limits report them to each other.
func TestLimitsDiffer(t *testing.T) {
	w := newWorld(t, 2, Config{})
	const long = 200 << 10
	// Rank 1 has lower limits than rank 0, and rank 0 gets an error.
	small := New(w.ports[1], 1, 2, Config{PayloadMax: 100 << 10})
	w.services[1], w.ports[1].arrived = small, small.Arrived
	w.register(t, "echo", echo)
	w.register(t, "long", func(context.Context, int, []byte) ([]byte, error) { return make([]byte, long), nil })
	_, err := w.services[0].Call(t.Context(), 1, "echo", make([]byte, long))
	if want := (&AnswerError{Rank: 1, Fn: "echo", Status: wire.RemoteRefused, Size: long}); !reflect.DeepEqual(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
	_, err = w.services[1].Call(t.Context(), 0, "long", nil)
	if want := (&AnswerError{Rank: 0, Fn: "long", Status: wire.RemoteResultTooLong, Size: long, Max: 100 << 10}); !reflect.DeepEqual(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
	// Messages that the receiver can read are never refused, so that it can send the
	// reason.
	tiny := New(w.ports[1], 1, 2, Config{PayloadMax: 100})
	small.Close(errTestClosed)
	w.services[1], w.ports[1].arrived = tiny, tiny.Arrived
	if err := tiny.Register("echo", echo); err != nil {
		t.Fatal(err)
	}
	_, err = w.services[0].Call(t.Context(), 1, "echo", make([]byte, 101))
	if want := (&AnswerError{Rank: 1, Fn: "echo", Status: wire.RemoteArgsTooLong, Size: 101, Max: 100}); !reflect.DeepEqual(err, want) {
		t.Errorf("error %#v, want %#v", err, want)
	}
}

// The stack of a panic is logged on its own rank only.
func TestPanicsAreLogged(t *testing.T) {
	var log struct {
		sync.Mutex
		bytes.Buffer
	}
	w := newWorld(t, 2, Config{Log: slog.New(slog.NewTextHandler(lockedWriter{&log.Mutex, &log.Buffer}, nil))})
	w.register(t, "panic", func(context.Context, int, []byte) ([]byte, error) { return fallingOver() })
	if _, err := w.services[0].Call(t.Context(), 1, "panic", nil); err == nil || strings.Contains(err.Error(), "fallingOver") {
		t.Errorf("error %v, want one without the stack", err)
	}
	log.Lock()
	defer log.Unlock()
	for _, want := range []string{"level=ERROR", "function=panic", "caller=0", "ouch", "rpc.fallingOver"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
}

func fallingOver() ([]byte, error) { panic("ouch") }

type lockedWriter struct {
	*sync.Mutex
	*bytes.Buffer
}

func (w lockedWriter) Write(b []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	return w.Buffer.Write(b)
}

// Errors of the caller are reported.
func TestCallerErrors(t *testing.T) {
	w := newWorld(t, 2, Config{})
	s := w.services[0]
	longest := strings.Repeat("x", wire.RemoteNameMax)
	register := func(fn string, h Handler) error { return s.Register(fn, h) }
	call := func(to int, fn string) error { _, err := s.Call(t.Context(), to, fn, nil); return err }
	w.register(t, "taken", echo)
	w.register(t, longest, echo)
	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"register without a name", register("", echo), ErrName},
		{"register an overlong name", register(longest+"x", echo), ErrName},
		{"register nothing", register("x", nil), ErrHandler},
		{"register twice", register("taken", reverse), ErrTaken},
		{"call without a name", call(1, ""), ErrName},
		{"call an overlong name", call(1, longest+"x"), ErrName},
		{"call the longest name", call(1, longest), nil},
		{"call rank -1", call(-1, "taken"), ErrRank},
		{"call rank 2", call(2, "taken"), ErrRank},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, test.err, test.want)
		}
	}
	if got, err := s.Call(t.Context(), 0, "taken", []byte("abc")); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v: the second function has replaced the first", got, err)
	}
}

// Functions may be registered while calls arrive.
func TestRegisterDuringCalls(t *testing.T) {
	w := newWorld(t, 2, Config{})
	const functions = 100
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := k; i < functions; i += 4 {
				if err := w.services[1].Register(fmt.Sprint(i), echo); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for i := range functions {
				fn := fmt.Sprint(i)
				var unknown *AnswerError
				if _, err := w.services[0].Call(t.Context(), 1, fn, nil); err != nil && (!errors.As(err, &unknown) || unknown.Status != wire.RemoteUnknown) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range functions {
		if _, err := w.services[0].Call(t.Context(), 1, fmt.Sprint(i), nil); err != nil {
			t.Error(err)
		}
	}
}

package rpc

import (
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// Mistakes of users, to be tested with errors.Is.
var (
	// ErrName says that the name of a function is empty, or longer than 255
	// bytes.
	ErrName = errors.New("the name of a function has 1 to 255 bytes")
	// ErrHandler says that a function was registered without a Handler.
	ErrHandler = errors.New("no handler")
	// ErrTaken says that another function was registered under the name.
	ErrTaken = errors.New("the name is taken by another function")
	// ErrRank says that a rank is not one of the communicator.
	ErrRank = errors.New("no such rank")
)

// An UnknownError says that a rank has no function of a name, or had none yet
// when the call came.
type UnknownError struct {
	Rank int
	Fn   string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("rank %d has no function %q", e.Rank, e.Fn) }

// A RemoteError says that a function has returned an error. Text is the first KiB of
// its text, as it was sent; Error escapes it.
type RemoteError struct {
	Rank int
	Fn   string
	Text string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("function %q of rank %d: %s", e.Fn, e.Rank, wire.Escape(e.Text))
}

// A PanicError says that a function has panicked, or ended its goroutine. Text
// is the value of the panic, its first KiB; the log of that rank has the stack.
type PanicError struct {
	Rank int
	Fn   string
	Text string
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("function %q of rank %d panicked: %s", e.Fn, e.Rank, wire.Escape(e.Text))
}

// A TooLargeError says that the arguments of a call, or its result, are longer
// than one of the two ranks allows.
type TooLargeError struct {
	Rank       int
	Fn         string
	Result     bool // otherwise the arguments
	Bytes, Max int
}

func (e *TooLargeError) Error() string {
	what := "arguments"
	if e.Result {
		what = "result"
	}
	return fmt.Sprintf("%s of function %q of rank %d: %d bytes, at most %d are allowed", what, e.Fn, e.Rank, e.Bytes, e.Max)
}

// A BusyError says that a rank has not begun a call, because as many of this
// rank are under way there as it allows: Calls of them, with Bytes of
// arguments. A rank waits before it has more under way than it allows others
// itself, so it gets this only from one with lower limits.
type BusyError struct {
	Rank         int
	Fn           string
	Calls, Bytes int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("rank %d is too busy for function %q: of each rank it takes %d calls, with %d bytes of arguments, at a time",
		e.Rank, e.Fn, e.Calls, e.Bytes)
}

// A RefusedError says that a rank did not take the arguments of a call, of
// Bytes in all, or that this rank did not take the result. Ranks with the same
// limits do not refuse what others send.
type RefusedError struct {
	Rank   int
	Fn     string
	Result bool // otherwise the arguments
	Bytes  int
}

func (e *RefusedError) Error() string {
	if e.Result {
		return fmt.Sprintf("this rank has refused the result of function %q of rank %d, of %d bytes: their limits differ", e.Fn, e.Rank, e.Bytes)
	}
	return fmt.Sprintf("rank %d has refused the arguments of function %q, of %d bytes: they are above its limits", e.Rank, e.Fn, e.Bytes)
}

// A CancelledError says that the context of a call has ended before there was
// an answer. Err is the cause of that. If the call had Begun, its function may
// have been called, and may still run, with a context that ends.
type CancelledError struct {
	Rank  int
	Fn    string
	Begun bool
	Turn  Turn
	Err   error
}

// A Turn describes the wait of a call for its turn. It is zero if there was none.
type Turn struct {
	After         time.Duration
	InFlight, Max int // calls to the rank that were under way, and how many may be
}

// String describes the wait, or is empty.
func (t Turn) String() string {
	if t.InFlight == 0 {
		return ""
	}
	text := fmt.Sprintf("it had waited %v for its turn behind %d calls in flight to that rank", t.After.Round(time.Millisecond), t.InFlight)
	if t.InFlight < t.Max {
		text += ", for their arguments and its own are too many bytes"
	}
	return text
}

func (e *CancelledError) Error() string {
	what := "was given up without an answer"
	if !e.Begun {
		what = "was given up before its turn came"
	}
	text := fmt.Sprintf("call of function %q of rank %d %s: %v", e.Fn, e.Rank, what, e.Err)
	if waited := e.Turn.String(); waited != "" {
		text += ": " + waited
	}
	return text
}

func (e *CancelledError) Unwrap() error { return e.Err }

// A LostError says that a call has no answer because its rank has gone. Its
// function may have been called.
type LostError struct {
	Rank int
	Fn   string
	Err  error // of Lost, or of Port.Send
}

func (e *LostError) Error() string {
	return fmt.Sprintf("no answer from function %q of rank %d, which has gone: %v", e.Fn, e.Rank, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// A ClosedError says that a call has no answer because the Service was closed.
// Its function may have been called.
type ClosedError struct {
	Rank int
	Fn   string
	Err  error // of Close
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("no answer from function %q of rank %d: %v", e.Fn, e.Rank, e.Err)
}

func (e *ClosedError) Unwrap() error { return e.Err }

package rpc

import (
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// Errors of the caller. Test for them with errors.Is.
var (
	// ErrName reports a function name that is empty or longer than 255 bytes.
	ErrName = errors.New("name of a function must have 1 to 255 bytes")
	// ErrHandler reports a registration without a Handler.
	ErrHandler = errors.New("handler is nil")
	// ErrTaken reports a second registration of a name.
	ErrTaken = errors.New("another function has this name")
	// ErrRank reports a rank outside the communicator.
	ErrRank = errors.New("no such rank")
)

// An UnknownError reports that a rank has no function of this name, or had none when the call
// arrived.
type UnknownError struct {
	Rank int
	Fn   string
}

func (e *UnknownError) Error() string { return fmt.Sprintf("rank %d has no function %q", e.Rank, e.Fn) }

// A RemoteError reports that a function has returned an error. Text is the first KiB of its
// text as received; Error escapes it.
type RemoteError struct {
	Rank int
	Fn   string
	Text string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("function %q of rank %d: %s", e.Fn, e.Rank, wire.Escape(e.Text))
}

// A PanicError reports that a function has panicked or ended its goroutine. Text is the
// first KiB of the panic value; the log of that rank has the stack.
type PanicError struct {
	Rank int
	Fn   string
	Text string
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("function %q of rank %d panicked: %s", e.Fn, e.Rank, wire.Escape(e.Text))
}

// A TooLargeError reports arguments or a result longer than the limit of one of the two
// ranks.
type TooLargeError struct {
	Rank       int
	Fn         string
	Result     bool // false: the arguments
	Bytes, Max int
}

func (e *TooLargeError) Error() string {
	what := "arguments"
	if e.Result {
		what = "result"
	}
	return fmt.Sprintf("%s of function %q of rank %d: %d bytes, at most %d are allowed", what, e.Fn, e.Rank, e.Bytes, e.Max)
}

// A BusyError reports that a rank has not begun a call, because its limit for calls of one rank
// was reached: Calls calls with Bytes bytes of arguments. Since each rank obeys its own limit,
// only a rank with lower limits causes it.
type BusyError struct {
	Rank         int
	Fn           string
	Calls, Bytes int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("rank %d is too busy for function %q: its limit for each rank is %d calls with %d bytes of arguments",
		e.Rank, e.Fn, e.Calls, e.Bytes)
}

// A RefusedError reports that a rank has refused the arguments of a call, or that this
// rank has refused the result, of Bytes bytes in all. Ranks with equal limits never
// refuse a message.
type RefusedError struct {
	Rank   int
	Fn     string
	Result bool // false: the arguments
	Bytes  int
}

func (e *RefusedError) Error() string {
	if e.Result {
		return fmt.Sprintf("this rank has refused the result of function %q of rank %d, of %d bytes: their limits differ", e.Fn, e.Rank, e.Bytes)
	}
	return fmt.Sprintf("rank %d has refused the arguments of function %q, of %d bytes: they are above its limits", e.Rank, e.Fn, e.Bytes)
}

// A CancelledError reports that the context of a call has ended before the answer. Err
// is its cause. If the call had Begun, its function may have been called, and may still
// run, with a context that ends.
type CancelledError struct {
	Rank  int
	Fn    string
	Begun bool
	Turn  Turn
	Err   error
}

// A Turn describes the wait of a call in the queue. It is zero without a wait.
type Turn struct {
	After         time.Duration
	InFlight, Max int // calls to the rank in flight, and their limit
}

// String describes the wait. It is empty without one.
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

// A LostError reports that a call gets no answer because its rank is gone. The function
// may have been called.
type LostError struct {
	Rank int
	Fn   string
	Err  error // of Lost, or of Port.Send
}

func (e *LostError) Error() string {
	return fmt.Sprintf("no answer from function %q of rank %d, which has gone: %v", e.Fn, e.Rank, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// A ClosedError reports that a call gets no answer because the Service was closed. The
// function may have been called.
type ClosedError struct {
	Rank int
	Fn   string
	Err  error // of Close
}

func (e *ClosedError) Error() string {
	return fmt.Sprintf("no answer from function %q of rank %d: %v", e.Fn, e.Rank, e.Err)
}

func (e *ClosedError) Unwrap() error { return e.Err }

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

// An AnswerError is the answer to a call without a result: the function has failed, or the rank has not called it. The limits of
// this rank are reported as those of the other one are.
type AnswerError struct {
	Rank      int
	Fn        string
	Status    wire.RemoteStatus // why
	Size, Max int               // see [wire.RemoteAnswer]; with RemoteRefused, Size bytes of arguments or of the result
	Text      string            // the first KiB of the error or of the value of the panic, as received; the log of the rank has the stack
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("function %q of rank %d: %s", e.Fn, e.Rank, e.Reason())
}

// Reason describes the answer without the function and the rank.
func (e *AnswerError) Reason() string {
	switch e.Status {
	case wire.RemotePanicked:
		return "it has panicked: " + wire.Escape(e.Text)
	case wire.RemoteUnknown:
		return "the rank has no function of this name"
	case wire.RemoteArgsTooLong:
		return fmt.Sprintf("arguments of %d bytes, at most %d are allowed", e.Size, e.Max)
	case wire.RemoteResultTooLong:
		return fmt.Sprintf("result of %d bytes, at most %d are allowed", e.Size, e.Max)
	case wire.RemoteBusy:
		return fmt.Sprintf("it takes %d calls of each rank, with %d bytes of arguments, at a time", e.Max, e.Size)
	case wire.RemoteRefused:
		return fmt.Sprintf("%d bytes were refused: the limits of the two ranks differ", e.Size)
	}
	return wire.Escape(e.Text)
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

// A GoneError reports that there will be no answer, since the rank has gone or the Service is closed.
type GoneError struct {
	Rank   int
	Fn     string
	Closed bool
	Err    error // of Lost, Close or Port.Send
}

func (e *GoneError) Error() string {
	text := "no answer from function %q of rank %d, which has gone: %v"
	if e.Closed {
		text = "no answer from function %q of rank %d: %v"
	}
	return fmt.Sprintf(text, e.Fn, e.Rank, e.Err)
}

func (e *GoneError) Unwrap() error { return e.Err }

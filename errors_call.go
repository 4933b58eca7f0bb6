package nexar

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/wire"
)

// A CallError says which call of a function has failed, and why: Err is
// ErrUnknownFunction, a HandlerError, a PanicError, ErrTooLarge or ErrBusy, or
// that of the context of the call.
type CallError struct {
	Rank int // whose function it is
	Node NodeID
	Addr string // where the node is
	Fn   string
	Err  error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("function %q of rank %d (node %s at %s): %v", e.Fn, e.Rank, e.Node, e.Addr, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// A HandlerError is the error that a called function has returned. Text is what
// it says, the first KiB of it: the value itself stays on the other rank.
type HandlerError struct{ Text string }

// Error returns Text, with escapes for characters that a terminal would not show.
func (e *HandlerError) Error() string { return wire.Escape(e.Text) }

// A PanicError says that a called function has panicked, or has ended its
// goroutine. Text is the value of the panic; the log of that rank has the stack.
type PanicError struct{ Text string }

// Error contains Text, with escapes for characters that a terminal would not show.
func (e *PanicError) Error() string { return "it has panicked: " + wire.Escape(e.Text) }

package p2p

import (
	"errors"
	"fmt"
)

// ErrNoReceive says that no receive has begun for a message that is not sent without one; see Regions.Received.
var ErrNoReceive = errors.New("no receive that takes the message has begun")

// A MisfitError says that a message does not fit its receive: the elements have different types, the message is longer than the
// buffer, or it is no whole number of elements of the buffer.
type MisfitError struct {
	Rank            int   // the other one
	Refused         bool  // that rank is the receiver, and has refused the message
	Sent, Receiving uint8 // kernel.Type
	Size, Room      int   // bytes of the message, and of the buffer
	Elem            int   // bytes of an element of the buffer, or 0 if Refused
}

func (e *MisfitError) Error() string {
	return fmt.Sprintf("message of %d bytes and elements of type %d, from or to rank %d, for a buffer of %d bytes and elements of type %d",
		e.Size, e.Sent, e.Rank, e.Room, e.Receiving)
}

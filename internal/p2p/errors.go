package p2p

import (
	"errors"
	"fmt"
)

// ErrNoReceive says that no receive has begun for a message that is not sent without one; see Regions.Received.
var ErrNoReceive = errors.New("no receive that takes the message has begun")

// A SizeError says that a message is longer than the buffer of its receive.
type SizeError struct {
	Source     int
	Size, Room int // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d, want at most %d bytes", e.Size, e.Source, e.Room)
}

// A TypeError says that the elements of a message and of the buffer have different types.
type TypeError struct {
	Source          int
	Sent, Receiving uint8 // kernel.Type
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("message from rank %d has elements of type %d, want %d", e.Source, e.Sent, e.Receiving)
}

// An ElementError says that the length of a message is not a multiple of the size of an element of
// the buffer.
type ElementError struct {
	Source     int
	Size, Elem int // bytes
}

func (e *ElementError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d, want a multiple of %d bytes", e.Size, e.Source, e.Elem)
}

// A RefusedError says that the receiver has refused a message: Size is greater than Room, or Sent
// differs from Receiving, or the length is not a multiple of the size of the receiver's elements.
type RefusedError struct {
	Rank            int
	Size, Room      int   // bytes
	Sent, Receiving uint8 // kernel.Type
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("rank %d refused a message of %d bytes: its buffer has %d bytes", e.Rank, e.Size, e.Room)
}

package p2p

import "fmt"

// A SizeError reports that a message is longer than the buffer of its receive.
type SizeError struct {
	Source     int
	Size, Room int // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d, want at most %d bytes", e.Size, e.Source, e.Room)
}

// A TypeError reports that the elements of a message and of the buffer have different types.
type TypeError struct {
	Source          int
	Sent, Receiving uint8 // kernel.Type
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("message from rank %d has elements of type %d, want %d", e.Source, e.Sent, e.Receiving)
}

// An ElementError reports that a message is not a whole number of elements of its receiver.
type ElementError struct {
	Source     int
	Size, Elem int // bytes
}

func (e *ElementError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d, want a multiple of %d bytes", e.Size, e.Source, e.Elem)
}

// A RefusedError reports that the receiver has refused a message: its buffer was too small, or had
// elements of another type. If neither is true, the message was not a whole number of elements.
type RefusedError struct {
	Rank            int
	Size, Room      int   // bytes
	Sent, Receiving uint8 // kernel.Type
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("rank %d refused a message of %d bytes: its buffer has %d bytes", e.Rank, e.Size, e.Room)
}

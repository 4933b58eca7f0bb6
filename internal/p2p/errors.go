package p2p

import "fmt"

// A SizeError says that a message does not fit the buffer it was received in.
type SizeError struct {
	Source     int
	Size, Room int // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d for a buffer of %d bytes", e.Size, e.Source, e.Room)
}

// A TypeError says that the elements of a message and of its receiver's buffer are of
// different types.
type TypeError struct {
	Source          int
	Sent, Receiving uint8 // kernel.Type
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("message from rank %d has elements of type %d, not %d", e.Source, e.Sent, e.Receiving)
}

// An ElementError says that the length of a message is not a multiple of the size of
// its receiver's elements.
type ElementError struct {
	Source     int
	Size, Elem int // bytes
}

func (e *ElementError) Error() string {
	return fmt.Sprintf("message of %d bytes from rank %d for elements of %d bytes", e.Size, e.Source, e.Elem)
}

// A RefusedError says that the buffer of the receiver did not fit a message: it was
// too small, or had elements of another type. If neither is so, the length of the
// message is not a multiple of the size of these elements.
type RefusedError struct {
	Rank            int
	Size, Room      int   // bytes
	Sent, Receiving uint8 // kernel.Type
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("rank %d refused a message of %d bytes: its buffer has %d bytes", e.Rank, e.Size, e.Room)
}

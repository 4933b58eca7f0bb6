package rpc

import "errors"

// A Port carries messages between the ranks of a communicator, in order for each pair of ranks.
// Its methods may be called concurrently, except for Poll and Take, which one goroutine at a
// time calls.
//
// A Port calls Arrived, Lost and Close of its [Service], which do not block.
type Port interface {
	// Send sends the concatenation of parts as one message to another rank. It returns
	// when they may be used again: at once for a message of at most wire.PayloadMax
	// bytes within credit, and otherwise when the receiver has taken it. It has no
	// context, since the receiver takes everything at once. It fails if the rank or the
	// communicator is gone, and with ErrRefused if the receiver has refused the
	// message, which happens only to messages of more than wire.PayloadMax bytes.
	Send(to int, parts ...[]byte) error
	// Poll returns the first message that was neither taken nor refused, without
	// blocking.
	Poll() (m Message, ok bool)
	// Take receives message m into buf, which has its length, or refuses it if buf is
	// nil. It does not block. Then done is called once, on any goroutine, possibly
	// before Take returns; done does not block either. If its argument is an error, the
	// message is lost, and Lost is called for its source.
	Take(m Message, buf []byte, done func(error))
}

// A Message is a message returned by Poll.
type Message struct {
	Source int    // rank
	Bytes  int    // length
	ID     uint64 // number of the message in the Port
}

// ErrRefused reports that the receiver has refused a message, which exceeds its limits.
var ErrRefused = errors.New("refused by the receiver")

package rpc

import "errors"

// A Port carries messages between the ranks of one communicator, in order for
// each pair of ranks. Its methods may be called on several goroutines at once,
// except that Poll and Take are called by one at a time.
//
// A Port calls Arrived, Lost and Close of its Service, which do not block.
type Port interface {
	// Send sends the parts, one after the other, as one message to another
	// rank. It returns when they may be used again: at once for a message of
	// at most wire.PayloadMax bytes within credit, else when the receiver has
	// taken it. It does not end with a context: the receiver takes everything
	// at once. It fails if the rank or the communicator has gone, and with an
	// error that is ErrRefused if the receiver has refused the message, which
	// it only does with one of more than wire.PayloadMax bytes.
	Send(to int, parts ...[]byte) error
	// Poll returns the first message that was neither taken nor refused yet, without
	// waiting.
	Poll() (m Message, ok bool)
	// Take receives the message m into buf, which is exactly as long, or
	// refuses it if buf is nil. It does not block. Then done is called once,
	// on any goroutine, maybe before Take returns; done does not block either.
	// If it is called with an error, the message is lost, and so will be its
	// source: Lost is called for it.
	Take(m Message, buf []byte, done func(error))
}

// A Message is a message that Poll has found.
type Message struct {
	Source int    // rank
	Bytes  int    // its length
	ID     uint64 // the number of the message in the Port
}

// ErrRefused says that the receiver has refused a message: it is longer than
// the receiver takes.
var ErrRefused = errors.New("refused by the receiver")

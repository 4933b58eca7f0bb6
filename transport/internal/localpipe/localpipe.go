// Package localpipe implements the two ends of a pipe within one process, for transport
// mem and for the simulated network of transport sim.
package localpipe

import (
	"io"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A Pipe is the state that both ends of a pipe share. Its methods may be called
// concurrently.
type Pipe interface {
	// Write, TryWrite and SetWriteDeadline implement the methods of the same names
	// of [transport.Sender] and [transport.TryWriter].
	Write(p []byte) (int, error)
	TryWrite(p []byte) bool
	SetWriteDeadline(t time.Time) error
	// CloseWrite ends the pipe after the last byte that was written.
	CloseWrite()

	// Peek blocks until there is data, and returns the first bytes of it: at least
	// one and at most limit, unless there is an error. The bytes stay valid until
	// Consume, which the reader calls once after each Peek.
	Peek(limit int) ([]byte, error)
	// Consume removes the first n bytes that Peek has returned.
	Consume(n int)
	// SetReadDeadline implements [transport.Receiver].
	SetReadDeadline(t time.Time) error
	// CloseRead discards the rest of the pipe.
	CloseRead()
}

// NewSender returns the writing end of p.
func NewSender(p Pipe) transport.Sender { return &sender{p} }

// NewReceiver returns the reading end of p.
func NewReceiver(p Pipe) transport.Receiver { return &receiver{p} }

type sender struct{ pipe Pipe }

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities { return transport.Capabilities{TryWriter: s} }

func (s *sender) Write(p []byte) (int, error)        { return s.pipe.Write(p) }
func (s *sender) TryWrite(p []byte) bool             { return s.pipe.TryWrite(p) }
func (s *sender) SetWriteDeadline(t time.Time) error { return s.pipe.SetWriteDeadline(t) }

func (s *sender) Close() error {
	s.pipe.CloseWrite()
	return nil
}

type receiver struct{ pipe Pipe }

func (r *receiver) SetReadDeadline(t time.Time) error { return r.pipe.SetReadDeadline(t) }

func (r *receiver) Close() error {
	r.pipe.CloseRead()
	return nil
}

// Read implements [transport.Receiver].
func (r *receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	piece, err := r.pipe.Peek(len(p))
	if err != nil {
		return 0, err
	}
	n := copy(p, piece)
	r.pipe.Consume(n)
	return n, nil
}

// ReadFunc implements [transport.Receiver].
func (r *receiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	read := 0
	for read < n {
		piece, err := r.pipe.Peek(n - read)
		if err == io.EOF {
			return read, io.ErrUnexpectedEOF
		}
		if err != nil {
			return read, err
		}
		r.view(piece, view)
		read += len(piece)
	}
	return read, nil
}

// view calls view with piece, and consumes the piece even if view panics: the sender
// may wait for that.
func (r *receiver) view(piece []byte, view func(p []byte)) {
	defer r.pipe.Consume(len(piece))
	view(piece)
}

package mem

import (
	"io"
	"time"

	"github.com/nexar-go/nexar/transport"
)

var (
	_ transport.Sender   = (*sender)(nil)
	_ transport.Capable  = (*sender)(nil)
	_ transport.Receiver = (*receiver)(nil)
)

// A sender is the writing end of a pipe.
type sender pipe

func (s *sender) Write(b []byte) (int, error)        { return (*pipe)(s).write(b) }
func (s *sender) TryWrite(b []byte) bool             { return (*pipe)(s).tryWrite(b) }
func (s *sender) SetWriteDeadline(t time.Time) error { return (*pipe)(s).setWriteDeadline(t) }

func (s *sender) Close() error {
	(*pipe)(s).closeWriting()
	return nil
}

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities { return transport.Capabilities{TryWriter: s} }

// A receiver is the reading end of a pipe.
type receiver pipe

func (r *receiver) SetReadDeadline(t time.Time) error { return (*pipe)(r).setReadDeadline(t) }

func (r *receiver) Close() error {
	(*pipe)(r).closeReading()
	return nil
}

// Read implements transport.Receiver.
func (r *receiver) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	piece, err := (*pipe)(r).next(len(b))
	if err != nil {
		return 0, err
	}
	n := copy(b, piece)
	(*pipe)(r).done(n)
	return n, nil
}

// ReadFunc implements transport.Receiver.
func (r *receiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	read := 0
	for read < n {
		piece, err := (*pipe)(r).next(n - read)
		if err == io.EOF {
			return read, io.ErrUnexpectedEOF
		}
		if err != nil {
			return read, err
		}
		r.show(piece, view)
		read += len(piece)
	}
	return read, nil
}

// show calls view with a piece and gives the piece back even if view panics,
// for the sender would wait for it forever.
func (r *receiver) show(piece []byte, view func(p []byte)) {
	defer (*pipe)(r).done(len(piece))
	view(piece)
}

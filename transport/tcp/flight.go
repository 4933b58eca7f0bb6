package tcp

import (
	"crypto/tls"
	"time"
)

// A flight is a socket during its handshake. It collects writes and sends them before it
// reads, so that all messages up to the next one of the peer take one packet and wake
// the peer once. One goroutine may use it until end, and any number afterwards.
type flight struct {
	socket
	unsent []byte
	ended  bool
	limit  time.Duration // from the last flight that this side has sent; 0: that of the socket
	over   func() bool   // the handshake was abandoned; may be nil
}

// newFlight returns a flight that begins with the given bytes.
func newFlight(sock socket, begin string) *flight {
	return &flight{socket: sock, unsent: []byte(begin)}
}

func (f *flight) Write(p []byte) (int, error) {
	if f.ended {
		return f.socket.Write(p)
	}
	f.unsent = append(f.unsent, p...)
	return len(p), nil
}

func (f *flight) Read(p []byte) (int, error) {
	if err := f.flush(); err != nil {
		return 0, err
	}
	return f.socket.Read(p)
}

func (f *flight) flush() error {
	if len(f.unsent) == 0 {
		return nil
	}
	_, err := f.socket.Write(f.unsent)
	f.unsent = nil
	if err == nil && f.limit > 0 {
		f.extend()
	}
	return err
}

// extend sets the deadline of the socket after progress: this side has got a flight of the peer and answered it. So the limit does not
// count the handshake as a whole, which takes long on hosts without a free processor. A handshake has few flights.
func (f *flight) extend() {
	f.SetDeadline(time.Now().Add(f.limit))
	if f.over != nil && f.over() { // It may have set the deadline just before.
		f.SetDeadline(past())
	}
}

// end sends what is left. Later writes are sent at once.
func (f *flight) end() error {
	f.ended = true
	return f.flush()
}

// handshake makes the handshake of a TLS session over f. If it fails, the alert is sent.
func (f *flight) handshake(c *tls.Conn) error {
	err := c.Handshake()
	if err != nil {
		_ = f.flush() // the peer gets the reason if it can
	}
	return err
}

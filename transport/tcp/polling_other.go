//go:build !linux

package tcp

import "time"

// A polling would let somebody look for bytes without waiting.
type polling struct{ r *receiver }

func (k *polling) init(r *receiver) { k.r = r }

// limit sets the deadline of the socket.
func (k *polling) limit(t time.Time) { k.r.ch.SetReadDeadline(t) } // fails only if the pipe has ended

func (*polling) rest() {}

func (*receiver) note() {}

// decrypt reads at least one byte from the tls.Conn.
func (r *receiver) decrypt(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.ch.tls.Read(p)
	}
	return n, err
}

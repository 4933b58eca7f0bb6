// Package wire encodes and decodes the messages of the protocol: frames between
// nodes, remote calls, and the joining messages between nodes and seeds.
// docs/wire.md describes them byte by byte.
//
// Integers are big-endian. A decoder never trusts a length before it has
// checked it, never panics, and accepts exactly what an encoder writes.
package wire

import (
	"encoding/binary"
	"errors"
)

// Version is the version of the protocol. Both sides of a conn must have the
// same.
const Version = 2

var (
	errShort    = errors.New("wire: truncated")
	errTrailing = errors.New("wire: trailing bytes")
	errPadding  = errors.New("wire: padding that is not zero")
	errTooLong  = errors.New("wire: field too long")
)

// A decoder takes the fields of a message from its front. After the first
// error all fields are zero, so that a message is checked once, at its end.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, or nil and keeps an error.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || len(d.b) < n {
		if d.err == nil {
			d.err = errShort
		}
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// bytes takes a field of at most limit bytes behind its length (16 bits). The
// result aliases the message.
func (d *decoder) bytes(limit int) []byte {
	n := int(d.u16())
	if n > limit && d.err == nil {
		d.err = errTooLong
	}
	return d.take(n)
}

// zeros takes so many bytes that must be 0.
func (d *decoder) zeros(n int) {
	for _, b := range d.take(n) {
		if b != 0 && d.err == nil {
			d.err = errPadding
		}
	}
}

// finish returns the first error, and an error if bytes are left.
func (d *decoder) finish() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errTrailing
	}
	return d.err
}

// appendBytes is the counterpart of decoder.bytes. Callers keep p below 64 KiB.
func appendBytes(b, p []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
	return append(b, p...)
}

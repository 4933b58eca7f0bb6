package wire

import "fmt"

// PreambleSize is the length of a Preamble.
const PreambleSize = 8

// A Preamble is the first thing on every pipe between nodes. It says which
// lane the pipe is.
type Preamble struct {
	Lane Lane
}

var preambleMagic = [6]byte{'n', 'e', 'x', 'a', 'r', Version}

// Append adds the encoded preamble to b.
func (p Preamble) Append(b []byte) []byte {
	b = append(b, preambleMagic[:]...)
	return append(b, uint8(p.Lane), 0)
}

// ParsePreamble decodes a preamble.
func ParsePreamble(b []byte) (p Preamble, err error) {
	d := decoder{b: b}
	magic := d.take(len(preambleMagic))
	p.Lane = Lane(d.u8())
	zero := d.u8()
	switch err := d.finish(); {
	case err != nil:
		return Preamble{}, err
	case [6]byte(magic) != preambleMagic:
		return Preamble{}, fmt.Errorf("wire: not a nexar pipe of version %d: it begins with %q", Version, magic)
	case p.Lane >= Lanes || zero != 0:
		return Preamble{}, fmt.Errorf("wire: unknown lane %d", p.Lane)
	}
	return p, nil
}

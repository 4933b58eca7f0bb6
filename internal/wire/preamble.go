package wire

import "fmt"

// PreambleSize is the length of a Preamble.
const PreambleSize = 10

// BulkPipesMax is the largest number of pipes that a bulk lane has.
const BulkPipesMax = 8

// A Preamble is the first thing on every pipe between nodes. It says which
// lane the pipe is, or which part of the bulk lane.
type Preamble struct {
	Lane Lane
	// Apart says, on the control lane, that the data and bulk lanes of both
	// sides run over a second connection, which the side that says so has made.
	Apart bool
	// Index is the number of a pipe of the bulk lane, from 0, and Others is
	// how many pipes the lane has besides this one.
	Index, Others uint8
}

var preambleMagic = [6]byte{'n', 'e', 'x', 'a', 'r', Version}

// Append adds the encoded preamble to b.
func (p Preamble) Append(b []byte) []byte {
	b = append(b, preambleMagic[:]...)
	return append(b, uint8(p.Lane), bit(p.Apart), p.Index, p.Others)
}

// ParsePreamble decodes a preamble.
func ParsePreamble(b []byte) (Preamble, error) {
	d := decoder{b: b}
	magic := d.take(len(preambleMagic))
	p := Preamble{Lane: Lane(d.u8())}
	apart := d.u8()
	p.Apart, p.Index, p.Others = apart == 1, d.u8(), d.u8()
	if err := d.finish(); err != nil {
		return Preamble{}, err
	}
	if [6]byte(magic) != preambleMagic {
		return Preamble{}, fmt.Errorf("wire: not a nexar pipe of version %d: it begins with %q", Version, magic)
	}
	if err := p.check(apart); err != nil {
		return Preamble{}, err
	}
	return p, nil
}

// check finds values that are not valid for the lane.
func (p Preamble) check(apart uint8) error {
	switch {
	case p.Lane >= Lanes:
		return fmt.Errorf("wire: unknown lane %d", p.Lane)
	case apart > 1, p.Lane != Control && apart != 0, p.Lane != Bulk && p.Index|p.Others != 0:
		return fmt.Errorf("wire: the preamble of the %v lane says what it must not", p.Lane)
	case p.Others >= BulkPipesMax || p.Index > p.Others:
		return fmt.Errorf("wire: pipe %d of a bulk lane of %d pipes", p.Index, int(p.Others)+1)
	}
	return nil
}

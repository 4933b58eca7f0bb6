package wire

import "fmt"

// PreambleSize is the length of a Preamble in bytes.
const PreambleSize = 10

// BulkPipesMax is the maximum number of pipes of a bulk lane.
const BulkPipesMax = 8

// A Preamble starts every pipe between nodes. It contains the lane of the pipe.
type Preamble struct {
	Lane Lane
	// Flags is a set of flags, which only the control lane has.
	Flags PreambleFlags
	// Index is the number of a pipe in the bulk lane, from 0, and Others is
	// the number of other pipes of the lane.
	Index, Others uint8
}

// PreambleFlags are the flags of a [Preamble].
type PreambleFlags uint8

const (
	// PreambleApart says that the data and bulk lanes of both sides use a second connection, which the
	// sender has made.
	PreambleApart PreambleFlags = 1 << iota
	// PreambleResumes says that a [Resume] follows.
	PreambleResumes

	preambleFlags = PreambleApart | PreambleResumes
)

// Has reports whether the set contains a flag.
func (f PreambleFlags) Has(flag PreambleFlags) bool { return f&flag != 0 }

const preambleMagic = "nexar" + string(rune(Version))

func (p *Preamble) fields(c *codec) {
	c.u8((*uint8)(&p.Lane))
	c.u8((*uint8)(&p.Flags))
	c.u8(&p.Index)
	c.u8(&p.Others)
}

// Append appends p to b.
func (p Preamble) Append(b []byte) []byte {
	c := encoder(append(b, preambleMagic...))
	p.fields(&c)
	return c.b
}

// ParsePreamble decodes a Preamble.
func ParsePreamble(b []byte) (p Preamble, err error) {
	c := codec{decoder: decoder{b: b}}
	if magic := c.take(len(preambleMagic)); c.err == nil && string(magic) != preambleMagic {
		return p, fmt.Errorf("wire: not a nexar pipe of version %d: it begins with %q", Version, magic)
	}
	p.fields(&c)
	switch err := c.finish(); {
	case err != nil:
		return Preamble{}, fmt.Errorf("preamble: %w", err)
	case p.Lane > Relay:
		return Preamble{}, fmt.Errorf("wire: unknown lane %d", p.Lane)
	case p.Lane != Control && p.Flags != 0, p.Lane != Bulk && p.Index|p.Others != 0:
		return Preamble{}, fmt.Errorf("wire: preamble of the %v lane has fields of another lane", p.Lane)
	case p.Flags&^preambleFlags != 0:
		return Preamble{}, fmt.Errorf("preamble: unknown flags %#x: %w", p.Flags, errValue)
	case p.Others >= BulkPipesMax || p.Index > p.Others:
		return Preamble{}, fmt.Errorf("wire: pipe %d of a bulk lane of %d pipes", p.Index, int(p.Others)+1)
	}
	return p, nil
}

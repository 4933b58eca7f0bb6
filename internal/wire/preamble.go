package wire

import "fmt"

// PreambleSize is the length of a Preamble in bytes.
const PreambleSize = 10

// BulkPipesMax is the maximum number of pipes of a bulk lane.
const BulkPipesMax = 8

// A Preamble starts every pipe between nodes. It contains the lane of the pipe.
type Preamble struct {
	Lane Lane
	// Apart says, on the control lane, that the data and bulk lanes of both
	// sides use a second connection, which the sender has made.
	Apart bool
	// Resumes says, on the control lane, that a [Resume] follows: the link has had a connection before.
	Resumes bool
	// Index is the number of a pipe in the bulk lane, from 0, and Others is
	// the number of other pipes of the lane.
	Index, Others uint8
}

const (
	preambleApart = 1 << iota
	preambleResumes
)

const preambleMagic = "nexar" + string(rune(Version))

func (p *Preamble) fields(c *codec) {
	c.u8((*uint8)(&p.Lane))
	flags := uint8(0)
	if p.Apart {
		flags |= preambleApart
	}
	if p.Resumes {
		flags |= preambleResumes
	}
	c.u8(&flags)
	if flags > preambleApart|preambleResumes {
		c.fail(errValue)
	}
	p.Apart, p.Resumes = flags&preambleApart != 0, flags&preambleResumes != 0
	c.u8(&p.Index)
	c.u8(&p.Others)
}

// Append appends p to b.
func (p Preamble) Append(b []byte) []byte {
	c := codec{encoding: true, decoder: decoder{b: append(b, preambleMagic...)}}
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
	case p.Lane >= Lanes:
		return Preamble{}, fmt.Errorf("wire: unknown lane %d", p.Lane)
	case p.Lane != Control && (p.Apart || p.Resumes), p.Lane != Bulk && p.Index|p.Others != 0:
		return Preamble{}, fmt.Errorf("wire: preamble of the %v lane has fields of another lane", p.Lane)
	case p.Others >= BulkPipesMax || p.Index > p.Others:
		return Preamble{}, fmt.Errorf("wire: pipe %d of a bulk lane of %d pipes", p.Index, int(p.Others)+1)
	}
	return p, nil
}

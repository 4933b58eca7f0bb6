package transporttest

import (
	"bytes"
	"math/rand/v2"
)

// patternLength is a prime, so that bytes that are displaced by a multiple of a buffer's
// length differ from the expected ones.
const patternLength = 1<<20 - 3

// A pattern is the table of bytes that all streams repeat, from different positions on.
type pattern []byte

func newPattern() pattern {
	d := make(pattern, patternLength)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range d {
		d[i] = byte(rng.Uint32())
	}
	return d
}

// stream returns the i-th stream.
func (d pattern) stream(i int) stream { return stream{d, i * 7919 % patternLength} }

// A stream is an infinite sequence of bytes.
type stream struct {
	table pattern
	start int
}

// fill sets p to the bytes of the stream from offset off on.
func (d stream) fill(p []byte, off int) {
	at := (d.start + off) % patternLength
	for len(p) > 0 {
		n := copy(p, d.table[at:])
		p, at = p[n:], 0
	}
}

// bytes returns n bytes of the stream from offset off on.
func (d stream) bytes(off, n int) []byte {
	p := make([]byte, n)
	d.fill(p, off)
	return p
}

// diff returns the index of the first byte of p that differs from the stream from offset
// off on, or -1.
func (d stream) diff(p []byte, off int) int {
	at := (d.start + off) % patternLength
	for done := 0; done < len(p); {
		want := d.table[at:]
		n := min(len(want), len(p)-done)
		if got := p[done : done+n]; !bytes.Equal(got, want[:n]) {
			for i := range got {
				if got[i] != want[i] {
					return done + i
				}
			}
		}
		done, at = done+n, 0
	}
	return -1
}

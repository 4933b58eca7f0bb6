package link

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// cut divides b into regions at random places, some of them empty.
func cut(rng *rand.Rand, b []byte) (first []byte, more [][]byte) {
	n := rng.IntN(len(b) + 1)
	first, b = b[:n:n], b[n:]
	for len(b) > 0 || rng.IntN(2) == 0 {
		n := rng.IntN(len(b)/2 + 2)
		n = min(n, len(b))
		more, b = append(more, b[:n:n]), b[n:]
	}
	return first, more
}

// TestCursor: pieces of any length add up to the whole payload.
func TestCursor(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		whole := make([]byte, rng.IntN(200))
		for i := range whole {
			whole[i] = byte(rng.Int())
		}
		first, more := cut(rng, whole)
		if got := size(first, more); got != len(whole) {
			t.Fatalf("size %d of %d", got, len(whole))
		}
		var c cursor
		var got []byte
		for len(got) < len(whole) {
			most := 1 + rng.IntN(50)
			p := c.piece(first, more, most)
			if len(p) == 0 || len(p) > most {
				t.Fatalf("a piece of %d, of at most %d", len(p), most)
			}
			n := 1 + rng.IntN(len(p)) // possibly a part
			got = append(got, p[:n]...)
			c.advance(n)
		}
		if !bytes.Equal(got, whole) {
			t.Fatalf("%d regions: the pieces differ from the payload", 1+len(more))
		}
		if p := c.piece(first, more, 10); len(p) != 0 {
			t.Fatalf("%d bytes after the end", len(p))
		}
	}
}

// TestRegions: a payload of several regions arrives in a sink of several regions.
func TestRegions(t *testing.T) {
	a, b := pair(t, newHandler(), newHandler(), nil)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		data := make([]byte, 1+rng.IntN(3*wire.SegmentMax))
		for i := 0; i < len(data); i += 1 + rng.IntN(100) {
			data[i] = byte(rng.Int())
		}
		got := make([]byte, len(data))
		full := make(filled, 1)
		s := &Sink{Owner: full}
		s.Dst, s.More = cut(rng, got)
		tr := &Transfer{Grant: b.Grant(s), Owner: ignore{}}
		tr.Data, tr.More = cut(rng, data)
		a.Deliver(tr)
		select {
		case <-full:
		case <-time.After(time.Minute):
			t.Fatal("no transfer arrives")
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%d bytes from %d regions into %d: the payload differs", len(data), 1+len(tr.More), 1+len(s.More))
		}
	}
}

type filled chan *Sink

func (f filled) Filled(s *Sink) { f <- s }

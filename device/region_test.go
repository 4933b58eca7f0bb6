package device

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// A named device has a name and no methods.
type named struct {
	Device
	name string
}

func (n *named) Name() string { return n.name }

// A sized value is a Buffer and a Staging with a length, and no memory.
type sized struct {
	of Device
	n  int
}

func (s *sized) Device() Device                        { return s.of }
func (s *sized) Len() int                              { return s.n }
func (s *sized) Free() error                           { return nil }
func (s *sized) Bytes(context.Context) ([]byte, error) { return nil, nil }

func TestRegionRows(t *testing.T) {
	b := &sized{n: 100}
	for _, test := range []struct {
		r           Region
		total, rows int
		last        int // offset of the last row
	}{
		{Whole(b), 100, 1, 0},
		{Region{Offset: 7, Bytes: 3}, 3, 1, 7},
		{Region{Offset: 7, Bytes: 3, Rows: 1, Stride: 50}, 3, 1, 7},
		{Region{Offset: 7, Bytes: 3, Rows: 4, Stride: 20}, 12, 4, 67},
		{Region{Offset: 7, Bytes: 0, Rows: math.MaxInt, Stride: 20}, 0, 0, 7 - 20},
	} {
		if got := test.r.Total(); got != test.total {
			t.Errorf("%+v: total %d, want %d", test.r, got, test.total)
		}
		if got := test.r.RowCount(); got != test.rows {
			t.Errorf("%+v: %d rows, want %d", test.r, got, test.rows)
		}
		if got := test.r.RowAt(test.rows - 1); got != test.last {
			t.Errorf("%+v: the last row begins at %d, want %d", test.r, got, test.last)
		}
	}
}

// covers returns the offsets of all bytes of a region of a buffer of n bytes, or false if it is
// not inside or contains a byte twice.
func covers(r Region, n int) (set map[int]bool, ok bool) {
	set = make(map[int]bool)
	if r.Offset < 0 || r.Offset > n || r.Bytes < 0 || r.Rows < 0 {
		return nil, false
	}
	for row := range max(r.Rows, 1) {
		if start := r.Offset + row*r.Stride; r.Rows > 1 && (start < 0 || start > n) {
			return nil, false
		}
		for i := range r.Bytes {
			at := r.Offset + row*r.Stride + i
			if at < 0 || at >= n || set[at] {
				return nil, false
			}
			set[at] = true
		}
	}
	return set, true
}

// TestRegionsByCounting compares Check and Overlaps with an enumeration of all bytes.
func TestRegionsByCounting(t *testing.T) {
	d := &named{name: "d"}
	const size = 24
	b := &sized{of: d, n: size}
	rng := rand.New(rand.NewPCG(1, 2))
	number := func(least, most int) int { return least + rng.IntN(most-least+1) }
	region := func() Region {
		return Region{Buffer: b, Offset: number(-1, size+1), Bytes: number(-1, 8), Rows: number(-1, 5), Stride: number(0, 12)}
	}
	inside, overlaps := 0, 0
	for range 50_000 {
		r, other := region(), region()
		set, ok := covers(r, size)
		bytes, err := Check(d, r)
		if ok != (err == nil) || bytes != len(set) {
			t.Fatalf("%+v: Check gives %d, %v; counting gives %d, %v", r, bytes, err, len(set), ok)
		}
		others, also := covers(other, size)
		if !ok || !also {
			continue
		}
		inside++
		common := false
		for at := range set {
			common = common || others[at]
		}
		if common {
			overlaps++
		}
		if got := r.Overlaps(other); got != common {
			t.Fatalf("%+v and %+v: overlap %v, want %v", r, other, got, common)
		}
	}
	if inside < 1000 || overlaps < 1000 || overlaps > inside-1000 {
		t.Errorf("%d of %d pairs overlap, want at least 1000 that do and 1000 that do not", overlaps, inside)
	}
}

func TestRegionsOfTwoBuffersDoNotOverlap(t *testing.T) {
	if Whole(&sized{n: 10}).Overlaps(Whole(&sized{n: 10})) {
		t.Error("two buffers overlap")
	}
}

func TestCheck(t *testing.T) {
	d, other := &named{name: "d:0"}, &named{name: "d:1"}
	b, foreign := &sized{d, 100}, &sized{other, 100}
	long := &sized{d, math.MaxInt}
	for _, test := range []struct {
		what    string
		regions []Region
		bytes   int
		want    string // the error
	}{
		{"nothing", nil, 0, ""},
		{"two", []Region{{Buffer: b, Bytes: 10}, {Buffer: b, Offset: 50, Bytes: 5, Rows: 3, Stride: 5}}, 25, ""},
		{"no buffer", []Region{Whole(b), {}}, 0, "device d:0: region without a buffer"},
		{"foreign", []Region{Whole(b), Whole(foreign)}, 0, "device d:0: the buffer is of device d:1"},
		{"foreign and outside", []Region{{Buffer: foreign, Bytes: 101}}, 0, "is of device d:1"},
		{"outside", []Region{{Buffer: b, Offset: 99, Bytes: 2}}, 0, "device d:0: 2 bytes at offset 99 are not inside a buffer of 100 bytes"},
		{"rows outside", []Region{{Buffer: b, Offset: 9, Bytes: 2, Rows: 10, Stride: 10}}, 0, "10 rows of 2 bytes at offset 9 with stride 10 are not inside a buffer of 100 bytes"},
		{"rows that overlap", []Region{{Buffer: b, Bytes: 20, Rows: 2, Stride: 10}}, 0, "2 rows of 20 bytes at offset 0 with stride 10 of a buffer: rows overlap"},
		{"overflow of the rows", []Region{{Buffer: long, Bytes: 2, Rows: math.MaxInt, Stride: 2}}, 0, "are not inside"},
		{"maximum", []Region{Whole(long)}, math.MaxInt, ""},
		{"overflow of the total", []Region{Whole(long), {Buffer: b, Bytes: 1}}, 0, "invalid length of list of regions"},
	} {
		bytes, err := Check(d, test.regions...)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if bytes != test.bytes || test.want == "" && err != nil || !strings.Contains(text, test.want) {
			t.Errorf("%s: got %d, %q, want %d, %q", test.what, bytes, text, test.bytes, test.want)
		}
	}
}

func TestCheckStaging(t *testing.T) {
	d, other := &named{name: "d:0"}, &named{name: "d:1"}
	s := &sized{d, 100}
	for _, test := range []struct {
		what      string
		s         Staging
		at, bytes int
		want      string
	}{
		{"all", s, 0, 100, ""},
		{"the end", s, 100, 0, ""},
		{"none", nil, 0, 0, "device d:0: region without a buffer, or nil staging"},
		{"foreign", &sized{other, 100}, 0, 1, "device d:0: the staging is of device d:1"},
		{"too long", s, 1, 100, "device d:0: 100 bytes at offset 1 are not inside a staging of 100 bytes"},
		{"before", s, -1, 1, "1 bytes at offset -1 are not inside"},
		{"behind", s, math.MaxInt, 1, "are not inside"},
	} {
		err := CheckStaging(d, test.s, test.at, test.bytes)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.what, err, test.want)
		}
	}
}

func TestCheckPair(t *testing.T) {
	d := &named{name: "d"}
	a, b := &sized{d, 100}, &sized{d, 100}
	rows := func(b Buffer, offset, bytes, rows int) Region {
		return Region{Buffer: b, Offset: offset, Bytes: bytes, Rows: rows, Stride: 20}
	}
	for _, test := range []struct {
		what     string
		dst, src Region
		want     string
	}{
		{"equal", rows(a, 0, 5, 3), rows(b, 0, 5, 3), ""},
		{"one row", rows(a, 0, 5, 0), rows(b, 0, 5, 1), ""},
		{"empty rows", rows(a, 0, 0, 6), rows(a, 0, 0, 3), ""},
		{"side by side", rows(a, 0, 5, 3), rows(a, 5, 5, 3), ""},
		{"overlap", rows(a, 0, 5, 3), rows(a, 4, 5, 3), "device d: dst and src overlap"},
		{"rows", rows(a, 0, 5, 3), rows(b, 0, 5, 2), "device d: src has 2 rows, want 3"},
		{"bytes", rows(a, 0, 5, 3), rows(b, 0, 6, 3), "device d: row of src has 6 bytes, want 5"},
		{"outside", rows(a, 0, 5, 3), rows(b, 99, 5, 3), "are not inside"},
	} {
		err := CheckPair(d, test.dst, test.src)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.what, err, test.want)
		}
	}
	if err := CheckLength(d, "src", 3, 3); err != nil {
		t.Errorf("equal lengths: %v", err)
	}
	if err := CheckLength(d, "src", 3, 4); err == nil || err.Error() != "device d: src has 3 bytes, want 4" {
		t.Errorf("different lengths: %v", err)
	}
}

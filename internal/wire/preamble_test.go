package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestPreamble(t *testing.T) {
	lanes := make(map[Lane]bool)
	for _, test := range []struct {
		p      Preamble
		golden string
	}{
		{Preamble{Lane: Control}, "6e657861720e 00 00 00 00"},
		{Preamble{Lane: Control, Flags: PreambleApart}, "6e657861720e 00 01 00 00"},
		{Preamble{Lane: Data}, "6e657861720e 01 00 00 00"},
		{Preamble{Lane: Bulk}, "6e657861720e 02 00 00 00"},
		{Preamble{Lane: Control, Flags: PreambleResumes}, "6e657861720e 00 02 00 00"},
		{Preamble{Lane: Control, Flags: PreambleApart | PreambleResumes}, "6e657861720e 00 03 00 00"},
		{Preamble{Lane: Relay}, "6e657861720e 03 00 00 00"},
		{Preamble{Lane: Bulk, Index: 3, Others: 6}, "6e657861720e 02 00 03 06"},
		{Preamble{Lane: Bulk, Index: 7, Others: BulkPipesMax - 1}, "6e657861720e 02 00 07 07"},
	} {
		want := unhex(t, test.golden)
		lanes[test.p.Lane] = true
		got := test.p.Append(nil)
		if !bytes.Equal(got, want) || len(got) != PreambleSize {
			t.Errorf("%+v is written as %x, want %x", test.p, got, want)
		}
		if back, err := ParsePreamble(want); err != nil || back != test.p {
			t.Errorf("%x is read as %+v (%v), want %+v", want, back, err, test.p)
		}
		for n := range want {
			if _, err := ParsePreamble(want[:n]); !errors.Is(err, errShort) {
				t.Errorf("cut off after %d bytes: error %v, want %v", n, err, errShort)
			}
		}
		if _, err := ParsePreamble(append(want, 0)); !errors.Is(err, errTrailing) {
			t.Errorf("with a byte too many: error %v, want %v", err, errTrailing)
		}
	}
	if got, want := int(Relay)+1, len(lanes); got != want {
		t.Errorf("%d lanes, but %d are tested", got, want)
	}
}

// The error quotes bytes that are not a preamble, and those of another version.
func TestPreambleRefused(t *testing.T) {
	for b, want := range map[string]string{
		"GET / HTTP":                `"GET / "`,
		"nexar\x02\x00\x00\x00\x00": `"nexar\x02"`,
		"nexar\x0e\x04\x00\x00\x00": "unknown lane 4",
		"nexar\x0e\x03\x01\x00\x00": "relay lane has fields of another lane",
		"nexar\x0e\x00\x04\x00\x00": "unknown flags 0x4",
		"nexar\x0e\x01\x02\x00\x00": "data lane has fields of another lane",
		"nexar\x0e\x01\x01\x00\x00": "data lane has fields of another lane",
		"nexar\x0e\x02\x01\x00\x00": "bulk lane has fields of another lane",
		"nexar\x0e\x00\x00\x01\x00": "control lane has fields of another lane",
		"nexar\x0e\x01\x00\x00\x01": "data lane has fields of another lane",
		"nexar\x0e\x02\x00\x01\x00": "pipe 1 of a bulk lane of 1 pipes",
		"nexar\x0e\x02\x00\x00\x08": "pipe 0 of a bulk lane of 9 pipes",
	} {
		if p, err := ParsePreamble([]byte(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %v, error %v, want one with %s", b, p, err, want)
		}
	}
}

func FuzzPreamble(f *testing.F) {
	f.Add(Preamble{Lane: Bulk, Index: 1, Others: 2}.Append(nil))
	f.Add(Preamble{Lane: Control, Flags: PreambleApart}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePreamble(b)
		if err != nil {
			return
		}
		if got := p.Append(nil); !bytes.Equal(got, b) {
			t.Errorf("%v\nread from %x\nwritten as %x", p, b, got)
		}
	})
}

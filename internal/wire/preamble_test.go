package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestPreamble(t *testing.T) {
	for lane, golden := range []string{"6e6578617201 00 00", "6e6578617201 01 00", "6e6578617201 02 00"} {
		p, want := Preamble{Lane: Lane(lane)}, unhex(t, golden)
		got := p.Append(nil)
		if !bytes.Equal(got, want) || len(got) != PreambleSize {
			t.Errorf("%v is written as %x, want %x", p, got, want)
		}
		if back, err := ParsePreamble(want); err != nil || back != p {
			t.Errorf("%x is read as %v (%v), want %v", want, back, err, p)
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
	if got, want := int(Lanes), 3; got != want {
		t.Errorf("%d lanes, but %d are tested", got, want)
	}
}

// Someone else's bytes are named, and so is another version.
func TestPreambleRefused(t *testing.T) {
	for b, want := range map[string]string{
		"GET / HT":          `"GET / "`,
		"nexar\x02\x00\x00": `"nexar\x02"`,
		"nexar\x01\x03\x00": "unknown lane 3",
		"nexar\x01\x00\x01": "unknown lane",
	} {
		if p, err := ParsePreamble([]byte(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is read as %v, error %v, want one with %s", b, p, err, want)
		}
	}
}

func FuzzPreamble(f *testing.F) {
	f.Add(Preamble{Lane: Bulk}.Append(nil))
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

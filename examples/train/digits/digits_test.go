//race:none it starts no goroutine

package digits

import (
	"bytes"
	"compress/gzip"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	set, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 1797 || len(set.Images) != 1797*Pixels {
		t.Fatalf("got %d digits with %d pixels, want 1797 with %d", set.Len(), len(set.Images), 1797*Pixels)
	}
	if got, want := set.Labels[:12], []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("first digits %v, want %v", got, want)
	}
	if got, want := set.Images[:8], []float32{0, 0, 5. / 16, 13. / 16, 9. / 16, 1. / 16, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("first row %v, want %v", got, want)
	}
	if low, high := slices.Min(set.Images), slices.Max(set.Images); low != 0 || high != 1 {
		t.Errorf("pixels are from %v to %v, want from 0 to 1", low, high)
	}
}

// zip returns lines as a gzipped file for Read.
func zip(t *testing.T, lines ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadMalformed(t *testing.T) {
	row := strings.Repeat("3,", Pixels)
	whole := zip(t, row+"1", row+"2")
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"empty":            {nil, "EOF"},
		"no digits":        {zip(t), "the file is empty"},
		"not zipped":       {[]byte("0,0,5,13,9,1,0,0"), "gzip"},
		"cut off":          {whole[:len(whole)-9], "unexpected EOF"},
		"a pixel missing":  {zip(t, row+"1", row[2:]+"1"), "line 2"},
		"a pixel too dark": {zip(t, row+"1", row[2:]+"17,1"), `line 2: pixel 63 is "17"`},
		"a pixel negative": {zip(t, "-1,"+row[2:]+"1"), `line 1: pixel 0 is "-1"`},
		"no such digit":    {zip(t, row+"10"), `line 1: the digit is "10"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(test.file))
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want ErrFormat with %q", err, test.want)
			}
		})
	}
}

// numbered returns a set of n images. All pixels of image i are i.
func numbered(n int) *Set {
	s := new(Set)
	for i := range n {
		s.Images = append(s.Images, slices.Repeat([]float32{float32(i)}, Pixels)...)
		s.Labels = append(s.Labels, uint8(i))
	}
	return s
}

// check checks that each image has its label.
func check(t *testing.T, s *Set) {
	t.Helper()
	if len(s.Images) != s.Len()*Pixels {
		t.Fatalf("%d labels and %d pixels", s.Len(), len(s.Images))
	}
	for i, label := range s.Labels {
		if image := s.Images[i*Pixels:][:Pixels]; slices.Min(image) != float32(label) || slices.Max(image) != float32(label) {
			t.Errorf("image %d has label %d and pixels %v", i, label, image)
		}
	}
}

func TestSplit(t *testing.T) {
	s := numbered(50)
	train, test := s.Split(7, 0.3)
	check(t, train)
	check(t, test)
	if train.Len() != 35 || test.Len() != 15 {
		t.Errorf("got %d and %d images, want 35 and 15", train.Len(), test.Len())
	}
	if all := slices.Sorted(slices.Values(slices.Concat(train.Labels, test.Labels))); !slices.Equal(all, s.Labels) {
		t.Errorf("union %v, want each image once", all)
	}
	if again, _ := s.Split(7, 0.3); !slices.Equal(again.Labels, train.Labels) {
		t.Errorf("same seed, different splits: %v and %v", train.Labels, again.Labels)
	}
	if other, _ := s.Split(8, 0.3); slices.Equal(other.Labels, train.Labels) {
		t.Errorf("another seed, same split: %v", other.Labels)
	}
}

func TestSlice(t *testing.T) {
	part := numbered(10).Slice(3, 7)
	check(t, part)
	if want := []uint8{3, 4, 5, 6}; !slices.Equal(part.Labels, want) {
		t.Errorf("got %v, want %v", part.Labels, want)
	}
	if empty := part.Slice(2, 2); empty.Len() != 0 || len(empty.Images) != 0 {
		t.Errorf("got %d images, want 0", empty.Len())
	}
}

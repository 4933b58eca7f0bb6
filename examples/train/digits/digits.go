// Package digits is a set of 1,797 images of handwritten digits: "Optical
// Recognition of Handwritten Digits" by Alpaydin and Kaynak, of the UCI Machine
// Learning Repository; testdata/README.md says more. Most programs do this:
//
//	set, err := digits.Load()
//	train, test := set.Split(seed, 0.2)
//
// The same seed splits the set in the same way on every machine. An error of
// Read names the line that is malformed. A Set may be read by several
// goroutines at once.
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
)

const (
	// Pixels is how many there are of an image: 8 × 8, row by row.
	Pixels = 64
	// Classes is how many digits there are.
	Classes = 10

	// darkest is the value of a pixel that is dark altogether.
	darkest = 16
)

//go:embed testdata/digits.csv.gz
var packed []byte

// ErrFormat says that something is not a set of digits.
var ErrFormat = errors.New("not a set of digits")

// A Set is images, and which digits they are.
type Set struct {
	Images []float32 // Pixels of each, from 0 for white to 1 for black
	Labels []uint8   // one of each, from 0 to 9
}

// Load returns the set that comes with this package.
func Load() (*Set, error) { return Read(bytes.NewReader(packed)) }

// Read reads a set from a gzipped CSV file. Each line has the pixels of an
// image, from 0 to 16, and then the digit. Any other form is an ErrFormat.
func Read(r io.Reader) (*Set, error) {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	lines := csv.NewReader(unzipped)
	lines.FieldsPerRecord = Pixels + 1
	lines.ReuseRecord = true
	set := new(Set)
	for {
		fields, err := lines.Read()
		switch {
		case err == io.EOF && set.Len() == 0:
			return nil, fmt.Errorf("%w: it is empty", ErrFormat)
		case err == io.EOF:
			return set, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if err := set.add(fields); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrFormat, set.Len()+1, err)
		}
	}
}

// add adds the image and the digit of a line.
func (s *Set) add(fields []string) error {
	image := make([]float32, Pixels)
	for i := range image {
		v, err := strconv.ParseUint(fields[i], 10, 8)
		if err != nil || v > darkest {
			return fmt.Errorf("pixel %d is %q, not a number from 0 to %d", i, fields[i], darkest)
		}
		image[i] = float32(v) / darkest
	}
	label, err := strconv.ParseUint(fields[Pixels], 10, 8)
	if err != nil || label >= Classes {
		return fmt.Errorf("the digit is %q", fields[Pixels])
	}
	s.Images = append(s.Images, image...)
	s.Labels = append(s.Labels, uint8(label))
	return nil
}

// Len is how many images there are.
func (s *Set) Len() int { return len(s.Labels) }

// Slice is the images from i to j, without j. It shares memory with s.
func (s *Set) Slice(i, j int) *Set {
	return &Set{Images: s.Images[i*Pixels : j*Pixels : j*Pixels], Labels: s.Labels[i:j:j]}
}

// Pick is a copy of the images of the given numbers, in that order.
func (s *Set) Pick(numbers []int) *Set {
	picked := new(Set)
	for _, i := range numbers {
		picked.Images = append(picked.Images, s.Images[i*Pixels:(i+1)*Pixels]...)
		picked.Labels = append(picked.Labels, s.Labels[i])
	}
	return picked
}

// Split divides the set at random in two: one to learn from, and one that is
// held back to test with, which is the given share of the whole, from 0 to 1,
// rounded.
func (s *Set) Split(seed uint64, share float64) (train, test *Set) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(s.Len())
	held := int(math.Round(share * float64(s.Len())))
	return s.Pick(order[held:]), s.Pick(order[:held])
}

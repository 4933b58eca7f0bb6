// Package digits provides 1,797 images of handwritten digits: "Optical Recognition of Handwritten
// Digits" by Alpaydin and Kaynak, of the UCI Machine Learning Repository (see testdata/README.md).
// Most programs do this:
//
//	set, err := digits.Load()
//	train, test := set.Split(seed, 0.2)
//
// A seed splits the set in the same way on all machines. Errors of Read name the malformed line. A
// Set may be read concurrently.
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
	// Pixels is the number of pixels of an image: 8 × 8, row by row.
	Pixels = 64
	// Classes is the number of digits.
	Classes = 10

	// darkest is the value of a black pixel.
	darkest = 16
)

//go:embed testdata/digits.csv.gz
var packed []byte

// ErrFormat is the error of malformed data.
var ErrFormat = errors.New("not a set of digits")

// A Set has images and their digits.
type Set struct {
	Images []float32 // Pixels of each, from 0 for white to 1 for black
	Labels []uint8   // one per image, from 0 to 9
}

// Load returns the built-in set.
func Load() (*Set, error) { return Read(bytes.NewReader(packed)) }

// Read reads a set from a gzipped CSV file. Each line has the pixels of an image, from 0 to 16, and
// its digit. Other data is an ErrFormat.
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
			return nil, fmt.Errorf("%w: the file is empty", ErrFormat)
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

// add appends the image and the digit of a line.
func (s *Set) add(fields []string) error {
	image := make([]float32, Pixels)
	for i := range image {
		v, err := strconv.ParseUint(fields[i], 10, 8)
		if err != nil || v > darkest {
			return fmt.Errorf("pixel %d is %q, want a number from 0 to %d", i, fields[i], darkest)
		}
		image[i] = float32(v) / darkest
	}
	label, err := strconv.ParseUint(fields[Pixels], 10, 8)
	if err != nil || label >= Classes {
		return fmt.Errorf("the digit is %q, want 0 to 9", fields[Pixels])
	}
	s.Images = append(s.Images, image...)
	s.Labels = append(s.Labels, uint8(label))
	return nil
}

// Len returns the number of images.
func (s *Set) Len() int { return len(s.Labels) }

// Slice returns images i to j-1. The result shares memory with s.
func (s *Set) Slice(i, j int) *Set {
	return &Set{Images: s.Images[i*Pixels : j*Pixels : j*Pixels], Labels: s.Labels[i:j:j]}
}

// Pick returns a copy of the images with the given indices, in that order.
func (s *Set) Pick(numbers []int) *Set {
	picked := new(Set)
	for _, i := range numbers {
		picked.Images = append(picked.Images, s.Images[i*Pixels:(i+1)*Pixels]...)
		picked.Labels = append(picked.Labels, s.Labels[i])
	}
	return picked
}

// Split divides the set at random into a training set and a test set. The test set has a fraction of
// the images, from 0 to 1, rounded.
func (s *Set) Split(seed uint64, share float64) (train, test *Set) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(s.Len())
	held := int(math.Round(share * float64(s.Len())))
	return s.Pick(order[held:]), s.Pick(order[:held])
}

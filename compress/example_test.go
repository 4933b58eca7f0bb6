package compress_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/nexar-go/nexar/compress"
)

// The steps of a compressed all-reduce of two ranks: each compresses its vector, and each adds
// the encodings of all ranks in their order.
func Example() {
	gradients := [][]float32{
		{0.5, 0.25, -4, 0.125},
		{0.5, 0.25, 1, 0.125},
	}
	var encodings [][]byte
	for _, gradient := range gradients {
		c := &compress.ErrorFeedback{Compressor: &compress.TopK{K: 2}}
		encoded, err := c.Append(nil, gradient)
		if err != nil {
			log.Fatal(err)
		}
		encodings = append(encodings, encoded)
	}

	sum := make([]float32, 4)
	for _, encoded := range encodings {
		if err := new(compress.TopK).AddTo(sum, encoded); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(sum)
	// Output: [1 0 -3 0]
}

// A small element accumulates in the residual until it is sent.
func ExampleErrorFeedback() {
	c := &compress.ErrorFeedback{Compressor: &compress.TopK{K: 1}}
	var encoded []byte
	for range 3 {
		var err error
		if encoded, err = c.Append(encoded[:0], []float32{5, 2}); err != nil {
			log.Fatal(err)
		}
		sent := make([]float32, 2)
		if err := c.AddTo(sent, encoded); err != nil {
			log.Fatal(err)
		}
		fmt.Println(sent)
	}
	// Output:
	// [5 0]
	// [5 0]
	// [0 6]
}

// Ranks with the same seed choose the same elements.
func ExampleRandomK() {
	sum := make([]float32, 6)
	for rank := range 2 {
		c := &compress.RandomK{Seed: 42, K: 2}
		gradient := []float32{1, 2, 3, 4, 5, 6}
		for i := range gradient {
			gradient[i] += float32(10 * rank)
		}
		encoded, err := c.Append(nil, gradient)
		if err != nil {
			log.Fatal(err)
		}
		if err := c.AddTo(sum, encoded); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(sum)
	// Output: [0 0 0 18 0 22]
}

// The error of an element is at most 1/251 of the largest magnitude in its block.
func ExampleQuantize8() {
	c := compress.Quantize8{}
	encoded, err := c.Append(nil, []float32{12.6, -6.34, 0.04})
	if err != nil {
		log.Fatal(err)
	}
	dst := make([]float32, 3)
	if err := c.AddTo(dst, encoded); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f\n", dst)
	// Output: [12.60 -6.30 0.00]
}

// An encoding by another compressor is an error and leaves dst unchanged.
func ExampleFormatError() {
	encoded, err := compress.Cast16{}.Append(nil, []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	dst := []float32{7, 8, 9}
	err = compress.Quantize8{}.AddTo(dst, encoded)
	fmt.Println(err)
	fmt.Println(errors.Is(err, compress.ErrFormat), dst)
	// Output:
	// compress: malformed encoding for quantize-8: byte 1: encoded by cast-16
	// true [7 8 9]
}

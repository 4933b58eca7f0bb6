package compress

// A Compressor encodes float32 vectors and adds encoded vectors to others. A compressed
// all-reduce calls Append once, and then AddTo once for each rank, with the encodings in the
// order of ranks. A compressed all-reduce of float64 elements rounds them to float32 for a Compressor, unless it
// is a [TypedCompressor] that allows float64; such a compressor may take further types and operations.
//
// A Compressor may implement [fmt.Stringer] to name the kind of its encodings. Compressors
// with the same text, in the first 24 bytes, can decode each other's encodings, and those with
// different texts cannot. A compressed all-reduce compares the texts of all ranks and reports
// the ranks that differ. The compressors of this package have one text per type, independent
// of their fields; an ErrorFeedback has that of its Compressor.
type Compressor interface {
	// Append appends the encoding of src to dst and returns the extended slice. src may be
	// empty, and is neither changed nor kept. With an error Append returns dst unchanged.
	Append(dst []byte, src []float32) ([]byte, error)

	// AddTo adds an encoded vector, of the length of dst, to dst: dst[i] += decoded[i].
	//
	// The result depends on dst and encoded alone, so that it is the same on all ranks, and
	// not on earlier calls or the machine. encoded comes from another rank, and does not
	// overlap dst. AddTo checks all of it before it changes dst; an invalid encoding is an
	// ErrFormat and leaves dst unchanged. AddTo does not keep encoded.
	AddTo(dst []float32, encoded []byte) error

	// MaxBytes returns the maximum number of bytes that Append adds for n elements.
	MaxBytes(n int) int
}

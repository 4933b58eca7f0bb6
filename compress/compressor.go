package compress

// A Compressor makes bytes of vectors of float32, and adds what the bytes stand
// for to vectors. Its methods are called by a compressed all-reduce, in this
// order on every rank: Append once, then AddTo once for each rank, with the
// encodings of all ranks in the order of ranks.
//
// A Compressor that is a fmt.Stringer says by that of which kind its encodings
// are: Compressors whose texts are the same, in their first 24 bytes, read what
// each other have written, and those whose texts differ do not. A compressed
// all-reduce compares the texts of all ranks, and says which differ. Those of this
// package are of a kind whatever their fields are, and an ErrorFeedback is of that
// of its Compressor.
//
// Implementations outside this package hold to the following.
type Compressor interface {
	// Append appends the encoding of src to dst and returns the extended
	// slice, as append does. src may be of any length, 0 included, and is
	// neither changed nor kept. With an error dst comes back as it was.
	Append(dst []byte, src []float32) ([]byte, error)

	// AddTo adds the vector that encoded stands for to dst, which is of the
	// same length as the vector that was encoded: dst[i] += decoded[i].
	//
	// The result depends on dst and encoded alone, not on what the Compressor
	// has done before or on the kind of machine: by that all ranks get the same
	// bits. encoded comes from another rank. It is checked as a whole before
	// dst is touched; what cannot have come from Append is an error that is an
	// ErrFormat, and leaves dst as it was. AddTo does not keep encoded, which
	// shares no memory with dst.
	AddTo(dst []float32, encoded []byte) error

	// MaxBytes is the most bytes that Append adds for n elements.
	MaxBytes(n int) int
}

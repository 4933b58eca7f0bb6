// Package compress encodes floating-point vectors in fewer bytes, with loss, for all-reduces
// over networks that are slower than the computation between them.
//
// Most programs make one [ErrorFeedback] per tensor and rank, and pass it to every compressed
// all-reduce of that tensor:
//
//	c := &compress.ErrorFeedback{Compressor: &compress.TopK{Ratio: 0.01}}
//
// A compressed all-reduce encodes the vector of each rank with Append, gathers the encodings
// of all ranks on every rank, and adds them with AddTo, in the order of ranks. The compressors
// are
//
//   - [TopK], the largest elements: 75 times shorter by default; needs ErrorFeedback to
//     converge;
//   - [RandomK], random elements, the same on all ranks: 100 times shorter by default; needs
//     ErrorFeedback or Unbiased;
//   - [Quantize8], 8 bits for each element: nearly 4 times shorter;
//   - [Cast16], 16 bits for each element: 2 times shorter;
//   - [None], the vector unchanged, as a baseline.
//
// All of them are [TypedCompressor] values that take sums of float64 vectors without rounding
// them to float32 first. The ratios above are for float32. None takes all types and operations.
//
// # Guarantees
//
// The result of AddTo depends on dst and the encoding alone, and neither on the configuration
// and history of the compressor nor on the machine. A sum that is NaN is always the positive
// quiet NaN without payload. Ranks that add the same encodings in the same order to the same
// vector therefore have the same bits. Equal vectors have equal encodings on all machines.
//
// Each type documents its treatment of infinities and NaNs. After the first calls neither
// Append nor AddTo allocates if dst has room for MaxBytes more. AddTo takes time proportional
// to the length of the encoding; for TopK and RandomK that is less than the length of the
// vector.
//
// # Errors
//
// AddTo reads untrusted bytes. If they are not an encoding by a compressor of the same kind,
// of a vector with the type and length of dst, it returns a [*FormatError], which is an
// [ErrFormat], and dst is unchanged. It allocates nothing in proportion to a received length.
// Append fails with [ErrConfig] if a field of the compressor is invalid, and an ErrorFeedback
// fails with [ErrLength] or [ErrType] if the length or type of the vector changes. It then
// returns dst unchanged.
//
// # Concurrency
//
// AddTo may be called at any time, also concurrently with itself on other vectors and with
// Append. None, Quantize8 and Cast16 have no state. A TopK has buffers: it encodes one vector
// at a time, of any tensor. A RandomK and an ErrorFeedback have state: each is for one tensor
// and one goroutine.
package compress

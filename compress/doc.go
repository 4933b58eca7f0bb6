// Package compress makes vectors of float32 shorter, at the price of some of
// what is in them, for all-reduces over networks that are slower than the
// computation between them.
//
// Most callers make one ErrorFeedback per tensor and rank, and hand it to every
// compressed all-reduce of that tensor:
//
//	c := &compress.ErrorFeedback{Compressor: &compress.TopK{Ratio: 0.01}}
//
// A compressed all-reduce encodes the vector of each rank with Append, gathers
// the bytes of all ranks everywhere, and adds them up with AddTo, in the order
// of ranks. The Compressors are
//
//   - TopK, the largest elements: 75 times shorter by default, and to converge
//     it needs ErrorFeedback;
//   - RandomK, elements that are chosen at random, for all ranks alike: 100
//     times shorter by default, and it needs ErrorFeedback or Unbiased;
//   - Quantize8, 8 bits for each element: nearly 4 times shorter;
//   - Cast16, half precision: 2 times shorter;
//   - None, the vector as it is, to compare with and to switch compression off.
//
// # Guarantees
//
// What AddTo adds depends on the encoding alone: not on the configuration or
// the past of the Compressor, and not on the kind of machine. A sum that is not
// a number is always the same one, the positive quiet NaN without payload. So
// ranks that add the same encodings in the same order to the same vector have
// the same bits. The same vectors give the same encodings on all machines.
//
// Each type says what becomes of numbers that are not finite. After the first
// calls neither Append nor AddTo allocates, if dst has room for MaxBytes more.
// AddTo takes time in proportion to the length of the encoding, so that of
// TopK and RandomK does not depend on the length of the vector.
//
// # Failure
//
// AddTo takes bytes from others. What is not an encoding by the same kind of
// Compressor of a vector as long as dst is a *FormatError, which is an
// ErrFormat; dst is then as it was. Nothing is allocated by a length that was
// sent. Append fails only for a Compressor with fields that cannot be right,
// with an ErrConfig, and for an ErrorFeedback with a vector of another length
// than before, with an ErrLength. It then returns dst as it was.
//
// # Concurrency
//
// AddTo may be called at any time and by several goroutines, with a dst for each,
// while others call Append. None, Quantize8 and Cast16 have no state and may be
// shared without limits. A TopK has buffers, so it is for one call of Append at
// a time, but for any tensors. RandomK and ErrorFeedback remember what came
// before: each is for one tensor and one goroutine.
package compress

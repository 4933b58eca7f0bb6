package engine

import (
	"encoding/binary"
	"hash/fnv"
)

// ID derives the ID of a communicator from that of its parent, its purpose and numbers, the same
// on all ranks. IDs of different communicators differ with the probability of random numbers of
// 64 bits.
func ID(parent uint64, purpose string, numbers ...uint64) uint64 {
	h := fnv.New128a()
	for _, n := range append([]uint64{parent, uint64(len(numbers))}, numbers...) {
		h.Write(binary.BigEndian.AppendUint64(nil, n))
	}
	h.Write([]byte(purpose))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// Digest returns a hash of numbers.
func Digest(numbers []int) uint32 {
	list := make([]uint64, len(numbers))
	for i, n := range numbers {
		list[i] = uint64(n)
	}
	return uint32(ID(0, "counts", list...))
}

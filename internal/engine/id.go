package engine

import (
	"encoding/binary"
	"hash/fnv"
)

// ID is an id of a communicator that all ranks make alike. That two are the same is
// as unlikely as that of two random numbers of 64 bits.
func ID(parent uint64, what string, numbers ...uint64) uint64 {
	h := fnv.New128a()
	for _, n := range append([]uint64{parent, uint64(len(numbers))}, numbers...) {
		h.Write(binary.BigEndian.AppendUint64(nil, n))
	}
	h.Write([]byte(what))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// Digest is a number that differs, most likely, if numbers do.
func Digest(numbers []int) uint32 {
	list := make([]uint64, len(numbers))
	for i, n := range numbers {
		list[i] = uint64(n)
	}
	return uint32(ID(0, "counts", list...))
}

package wire

import "encoding/binary"

// A Call is the fingerprint of a collective. Every rank of a communicator must make the
// same Call with the same sequence number. All frames of a collective carry it.
type Call struct {
	Comm  uint64 // communicator
	Seq   uint64 // sequence number in the communicator, from 1
	Kind  uint8  // plan.Collective
	Type  uint8  // kernel.Type, 0 if there is no data
	Op    uint8  // kernel.Op, 0 if nothing is reduced
	Root  uint32 // rank, 0 for collectives without a root
	Count uint64 // elements per rank, or an Uneven

	// The ranks must also agree on the execution.
	Plan     uint8  // index of the algorithm
	Channels uint16 // number of parallel executions
}

func (c *Call) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Comm)
	b = binary.BigEndian.AppendUint64(b, c.Seq)
	b = append(b, c.Kind, c.Type, c.Op)
	b = binary.BigEndian.AppendUint32(b, c.Root)
	b = binary.BigEndian.AppendUint64(b, c.Count)
	b = append(b, c.Plan)
	return binary.BigEndian.AppendUint16(b, c.Channels)
}

func (d *decoder) call() (c Call) {
	c.Comm = d.u64()
	c.Seq = d.u64()
	c.Kind, c.Type, c.Op = d.u8(), d.u8(), d.u8()
	c.Root = d.u32()
	c.Count = d.u64()
	c.Plan = d.u8()
	c.Channels = d.u16()
	return c
}

const (
	uneven     = 1 << 63 // marks the Count of a call with blocks of different lengths
	unevenBits = 24      // bits of its digest
)

// Uneven returns the Count of a call with blocks of different lengths: their total, and a
// digest of the lengths.
func Uneven(total uint64, digest uint32) uint64 {
	return uneven | total<<unevenBits&^uneven | uint64(digest)&(1<<unevenBits-1)
}

// IsUneven reports whether Count is an Uneven.
func (c *Call) IsUneven() bool { return c.Count&uneven != 0 }

// Elements decodes Count: the number of elements of a rank's vector or block or, for blocks of
// different lengths, of all blocks, and the digest of their lengths.
func (c *Call) Elements() (n uint64, digest uint32, isUneven bool) {
	if !c.IsUneven() {
		return c.Count, 0, false
	}
	return c.Count &^ uneven >> unevenBits, uint32(c.Count & (1<<unevenBits - 1)), true
}

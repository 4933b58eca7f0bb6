package negotiate

import (
	"context"
	"encoding/binary"
	"math"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/spin"
	"github.com/nexar-go/nexar/transport"
)

// A ballot has the numbers that a rank contributes to a negotiation. The ranks agree on the maximum of each byte.
type ballot struct {
	Paths  paths
	Crowd  uint8                   // ranks that share a processor
	Demand uint8                   // 1 if this node links itself to others on demand
	Parts  [shmexec.AreasMax]uint8 // see [shmexec.Allocator.Votes]
	Known  LinkModel               // all ranks that have one have the same
}

// paths are the classes of the paths of a rank (see [cost.PathClasses.Ballot]), and its level of sharing areas.
type paths struct {
	Classes [3]transport.Class
	Level   uint8
}

// A profile describes a rank to others that may share memory with it. A rank contributes its own; the others are zero.
type profile struct {
	Domain       uint16
	First, Count uint16 // the first of the processors that the rank may use, and their number
	Key          uint64 // of its areas, or 0
}

// newProfiles returns the contribution of a rank. It is empty for more ranks than can share memory.
func newProfiles(rank, size int, key uint64) []profile {
	if size > cost.SharedRanksMax {
		return nil
	}
	profiles := make([]profile, size)
	profiles[rank] = profile{host.Domain(), uint16(min(spin.First(), math.MaxUint16)), uint16(min(shmexec.Processors(), math.MaxUint16)), key}
	return profiles
}

// agree replaces numbers by the bytewise maximum over all ranks. fields are pointers to structs and slices of them, without
// numbers of a size that depends on the host.
func (n negotiator) agree(ctx context.Context, fields ...any) (err error) {
	var b []byte
	for _, f := range fields {
		if b, err = binary.Append(b, binary.BigEndian, f); err != nil {
			return err
		}
	}
	err = n.maximum(ctx, b)
	for _, f := range fields {
		size, e := binary.Decode(b, binary.BigEndian, f)
		if e != nil {
			return e
		}
		b = b[size:]
	}
	return err
}

// maximum replaces values by the element-wise maximum over all ranks.
func (n negotiator) maximum(ctx context.Context, values []uint8) error {
	return n.allReduce(ctx, values, len(values), kernel.Uint8, kernel.Max)
}

package sgd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/nexar-go/nexar"
)

// ErrDiverged reports that the weights of the ranks differ.
var ErrDiverged = errors.New("the weights have diverged")

// Digest returns a hash of the bits of all weights, to compare runs. If the ranks have
// different weights, it returns an ErrDiverged that names one of them.
func (t *Trainer) Digest(ctx context.Context) (uint64, error) {
	hash := fnv.New64a()
	for _, l := range t.net.Layers {
		// Writing to a hash never fails.
		_ = binary.Write(hash, binary.LittleEndian, l.Params)
	}
	own := []uint64{hash.Sum64()}
	all := make([]uint64, t.comm.Size())
	if err := nexar.AllGather(ctx, t.comm, all, own); err != nil {
		return 0, err
	}
	for rank, its := range all {
		if its != all[0] {
			return 0, fmt.Errorf("%w: digest of rank %d is %016x, of rank 0 %016x", ErrDiverged, rank, its, all[0])
		}
	}
	return own[0], nil
}

package ddp

import (
	"fmt"
	"iter"
	"math/bits"
)

// A Sampler divides samples among ranks. In each epoch every sample is in one batch of one rank, in a random order that depends on the seed and
// the epoch alone. Batches are those of all ranks together, so the samples of a batch do not depend on the number of ranks: if that
// changes, the next batches are divided anew, and no sample is repeated or left out.
//
// A Sampler takes constant memory. It is for one goroutine; each rank has its own, with the same parameters.
type Sampler struct {
	samples, batch int
	seed           uint64
	at             Position
}

// A Position is the number of an epoch and the samples of it that have been used.
type Position struct{ Epoch, Used int64 }

// NewSampler returns a Sampler of so many samples, numbered from 0, and batches of all ranks together. The last batch of an epoch may be shorter.
func NewSampler(samples, batch int, seed uint64) (*Sampler, error) {
	switch {
	case samples < 1:
		return nil, fmt.Errorf("%w: a Sampler of %d samples, want at least 1", ErrConfig, samples)
	case batch < 1:
		return nil, fmt.Errorf("%w: a Sampler with batches of %d samples, want at least 1", ErrConfig, batch)
	}
	return &Sampler{samples: samples, batch: batch, seed: seed}, nil
}

// Position returns the position of the next batch.
func (s *Sampler) Position() Position { return s.at }

// Seek sets the position of the next batch, as after a restart from a checkpoint. It panics at a position that no Sampler of as many samples has.
func (s *Sampler) Seek(at Position) {
	if at.Epoch < 0 || at.Used < 0 || at.Used >= int64(s.samples) {
		panic(fmt.Sprintf("ddp: Seek to sample %d of epoch %d, of %d samples", at.Used, at.Epoch, s.samples))
	}
	s.at = at
}

// Total returns the number of samples of the next batch, on all ranks together.
func (s *Sampler) Total() int { return min(s.batch, s.samples-int(s.at.Used)) }

// Batch returns the samples of a rank in the next batch. Ranks have as many samples as others, or one more; there may be none.
func (s *Sampler) Batch(rank, size int) []int {
	if rank < 0 || rank >= size {
		panic(fmt.Sprintf("ddp: Batch of rank %d of %d", rank, size))
	}
	n := s.Total()
	from, to := n*rank/size, n*(rank+1)/size
	batch := make([]int, 0, to-from)
	order := newPermutation(s.samples, s.seed, s.at.Epoch)
	for i := from; i < to; i++ {
		batch = append(batch, order.at(int(s.at.Used)+i))
	}
	return batch
}

// Advance goes to the batch after the next one, which may be in the next epoch.
func (s *Sampler) Advance() {
	if s.at.Used += int64(s.Total()); s.at.Used == int64(s.samples) {
		s.at = Position{Epoch: s.at.Epoch + 1}
	}
}

// Batches yields the batches of a rank until the end of the current epoch, and advances after each.
func (s *Sampler) Batches(rank, size int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for epoch := s.at.Epoch; s.at.Epoch == epoch; {
			batch := s.Batch(rank, size)
			s.Advance()
			if !yield(batch) {
				return
			}
		}
	}
}

// A permutation is a Feistel network of 4 rounds (Luby and Rackoff, "How to Construct Pseudorandom Permutations from Pseudorandom Functions", SIAM
// Journal on Computing 1988) over a power of 4 of numbers. Numbers beyond the samples are permuted again (Black and Rogaway, "Ciphers with Arbitrary
// Finite Domains", CT-RSA 2002).
type permutation struct {
	samples int
	half    uint // bits of half a number
	keys    [4]uint64
}

func newPermutation(samples int, seed uint64, epoch int64) permutation {
	p := permutation{samples: samples, half: max(1, uint(bits.Len(uint(samples-1))+1)/2)}
	key := mix(seed) + uint64(epoch)
	for i := range p.keys {
		key = mix(key)
		p.keys[i] = key
	}
	return p
}

// at returns the i-th number of the permutation.
func (p *permutation) at(i int) int {
	x := uint64(i)
	for {
		left, right := x>>p.half, x&(1<<p.half-1)
		for _, key := range p.keys {
			left, right = right, left^mix(right^key)&(1<<p.half-1)
		}
		if x = left<<p.half | right; x < uint64(p.samples) {
			return int(x)
		}
	}
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

package negotiate

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/spin"
)

// processorsBytes is the length of the processors of a rank: the number of the first one, and how many there are.
const processorsBytes = 4

// processorBallot returns the contribution of a rank to the list of the processors that all ranks may use. Launchers bind ranks to
// neighboring processors, so the list has ranges. It is empty for more ranks than can share memory.
func processorBallot(rank, size int) []uint8 {
	if size > cost.SharedRanksMax {
		return nil
	}
	b := make([]uint8, processorsBytes*size)
	own := b[processorsBytes*rank:]
	binary.BigEndian.PutUint16(own, uint16(min(spin.First(), math.MaxUint16)))
	binary.BigEndian.PutUint16(own[2:], uint16(min(shmexec.Processors(), math.MaxUint16)))
	return b
}

// processors returns the number of processors of a host, given the maximum of the ballots of its ranks. If some processors have more ranks than
// others in every placement, it is the number with which all ranks would be as crowded as on these.
func processors(ballot []uint8) int {
	type set struct{ first, end int }
	ranks := len(ballot) / processorsBytes
	sets := make([]set, ranks)
	for i := range sets {
		own := ballot[processorsBytes*i:]
		first := int(binary.BigEndian.Uint16(own))
		sets[i] = set{first, first + int(binary.BigEndian.Uint16(own[2:]))}
	}
	slices.SortFunc(sets, func(a, b set) int { return a.end - b.end })
	used := make(map[int]struct{})
	firsts := make(map[int]struct{})
	for _, s := range sets {
		firsts[s.first] = struct{}{}
		for cpu := s.first; cpu < s.end; cpu++ {
			used[cpu] = struct{}{}
		}
	}
	fewest := len(used)
	for first := range firsts {
		within := 0 // the ranks that are confined to the processors from first to the end of the current set
		for _, s := range sets {
			if s.first >= first {
				within++
				fewest = min(fewest, (s.end-first)*ranks/within)
			}
		}
	}
	return max(fewest, 1)
}

package nexar

import (
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/selector"
)

// An Algorithm is a way to carry out a collective. Pin takes its Name in shared
// memory, and over links its Name, a slash and its Channels: "ring/4".
type Algorithm struct {
	Name      string
	Channels  int           // over links: how often it runs side by side, each time on a slice of the vector
	Shared    bool          // in memory that all ranks share, where Channels is 1
	Predicted time.Duration // by the model that chooses; 0 if that does not know what is pinned
}

// Algorithms are the ways in which a collective of so many bytes (of the vector,
// or of the blocks of all ranks) can be carried out. The first is what such a
// call takes, unless it is an AllReduceFunc and that does not keep the order of
// the ranks; the others follow, the fastest by the model first. With
// Config.Deterministic there are only those that combine operands in the same
// way. All ranks get the same list. The name of the collective is that of errors:
// "all_reduce".
func (c *Comm) Algorithms(collective string, bytes int) ([]Algorithm, error) {
	kind, err := selector.Collective(collective)
	if err == nil && bytes < 0 {
		err = fmt.Errorf("%w: %d bytes", ErrInvalidLength, bytes)
	}
	if err != nil {
		return nil, opError("algorithms", err)
	}
	var list []Algorithm
	for _, w := range c.book.Ways(kind, bytes, c.canonical(kind)) {
		list = append(list, Algorithm{w.Algorithm.Name, w.Channels, w.Shared, time.Duration(w.Seconds * float64(time.Second))})
	}
	return list, nil
}

// Pin fixes, in place of all that was pinned before, how collectives are carried
// out from the next call on: Pin("all_reduce=ring/4", "gather=direct"), as in
// Config.Algorithms; without arguments the model decides. All ranks pin the same
// between the same calls, or these end with a MismatchError.
func (c *Comm) Pin(algorithms ...string) error {
	pins, err := selector.ParsePins(algorithms)
	if err != nil {
		return opError("pin", fmt.Errorf("%w: %w", ErrConfig, err))
	}
	c.book.Pin(pins)
	return nil
}

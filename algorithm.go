package nexar

import (
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/selector"
)

// An Algorithm is a way to carry out a collective. [Comm.SetAlgorithms] takes its Name in shared
// memory, and over links its Name, a slash and its Channels: "ring/4".
type Algorithm struct {
	Name      string
	Channels  int           // over links: parallel runs, each on a slice of the vector
	Shared    bool          // in memory that all ranks share; then Channels is 1
	Predicted time.Duration // by the cost model; 0 if unknown
	// ChosenBy says why calls use the algorithm: "model" for the cost model, "setting" for
	// [Config].Algorithms or [Comm.SetAlgorithms], or "hint" for [Config].LargeMessageBytes,
	// PipelineSegmentBytes or RingMaxWorld. It is empty if calls use another algorithm.
	ChosenBy string
}

// chosenBy has the values of Algorithm.ChosenBy.
func chosenBy(r selector.Reason) string {
	switch r {
	case selector.ByPin:
		return "setting"
	case selector.ByHint:
		return "hint"
	default:
		return "model"
	}
}

// Algorithms lists the algorithms for a collective. bytes is the length of the vector or, if each rank
// has a block, of the blocks of all ranks. The first algorithm is the one that such a call uses, but an
// [AllReduceFunc] uses the first that keeps the order of the ranks. The others are sorted by the time
// that the cost model predicts, the shortest first. With [Config].Deterministic the
// list has only algorithms that combine operands in the same way. All ranks get the
// same list. The collective is named as in errors: "all_reduce".
func (c *Comm) Algorithms(collective string, bytes int) ([]Algorithm, error) {
	kind, err := selector.Collective(collective)
	if err == nil && bytes < 0 {
		err = fmt.Errorf("%w: %d bytes: must not be negative", ErrInvalidLength, bytes)
	}
	if err != nil {
		return nil, opError("algorithms", err)
	}
	var list []Algorithm
	for i, w := range c.runner.Selector.Choices(kind, bytes, c.runner.Canonical(kind)) {
		a := Algorithm{
			Name: w.Algorithm.Name, Channels: w.Channels, Shared: w.Executor == exec.Shared,
			Predicted: time.Duration(w.Seconds * float64(time.Second)),
		}
		if i == 0 {
			a.ChosenBy = chosenBy(w.By)
		}
		list = append(list, a)
	}
	return list, nil
}

// SetAlgorithms fixes the algorithms of collectives from the next call on, in the form of
// [Config].Algorithms: SetAlgorithms("all_reduce=ring/4", "gather=direct"). It replaces
// earlier ones; without arguments the cost model chooses again. All ranks set the same
// algorithms between the same calls, or these calls fail with a [MismatchError].
func (c *Comm) SetAlgorithms(algorithms ...string) error {
	pins, err := selector.ParsePins(algorithms)
	if err != nil {
		return opError("set_algorithms", fmt.Errorf("%w: %w", ErrConfig, err))
	}
	c.runner.Selector.Pin(pins)
	return nil
}

package cost

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
)

// Choices returns all choices for n, one per algorithm: the result of Choose, and the others in
// the order of their cost. Their Seconds are for exactly n.Bytes. Those of Choose are for the
// middle of all lengths of the class, so a later choice may cost a little less than the first.
func (t *Tuner) Choices(n Need) []Choice {
	var choices []Choice
	for i := range plan.AlgorithmsOn(n.Collective, t.hosts) {
		if c, ok := t.ChoiceWith(n, i, 0); ok {
			choices = append(choices, c)
		}
	}
	chosen := t.Choose(n).Index
	slices.SortStableFunc(choices, func(a, b Choice) int {
		switch chosen {
		case a.Index:
			return -1
		case b.Index:
			return 1
		}
		return cmp.Compare(a.Seconds, b.Seconds)
	})
	return choices
}

// ChoiceWith returns the choice with the algorithm of an index and a number of channels, if it can
// carry out n. 0 leaves the number to the model. Blocks that cannot be cut use one channel.
// Seconds are as in [Tuner.Choices].
func (t *Tuner) ChoiceWith(n Need, index, channels int) (c Choice, ok bool) {
	a := plan.AlgorithmsOn(n.Collective, t.hosts)[index]
	if !n.Allows(a) {
		return Choice{}, false
	}
	class := n
	class.Bytes = middle(n.Bytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok = t.best(index, a, class); !ok {
		return Choice{}, false
	}
	if channels > 0 {
		c.Channels = channels
	}
	c = t.exactly(c, n)
	c.Seconds += t.firstUse(index, a, n, c.Seconds)
	return c, true
}

// Allows reports whether an algorithm supports the number of ranks and the requirements of n.
func (n Need) Allows(a plan.Algorithm) bool {
	return a.Fits(n.Size) && (a.Ordered || !n.Ordered) && (a.Uneven || !n.Uneven) && (a.Canonical || !n.Canonical)
}

// middle returns the middle of the class of a length: of all lengths between the same powers of
// two.
func middle(bytes int) int {
	if bytes == 0 {
		return 0
	}
	least := 1 << (bits.Len(uint(bytes)) - 1)
	return least + least/2
}

// Choices is [Tuner.Choices].
func (t *SharedTuner) Choices(n Need) []Choice { return t.tuner.Choices(n) }

// ChoiceWith is [Tuner.ChoiceWith]. It ignores channels; their number is that of Choose.
func (t *SharedTuner) ChoiceWith(n Need, index, channels int) (c Choice, ok bool) {
	return t.tuner.ChoiceWith(n, index, channels)
}

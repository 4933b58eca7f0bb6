package cost

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
)

// Ways are all ways to carry a Need out, one for each algorithm: first the one
// that Choose returns, then the others, cheapest first. Their Seconds are for
// just so many bytes, while those of Choose are for the middle of all lengths
// that get the same answer; so a later way may cost a little less than the
// first.
func (t *Tuner) Ways(n Need) []Choice {
	var ways []Choice
	for i := range plan.AlgorithmsOn(n.Collective, t.hosts) {
		if c, ok := t.Way(n, i, 0); ok {
			ways = append(ways, c)
		}
	}
	chosen := t.Choose(n).Index
	slices.SortStableFunc(ways, func(a, b Choice) int {
		switch chosen {
		case a.Index:
			return -1
		case b.Index:
			return 1
		}
		return cmp.Compare(a.Seconds, b.Seconds)
	})
	return ways
}

// Way is how the algorithm of an index carries a Need out, on so many channels,
// if it can; 0 leaves their number to the model, and there is one where blocks
// cannot be cut. Seconds are as Ways has them.
func (t *Tuner) Way(n Need, index, channels int) (c Choice, ok bool) {
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
	return t.exactly(c, n), true
}

// Allows reports whether an algorithm is for so many ranks, and has what is
// asked for.
func (n Need) Allows(a plan.Algorithm) bool {
	return a.Fits(n.Size) && (a.Ordered || !n.Ordered) && (a.Uneven || !n.Uneven) && (a.Canonical || !n.Canonical)
}

// middle is the middle of the class of a length: of all that lie between the
// same powers of two.
func middle(bytes int) int {
	if bytes == 0 {
		return 0
	}
	least := 1 << (bits.Len(uint(bytes)) - 1)
	return least + least/2
}

// Ways is Tuner.Ways.
func (t *SharedTuner) Ways(n Need) []Choice { return t.tuner.Ways(n) }

// Way is Tuner.Way. The number of channels is that of Choose, whatever is asked
// for.
func (t *SharedTuner) Way(n Need, index, channels int) (c Choice, ok bool) {
	return t.tuner.Way(n, index, channels)
}

func (t *Tuner) exact(c Choice, n Need) Choice {
	f := t.figuresOf(c.Index, c.Algorithm, n)
	if n.Blocks && !f.single {
		c.Channels = 1
	}
	c.Seconds = t.time(f, n, c.Channels)
	return c
}

func (t *hostTuner) exact(c Choice, n Need) Choice {
	f := t.figuresOf(c.Index, c.Algorithm, n)
	if n.Blocks && !f.single {
		c.Channels = 1
	}
	c.Seconds = t.time(&f, n, c.Channels)
	return c
}

func (t *SharedTuner) exact(c Choice, n Need) Choice {
	c.Channels = 1
	c.Seconds = t.time(t.figuresOf(c.Index, c.Algorithm, n), n)
	return c
}

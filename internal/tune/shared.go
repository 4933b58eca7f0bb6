package tune

import (
	"github.com/nexar-go/nexar/internal/board"
	"github.com/nexar-go/nexar/internal/plan"
)

// SharedRanksMax is the most ranks that a Tuner of shared memory is for.
const SharedRanksMax = 64

// A SharedCost is what carrying plans out in memory that ranks share costs, in
// seconds.
type SharedCost struct {
	Latency float64 // until another rank sees what was posted
	Post    float64 // work to post
	Await   float64 // work to look for a post, and to begin to read it
	Copy    float64 // per byte copied
	Cross   float64 // per byte copied from the area of a rank on another processor
	Combine float64 // per byte combined
	// Cached is the part of Copy and Combine that is left for vectors that stay
	// in the caches of the processors: of up to MovedMax bytes where they are
	// only moved, and of up to CombinedMax where they are combined. What goes on
	// an area goes from cache to cache and does not get cheaper, nor does what
	// is combined there.
	Cached                float64
	MovedMax, CombinedMax int
	// PieceBytes is how many bytes a rank can post in a piece.
	PieceBytes int
	// Pull is the work to begin to read the memory of another rank's process, 0
	// if ranks cannot, and Page what the system adds to Copy for each byte.
	Pull, Page float64
	// Processors is how many all ranks have together; 0 is enough of them.
	// Turn is how long a processor takes to get from one rank to the next.
	Processors int
	Turn       float64
}

// pullWork and pullPage are SharedCost.Pull and Page as a machine of two cores
// measured them.
const (
	pullWork = 0.8e-6
	pullPage = 0.04e-9
)

// Host is a SharedCost as a machine of two cores measured it. Pulls says whether
// ranks can read each other's memory.
func Host(pieceBytes int, pulls bool, processors int) SharedCost {
	c := SharedCost{
		Processors: processors, Turn: 1.2e-6, Cached: 1. / 3, MovedMax: 1 << 20, CombinedMax: 128 << 10,
		Latency: 0.15e-6, Post: 0.05e-6, Await: 0.08e-6, Copy: 0.1e-9, Cross: 0.15e-9, Combine: 0.09e-9, PieceBytes: pieceBytes,
	}
	if pulls {
		c.Pull, c.Page = pullWork, pullPage
	}
	return c
}

// Scarcity is the larger the fewer processors there are, of up to 254, and the
// other way round: the largest of all ranks' is that of the one that has fewest.
func Scarcity(processors int) uint8 { return uint8(255 - min(processors, 254)) }

// A SharedTuner is a Tuner for ranks that share memory.
type SharedTuner struct {
	cost    SharedCost
	tuner   *Tuner
	figures map[figureKey]sharedFigures
}

// sharedFigures are what a plan costs on a board whatever the vector is.
type sharedFigures struct {
	depth    int
	loads    []board.Load // of a few ranks, or of all
	cuttable bool         // into pieces, whatever the root is
	units    int          // chunks on an area, if it is not; 0 if that is not known
	chunks   int
	pulls    bool // it can be carried out by pulling, whatever the root is
}

// NewShared makes a SharedTuner for ranks that share all memory.
func NewShared(c SharedCost) *SharedTuner {
	t := &SharedTuner{cost: c, figures: make(map[figureKey]sharedFigures)}
	t.tuner = &Tuner{chosen: make(map[Need]Choice)}
	t.tuner.best, t.tuner.exactly = t.cheapest, t.exact
	return t
}

// Choose is Tuner.Choose. The number of channels it leaves open: that follows
// from the length.
func (t *SharedTuner) Choose(n Need) Choice { return t.tuner.Choose(n) }

func (t *SharedTuner) cheapest(i int, a plan.Algorithm, n Need) (c Choice, ok bool) {
	f := t.figuresOf(i, a, n)
	c = Choice{Index: i, Algorithm: a, Channels: 1, Shared: true}
	// How long the longest of uneven blocks is does not count: what cannot be
	// cut may not fit.
	if f.cuttable || t.fits(f, n) && !n.Uneven {
		c.Seconds, ok = t.time(f, n, false), true
	}
	if t.cost.Pull > 0 && f.pulls {
		if s := t.time(f, n, true); !ok || s < c.Seconds {
			c.Seconds, c.Pull, ok = s, true, true
		}
	}
	return c, ok
}

func (t *SharedTuner) figuresOf(i int, a plan.Algorithm, n Need) sharedFigures {
	key := figureKey{n.Collective, i, n.Size}
	f, ok := t.figures[key]
	if !ok {
		f = sharedFiguresOf(a, n)
		t.figures[key] = f
	}
	return f
}

// time is the predicted time of a plan.
func (t *SharedTuner) time(f sharedFigures, n Need, pulling bool) float64 {
	depth := f.depth
	if pulling {
		depth++ // Whoever shows something waits until all have it.
	}
	each := t.cost.Latency + float64(t.crowd(n)*t.cost.Turn)
	return float64(float64(depth)*each) + t.work(f, n, pulling)
}

// crowd is how many other ranks have a turn, on the processor of each, before
// one that waits for others does.
func (t *SharedTuner) crowd(n Need) float64 {
	if t.cost.Processors == 0 || n.Size <= t.cost.Processors {
		return 0
	}
	return float64(n.Size)/float64(t.cost.Processors) - 1
}

// work is that of the rank that has most, in seconds, or that of a processor, if
// there are fewer of them. Products are converted so that none is fused with a
// sum, as in time.
func (t *SharedTuner) work(f sharedFigures, n Need, pulling bool) float64 {
	most, sum := 0.0, 0.0
	c := t.bytesCost(f, n, pulling)
	for _, l := range f.loads {
		work := float64(float64(l.Posts)*t.cost.Post) + float64(float64(l.Awaits)*t.cost.Await)
		if pulling {
			work += float64(float64(l.Taken) * t.cost.Pull)
		} else {
			work += float64(l.Shown * c.shown)
		}
		work += float64((l.Copied-l.Shown)*c.copied) + float64(l.Combined*c.combined)
		most, sum = max(most, work), sum+work
	}
	mean := sum / float64(len(f.loads))
	return max(most, float64(mean*(t.crowd(n)+1)))
}

// bytesCost is what it costs to put a whole vector on an area, to copy it from
// one or otherwise, and to combine it.
type bytesCost struct{ shown, copied, combined float64 }

func (t *SharedTuner) bytesCost(f sharedFigures, n Need, pulling bool) bytesCost {
	bytes, copied, combine := float64(n.Bytes), t.cost.Copy, t.cost.Combine
	if n.Bytes <= t.cost.CombinedMax {
		combine *= t.cost.Cached
	}
	if !n.Collective.Reduces() {
		if n.Bytes <= t.cost.MovedMax {
			copied *= t.cost.Cached
		}
		if pulling {
			copied += t.cost.Page
		} else {
			cross := t.across(f, n)
			copied = float64(cross*t.cost.Cross) + float64((1-cross)*copied)
		}
	}
	return bytesCost{bytes * t.cost.Copy, bytes * copied, bytes * combine}
}

// across is the part of what ranks copy from areas that comes from another
// processor. Where ranks share processors, some are on that of the area; and
// what several take goes to each processor once.
func (t *SharedTuner) across(f sharedFigures, n Need) float64 {
	if t.crowd(n) == 0 {
		return 1
	}
	shown, taken := 0.0, 0.0
	for _, l := range f.loads {
		shown, taken = shown+l.Shown, taken+l.Copied-l.Shown
	}
	others := float64(t.cost.Processors - 1)
	if taken == 0 {
		return 0
	}
	return min(others/(others+1), float64(shown*others)/taken)
}

// unitsSizeMax is the largest number of ranks for which plans that cannot be
// cut are looked at: that takes the plans of all ranks for every root.
const unitsSizeMax = 16

func sharedFiguresOf(a plan.Algorithm, n Need) sharedFigures {
	plans := a.Plans(n.Size, 0)
	s := board.NewSchedule(plans)
	f := sharedFigures{depth: depth(a, plans), cuttable: Cuttable(a, n), chunks: plans[0].Chunks, pulls: s.Pulls()}
	ranks := []int{0, 1, 2, n.Size / 2, n.Size - 1}
	if n.Size <= unitsSizeMax {
		ranks = ranks[:0]
		for rank := range n.Size {
			ranks = append(ranks, rank)
		}
	}
	for _, rank := range ranks {
		f.loads = append(f.loads, s.Compile(rank).Load())
	}
	if f.cuttable || n.Size > unitsSizeMax {
		f.pulls = f.pulls && f.cuttable // Flat plans are alike for every root.
		return f
	}
	for root := range roots(n) {
		s := board.NewSchedule(a.Plans(n.Size, root))
		f.units = max(f.units, s.Units())
		f.pulls = f.pulls && s.Pulls()
	}
	return f
}

// Cuttable reports whether the vector can be cut into pieces, whatever the root
// is: trees have other messages with every root.
func Cuttable(a plan.Algorithm, n Need) bool {
	for root := range roots(n) {
		for rank := range n.Size {
			if !board.Single(a.Plan(rank, n.Size, root)) {
				return false
			}
		}
	}
	return true
}

// roots is how many roots there are.
func roots(n Need) int {
	if n.Collective.Rooted() {
		return n.Size
	}
	return 1
}

// chunkSlack is what aligning a chunk may add to its length, in bytes.
const chunkSlack = 64 * 8

// fits reports whether the whole vector fits into a piece.
func (t *SharedTuner) fits(f sharedFigures, n Need) bool {
	longest := 2 * n.Bytes // of the class
	return f.units > 0 && (longest/f.chunks+chunkSlack)*f.units <= t.cost.PieceBytes
}

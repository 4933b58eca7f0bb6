package cost

import (
	"github.com/nexar-go/nexar/internal/engine/shmexec"
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
	Copy    float64 // per byte copied, to an area or from one
	Combine float64 // per byte combined
	// Cached is the part of Copy and Combine that is left for vectors that stay in
	// the caches of the processors: of up to CachedMax bytes on all ranks together.
	Cached    float64
	CachedMax int
	// PieceBytes is how many bytes a rank can post in a piece.
	PieceBytes int
	// Processors is how many all ranks have together; 0 is enough of them.
	// Turn is how long a processor takes to get from one rank to the next.
	Processors int
	Turn       float64
}

// Host is a SharedCost as a machine of two cores measured it.
func Host(pieceBytes, processors int) SharedCost {
	return SharedCost{
		Processors: processors, Turn: 1.2e-6, Cached: 0.5, CachedMax: 8 << 20, PieceBytes: pieceBytes,
		Latency: 0.15e-6, Post: 0.05e-6, Await: 0.08e-6, Copy: 0.08e-9, Combine: 0.08e-9,
	}
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
	loads    []shmexec.Load // of a few ranks, or of all
	cuttable bool           // into pieces, whatever the root is
	units    int            // chunks on an area, if it is not; 0 if that is not known
	chunks   int
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
	c = Choice{Index: i, Algorithm: a, Channels: 1}
	// How long the longest of uneven blocks is does not count: what cannot be
	// cut may not fit.
	if f.cuttable || t.fits(f, n) && !n.Uneven {
		c.Seconds, ok = t.time(f, n), true
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
func (t *SharedTuner) time(f sharedFigures, n Need) float64 {
	each := t.cost.Latency + float64(t.crowd(n)*t.cost.Turn)
	return float64(float64(f.depth)*each) + t.work(f, n)
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
func (t *SharedTuner) work(f sharedFigures, n Need) float64 {
	bytes := float64(n.Bytes)
	if n.Bytes <= t.cost.CachedMax/n.Size {
		bytes *= t.cost.Cached
	}
	most, sum := 0.0, 0.0
	for _, l := range f.loads {
		work := float64(float64(l.Posts)*t.cost.Post) + float64(float64(l.Awaits)*t.cost.Await)
		work += float64(bytes * (float64(l.Copied*t.cost.Copy) + float64(l.Combined*t.cost.Combine)))
		most, sum = max(most, work), sum+work
	}
	mean := sum / float64(len(f.loads))
	return max(most, float64(mean*(t.crowd(n)+1)))
}

// unitsSizeMax is the largest number of ranks for which plans that cannot be
// cut are looked at: that takes the plans of all ranks for every root.
const unitsSizeMax = 16

func sharedFiguresOf(a plan.Algorithm, n Need) sharedFigures {
	plans := a.Plans(n.Size, 0)
	s := shmexec.NewSchedule(plans)
	f := sharedFigures{depth: depth(a, plans), cuttable: Cuttable(a, n), chunks: plans[0].Chunks}
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
		return f
	}
	for root := range roots(n) {
		f.units = max(f.units, shmexec.NewSchedule(a.Plans(n.Size, root)).Units())
	}
	return f
}

// Cuttable reports whether the vector can be cut into pieces, whatever the root
// is: trees have other messages with every root.
func Cuttable(a plan.Algorithm, n Need) bool {
	for root := range roots(n) {
		for rank := range n.Size {
			if !shmexec.Single(a.Plan(rank, n.Size, root)) {
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

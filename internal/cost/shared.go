package cost

import (
	"math"

	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

// SharedRanksMax is the largest number of ranks of a [SharedTuner].
const SharedRanksMax = 256

// A SharedCost has the parameters of the model of plans in shared memory, in seconds.
type SharedCost struct {
	Latency float64 // until another rank sees a post
	Post    float64 // work to post
	Copy    float64 // per byte copied, to an area or from one
	Combine float64 // per byte combined
	// Cached is the fraction of Copy and Combine for vectors that stay in processor caches: of
	// at most CachedMax bytes on all ranks together.
	Cached    float64
	CachedMax int
	// PieceBytes is the number of bytes that a rank can post in a piece.
	PieceBytes int
	// Processors is the total number of processors of all ranks; 0 means enough.
	Processors int
	// Few are the costs if a processor has fewer than crowdedMin ranks, and Many those with more.
	Few, Many Sharing
}

// Sharing has the costs that depend on the number of ranks that share a processor, in seconds. The caches of a processor with
// many ranks hold nothing of a rank that runs again.
type Sharing struct {
	Turn  float64 // of a processor, to switch from one rank to the next
	Await float64 // work to check for a post and start to read it
	Step  float64 // work to begin a copy or combination, of many ranks
	// Disorder is the fraction of the work of all ranks that each wait adds: ranks run in an arbitrary order, so the
	// awaited one may be the last.
	Disorder float64
}

// SharedCost.Many applies from crowdedMin ranks for each processor on.
const crowdedMin = 16

// Host returns the SharedCost measured on a machine with two cores.
func Host(pieceBytes, processors int) SharedCost {
	return SharedCost{
		Processors: processors, Cached: 0.5, CachedMax: 8 << 20, PieceBytes: pieceBytes,
		Latency: 0.15e-6, Post: 0.05e-6, Copy: 0.08e-9, Combine: 0.08e-9,
		Few:  Sharing{Turn: 1.2e-6, Await: 0.08e-6, Step: 0.05e-6},
		Many: Sharing{Turn: 4e-6, Await: 0.15e-6, Step: 0.2e-6, Disorder: 0.15},
	}
}

// A SharedTuner is a Tuner for ranks that share memory.
type SharedTuner struct {
	cost    SharedCost
	tuner   *Tuner
	figures known[*sharedFigures]
}

// sharedFigures are the costs of a plan in shared memory that do not depend on the vector.
type sharedFigures struct {
	depth    int
	loads    []shmexec.Load // of all ranks, or of kinds of ranks
	ranks    []float64      // the number of ranks with each of loads
	cuttable bool           // into pieces, for every root
	units    int            // chunks in an area if not cuttable; 0 if unknown
	chunks   int
	rest     []rankSample // ranks with loads that are not known yet
	awaits   int          // the least number of awaits of each of them
	unitsOf  func()       // sets units and chunks; nil if they are known
}

// A rankSample is a rank that represents a number of ranks.
type rankSample struct {
	rank  int
	ranks float64
}

// NewShared returns a SharedTuner for ranks that all share memory, in groups.
func NewShared(c SharedCost, groups plan.Hosts) *SharedTuner {
	t := &SharedTuner{cost: c}
	t.tuner = &Tuner{hosts: groups, together: true, chosen: make(map[Need]Choice)}
	t.tuner.predict, t.tuner.least = t.ofPlans, t.least
	return t
}

// Choose is [Tuner.Choose]. The number of channels has no meaning in shared memory.
func (t *SharedTuner) Choose(n Need) Choice { return t.tuner.Choose(n) }

// ofPlans predicts the time of an algorithm in shared memory.
func (t *SharedTuner) ofPlans(i int, a plan.Algorithm, n Need) (time func(channels int) float64, most int) {
	if !a.Shared && t.tuner.isHierarchical(i, n) {
		return nil, 0 // It is for hosts.
	}
	f := t.figuresOf(i, a, n)
	// The length of the longest of uneven blocks is unknown, so a plan that cannot be cut might
	// not fit.
	if f.cuttable || t.fits(f, n) && !n.Uneven {
		most = 1
	}
	return func(int) float64 { return t.time(f, n) }, most
}

// least returns a lower bound of the time of an algorithm. Most algorithms have too many rounds, or too much work of
// one rank, and need no plans of many ranks.
func (t *SharedTuner) least(i int, a plan.Algorithm, n Need, limit float64) float64 {
	f := t.begun(i, a, n)
	if len(f.loads)+len(f.rest) == 0 {
		return math.Inf(1) // It is not for shared memory, or not for so many ranks.
	}
	for {
		bound := t.time(f, n)
		if bound > limit || len(f.rest) == 0 {
			return bound
		}
		f.addNext(a, n)
	}
}

// figuresOf returns the complete figures of an algorithm.
func (t *SharedTuner) figuresOf(i int, a plan.Algorithm, n Need) *sharedFigures {
	f := t.begun(i, a, n)
	for len(f.rest) > 0 {
		f.addNext(a, n)
	}
	if f.unitsOf != nil {
		f.unitsOf()
		f.unitsOf = nil
	}
	return f
}

// begun returns the figures of an algorithm, possibly without the loads of some ranks.
func (t *SharedTuner) begun(i int, a plan.Algorithm, n Need) *sharedFigures {
	return t.figures.of(n, i, func() *sharedFigures {
		if !t.tuner.isHierarchical(i, n) {
			return sharedFiguresOf(a, n)
		}
		f := &sharedFigures{cuttable: Cuttable(a, n)}
		if a.Shared { // Others are for hosts.
			f.estimateGroups(i, a, n, t.tuner.hosts)
			f.unitsOf = func() { f.findUnits(a, n) }
		}
		return f
	})
}

// time returns the predicted time of a plan.
func (t *SharedTuner) time(f *sharedFigures, n Need) float64 {
	each := t.cost.Latency + float64(t.crowd(n)*t.sharing(n).Turn)
	return float64(float64(f.depth)*each) + t.work(f, n)
}

// crowd returns the mean number of other ranks that run on the processor of a rank before it runs
// again.
func (t *SharedTuner) crowd(n Need) float64 {
	if t.cost.Processors == 0 || n.Size <= t.cost.Processors {
		return 0
	}
	return float64(n.Size)/float64(t.cost.Processors) - 1
}

// sharing returns the costs for a number of ranks.
func (t *SharedTuner) sharing(n Need) *Sharing {
	if t.crowd(n) < crowdedMin-1 {
		return &t.cost.Few
	}
	return &t.cost.Many
}

// work returns the largest work of a rank in seconds, or of a processor if processors are
// fewer; of many ranks on fewer processors, the sum of both. Products are converted so that none
// is fused with a sum, as in time.
func (t *SharedTuner) work(f *sharedFigures, n Need) float64 {
	bytes := float64(n.Bytes)
	if n.Bytes <= t.cost.CachedMax/n.Size {
		bytes *= t.cost.Cached
	}
	sharing := t.sharing(n)
	most, sum := 0.0, 0.0
	if len(f.rest) > 0 {
		most = float64(float64(f.awaits) * sharing.Await)
		for _, r := range f.rest {
			sum += float64(most * r.ranks)
		}
	}
	for i, l := range f.loads {
		work := float64(float64(l.Posts)*t.cost.Post) + float64(float64(l.Awaits)*sharing.Await)
		if n.Size > exactSizeMax {
			// The vector is cut into many short chunks, and each is read from another area.
			work = float64(f.pieces(n, t.cost.PieceBytes) * (work + float64(float64(l.Steps)*sharing.Step)))
		}
		work += float64(bytes * (float64(l.Copied*t.cost.Copy) + float64(l.Combined*t.cost.Combine)))
		most, sum = max(most, work), sum+float64(work*f.ranks[i])
	}
	all := float64(sum / float64(n.Size) * (t.crowd(n) + 1))
	if n.Size > exactSizeMax && n.Size > t.cost.Processors {
		// Processors are idle while many ranks wait for the one with the most work.
		return all + most + float64(all*float64(sharing.Disorder*float64(f.depth)))
	}
	return max(most, all)
}

// pieces returns the number of pieces of a vector.
func (f *sharedFigures) pieces(n Need, pieceBytes int) float64 {
	posted := 0.0
	for _, l := range f.loads {
		posted = max(posted, l.Posted)
	}
	return max(1, math.Ceil(float64(float64(n.Bytes)*posted)/float64(pieceBytes)))
}

// exactSizeMax is the largest number of ranks with all plans evaluated, those of every root. The
// first call of a collective evaluates all its algorithms.
const exactSizeMax = 16

func sharedFiguresOf(a plan.Algorithm, n Need) *sharedFigures {
	f := &sharedFigures{cuttable: Cuttable(a, n)}
	if n.Size > exactSizeMax {
		if f.cuttable || a.Shared {
			f.estimate(a, n)
			f.unitsOf = func() { f.findUnits(a, n) }
		}
		return f
	}
	plans := a.Plans(n.Size, 0)
	s := shmexec.NewSchedule(plans)
	f.depth, f.chunks = depth(a, plans), plans[0].Chunks
	for rank := range n.Size {
		f.loads, f.ranks = append(f.loads, s.Compile(rank).Load()), append(f.ranks, 1)
	}
	if f.cuttable {
		return f
	}
	for root := range roots(n) {
		f.units = max(f.units, shmexec.NewSchedule(a.Plans(n.Size, root)).Units())
	}
	return f
}

// findUnits sets the units of a plan for many ranks that cannot be cut. Plans for shared memory without a
// root are few and short enough to be made; those of every root are not.
func (f *sharedFigures) findUnits(a plan.Algorithm, n Need) {
	if f.cuttable || n.Collective.Rooted() {
		return
	}
	f.chunks, f.units = a.Plan(0, n.Size, 0).Chunks, shmexec.ScheduleOf(a, n.Size, 0).Units()
}

// estimate sets the figures of an algorithm for many ranks except the loads, which addNext takes from the plans of a
// few ranks. The first rank may have more work than others.
func (f *sharedFigures) estimate(a plan.Algorithm, n Need) {
	f.depth, f.awaits = depthBeyond(a, n.Size, 4), a.PerPeer*(n.Size-1)
	f.rest = append(f.rest, rankSample{0, 1})
	others := [...]int{1, 2, n.Size / 2, n.Size - 1}
	for _, rank := range others {
		f.rest = append(f.rest, rankSample{rank, float64(n.Size-1) / float64(len(others))})
	}
}

// estimateGroups is estimate for the hierarchical algorithm with an index. The heads of groups and
// the ranks of the first group may have more work than others.
func (f *sharedFigures) estimateGroups(i int, a plan.Algorithm, n Need, groups plan.Hosts) {
	few := groups.First(3, 3)
	small := plan.AlgorithmsOn(n.Collective, few)[i]
	f.depth = depth(small, small.Plans(few.Size(), 0))
	second := groups.FirstRanks(2)[1] // the size of the first group, whose ranks are the first ones
	heads := float64(groups.Count() - 1)
	f.rest = []rankSample{{0, 1}, {1, float64(second - 1)}, {second, heads}, {second + 1, float64(n.Size-second) - heads}}
}

// addNext adds the load of the next rank of rest.
func (f *sharedFigures) addNext(a plan.Algorithm, n Need) {
	next := f.rest[0]
	f.rest = f.rest[1:]
	f.loads = append(f.loads, shmexec.LoadOf(a.Plan(next.rank, n.Size, 0)))
	f.ranks = append(f.ranks, next.ranks)
}

// Cuttable reports whether the vector can be cut into pieces for every root. A barrier has no
// vector. The messages of trees depend on the root. With more than exactSizeMax ranks it
// reports false if only some numbers of ranks allow it.
func Cuttable(a plan.Algorithm, n Need) bool {
	if a.Single || n.Collective.Descriptor().Empty() {
		return true
	}
	if n.Size > exactSizeMax {
		return false
	}
	for root := range roots(n) {
		for rank := range n.Size {
			if !a.Plan(rank, n.Size, root).Single() {
				return false
			}
		}
	}
	return true
}

// roots returns the number of possible roots.
func roots(n Need) int {
	if n.Collective.Rooted() {
		return n.Size
	}
	return 1
}

// chunkSlack is the number of bytes that alignment may add to a chunk.
const chunkSlack = 64 * 8

// fits reports whether the whole vector fits into a piece.
func (t *SharedTuner) fits(f *sharedFigures, n Need) bool {
	longest := 2 * n.Bytes // upper bound of the class
	return f.units > 0 && (longest/f.chunks+chunkSlack)*f.units <= t.cost.PieceBytes
}

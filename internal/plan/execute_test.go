package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// This is a second proof that shares no code with Check: it runs plans on numbers in memory and
// compares the results with an oracle without plans. Messages are buffered, moves copy slices,
// chunks differ in length.

// A vector is the memory of one buffer: chunk i is mem[at[i]:at[i+1]]. Only
// the chunks of [lo,hi) exist.
type vector struct {
	mem    []int64
	at     []int
	lo, hi int
}

// newVector fills the existing chunks with noise.
func newVector(rng *rand.Rand, lengths []int, lo, hi int) *vector {
	v := &vector{at: make([]int, len(lengths)+1), lo: lo, hi: hi}
	for i, n := range lengths {
		if i < lo || i >= hi {
			n = 0
		}
		v.at[i+1] = v.at[i] + n
	}
	v.mem = make([]int64, v.at[len(lengths)])
	for i := range v.mem {
		v.mem[i] = rng.Int64()
	}
	return v
}

func (v *vector) slice(lo, hi int) []int64 {
	if lo < v.lo || hi > v.hi || lo > hi {
		panic(fmt.Sprintf("chunks [%d:%d] of [%d:%d]", lo, hi, v.lo, v.hi))
	}
	return v.mem[v.at[lo]:v.at[hi]]
}

// A job is a collective on vectors of certain lengths with a certain op.
type job struct {
	c          Collective
	size, root int
	chunks     int
	length     func(rank, chunk int) int // of Input; swapped for Data of an all-to-all
	op         func(a, b int64) int64
	seed       uint64
	hold       int // barrier: the rank that does not begin, or -1
}

// A world is a job in progress.
type world struct {
	job
	plans    []Plan
	vectors  [][3]*vector // by rank and Buf
	messages map[[2]int][][]int64
	round    []int
	done     [][]bool // which moves of the round are
}

// lengths returns the lengths of the chunks of a buffer.
func (j *job) lengths(rank int, b Buf, chunks int) []int {
	ls := make([]int, chunks)
	for i := range ls {
		switch {
		case b == Data && j.c == AllToAll:
			ls[i] = j.length(i, rank)
		default:
			ls[i] = j.length(rank, i%j.chunks)
		}
	}
	return ls
}

// present returns the range of chunks of a buffer that a rank has.
func (j *job) present(rank int, b Buf) (lo, hi int) {
	none, mine, all := [2]int{0, 0}, [2]int{rank, rank + 1}, [2]int{0, j.chunks}
	have := map[Collective][2][2]int{
		Gather: {none, mine}, AllGather: {all, mine}, Scatter: {mine, none},
		ReduceScatter: {mine, all}, AllToAll: {all, all},
	}
	ranges, ok := have[j.c]
	if !ok {
		ranges = [2][2]int{all, none}
	}
	if rank == j.root && (j.c == Gather || j.c == Scatter) {
		ranges[map[Collective]int{Gather: 0, Scatter: 1}[j.c]] = all
	}
	return ranges[b][0], ranges[b][1]
}

// execute runs the plans and reports a deadlock or a message of wrong length.
func (j *job) execute(plans []Plan) (w *world, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	rng := rand.New(rand.NewPCG(j.seed, 1))
	w = &world{job: *j, plans: plans, messages: make(map[[2]int][][]int64),
		round: make([]int, j.size), done: make([][]bool, j.size)}
	for rank, p := range plans {
		var vs [3]*vector
		for _, b := range [...]Buf{Data, Input} {
			lo, hi := j.present(rank, b)
			vs[b] = newVector(rng, j.lengths(rank, b, j.chunks), lo, hi)
		}
		vs[Temp] = newVector(rng, j.lengths(rank, Temp, p.Temps), 0, p.Temps)
		w.vectors = append(w.vectors, vs)
	}
	for rank := range plans {
		w.eachInput(rank, func(chunk, i int, x *int64) { *x = w.input(rank, chunk, i) })
	}
	for progress := true; progress; {
		progress = false
		for rank := range plans {
			for rank != j.hold && w.advance(rank) {
				progress = true
			}
		}
	}
	if j.hold >= 0 {
		return w, nil
	}
	for rank, p := range plans {
		if w.round[rank] < len(p.Rounds) {
			return w, fmt.Errorf("rank %d never ends", rank)
		}
	}
	for pair, queue := range w.messages {
		if len(queue) > 0 {
			return w, fmt.Errorf("a message from %d to %d is left", pair[0], pair[1])
		}
	}
	return w, nil
}

// input returns an element of the input of a rank; all elements differ.
func (j *job) input(rank, chunk, i int) int64 {
	x := uint64(rank+1)<<40 ^ uint64(chunk+1)<<20 ^ uint64(i+1) ^ j.seed
	x = (x ^ x>>31) * 0x9E3779B97F4A7C15
	x = (x ^ x>>29) * 0xBF58476D1CE4E5B9
	return int64(x ^ x>>32)
}

// eachInput calls f for all elements of the input of a rank.
func (w *world) eachInput(rank int, f func(chunk, i int, x *int64)) {
	b := Data
	switch w.c {
	case Gather, AllGather, Scatter, ReduceScatter, AllToAll:
		b = Input
	case Broadcast:
		if rank != w.root {
			return
		}
	}
	v := w.vectors[rank][b]
	for chunk := v.lo; chunk < v.hi; chunk++ {
		for i := range v.slice(chunk, chunk+1) {
			f(chunk, i, &v.slice(chunk, chunk+1)[i])
		}
	}
}

// advance executes the moves of a rank that are ready, sends first, and reports whether there were
// any.
func (w *world) advance(rank int) bool {
	if w.round[rank] == len(w.plans[rank].Rounds) {
		return false
	}
	round := w.plans[rank].Rounds[w.round[rank]]
	did := w.done[rank] == nil
	if did {
		w.done[rank] = make([]bool, len(round))
		for i, m := range round {
			if m.Kind == Send {
				pair := [2]int{rank, m.Peer}
				w.messages[pair] = append(w.messages[pair], slices.Clone(w.get(rank, m.A)))
				w.done[rank][i] = true
			}
		}
	}
	for i, m := range round {
		if !w.done[rank][i] && w.do(rank, m) {
			w.done[rank][i], did = true, true
		}
	}
	if !slices.Contains(w.done[rank], false) {
		w.done[rank], did = nil, true
		w.round[rank]++
	}
	return did
}

func (w *world) get(rank int, s Span) []int64 { return w.vectors[rank][s.Buf].slice(s.Lo, s.Hi) }

// givesOnly reports whether a rank gives a buffer to the collective without a result in it.
func (j *job) givesOnly(rank int, b Buf) bool {
	switch {
	case b != Data:
		return b == Input
	case j.c == Broadcast:
		return rank == j.root
	case j.c == Reduction:
		return rank != j.root
	}
	return j.c == ExclusiveScan && rank == 0
}

// do executes a move, unless its message is missing.
func (w *world) do(rank int, m Move) bool {
	if m.Dst.Len() > 0 && w.givesOnly(rank, m.Dst.Buf) {
		panic(fmt.Sprintf("rank %d writes to %v, which it only gives", rank, m.Dst))
	}
	dst := w.get(rank, m.Dst)
	a, b := dst, dst
	if m.Kind == Recv || m.Kind == Reduce {
		pair := [2]int{m.Peer, rank}
		if len(w.messages[pair]) == 0 {
			return false
		}
		b = w.messages[pair][0]
		w.messages[pair] = w.messages[pair][1:]
	}
	if m.Kind != Recv {
		a = w.get(rank, m.A)
	}
	if m.Kind == Combine {
		b = w.get(rank, m.B)
	}
	if m.Left {
		a, b = b, a
	}
	if len(a) != len(dst) || len(b) != len(dst) {
		panic(fmt.Sprintf("lengths %d, %d and %d", len(dst), len(a), len(b)))
	}
	switch m.Kind {
	case Recv:
		copy(dst, b)
	case Copy:
		copy(dst, a)
	default:
		for i := range dst {
			dst[i] = w.op(a[i], b[i])
		}
	}
	return true
}

// want returns element i of a chunk of a rank's result; ok is false where the collective
// requires none.
func (j *job) want(rank, chunk, i int) (want int64, ok bool) {
	sum := func(ranks int) int64 {
		x := j.input(0, chunk, i)
		for other := 1; other < ranks; other++ {
			x = j.op(x, j.input(other, chunk, i))
		}
		return x
	}
	switch j.c {
	case Broadcast, Scatter:
		return j.input(j.root, chunk, i), true
	case Gather, AllGather:
		return j.input(chunk, chunk, i), true
	case AllToAll:
		return j.input(chunk, rank, i), true
	case AllReduce, ReduceScatter:
		return sum(j.size), true
	case Scan:
		return sum(rank + 1), true
	case Reduction:
		if rank == j.root {
			return sum(j.size), true
		}
		return j.input(rank, chunk, i), true
	case ExclusiveScan:
		if rank == 0 {
			return j.input(0, chunk, i), true
		}
		return sum(rank), true
	}
	return 0, false
}

// compare runs the plans and compares all results with the oracle.
func (j *job) compare(plans []Plan) error {
	w, err := j.execute(plans)
	if err != nil {
		return err
	}
	for rank := range plans {
		var wrong error
		w.eachInput(rank, func(chunk, i int, x *int64) {
			if w.vectors[rank][Input].hi > 0 && *x != w.input(rank, chunk, i) {
				wrong = fmt.Errorf("rank %d: Input, chunk %d, element %d has changed", rank, chunk, i)
			}
		})
		v := w.vectors[rank][Data]
		for chunk := v.lo; chunk < v.hi; chunk++ {
			for i, got := range v.slice(chunk, chunk+1) {
				if want, ok := j.want(rank, chunk, i); ok && got != want {
					wrong = fmt.Errorf("rank %d, chunk %d, element %d: got %d, want %d", rank, chunk, i, got, want)
				}
			}
		}
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// sameBits runs an all-reduce and requires only that all ranks agree.
func (j *job) sameBits(plans []Plan) error {
	w, err := j.execute(plans)
	if err != nil {
		return err
	}
	for rank := range plans {
		if !slices.Equal(w.vectors[rank][Data].mem, w.vectors[0][Data].mem) {
			return fmt.Errorf("ranks 0 and %d differ", rank)
		}
	}
	return nil
}

// holdsAll runs a barrier without one rank, and fails if another rank completes.
func (j *job) holdsAll(plans []Plan) error {
	if _, err := j.execute(plans); err != nil {
		return err
	}
	for held := range plans {
		late := *j
		late.hold = held
		w, err := late.execute(plans)
		if err != nil {
			return err
		}
		for rank, p := range plans {
			if rank != held && w.round[rank] == len(p.Rounds) {
				return fmt.Errorf("rank %d ends before rank %d begins", rank, held)
			}
		}
	}
	return nil
}

// The ops. Affine maps over a prime field compose associatively, but not commutatively; tangle
// is neither.
func add(a, b int64) int64 { return a + b }

func compose(a, b int64) int64 {
	const p = 2147483629
	ua, ub := uint64(a), uint64(b)
	a1, a0, b1, b0 := ua>>32%p, ua&0xFFFFFFFF%p, ub>>32%p, ub&0xFFFFFFFF%p
	return int64(a1*b1%p<<32 | (a1*b0+a0)%p)
}

func tangle(a, b int64) int64 { return a*0x5851F42D4C957F2D ^ (b<<17 | int64(uint64(b)>>47)) + 11 }

// right executes the plans of an algorithm, on chunks of one length and on uneven ones, and returns
// an error for a wrong result.
func right(c Collective, a Algorithm, root int, plans []Plan, seed uint64) error {
	size := len(plans)
	base := job{c: c, size: size, root: root, chunks: plans[0].Chunks, seed: seed, hold: -1, op: add}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.Chunks != base.chunks }) ||
		!c.Descriptor().Both && base.chunks != size || base.chunks < 1 {
		return errors.New("chunks")
	}
	if c == Barrier {
		base.length = func(int, int) int { return 0 }
		return base.holdsAll(plans)
	}
	uneven := func(rank, chunk int) int {
		x := uint64(chunk+1)*2654435761 + seed
		if c == AllToAll {
			x += uint64(rank+1) * 40503
		}
		return []int{0, 1, 2, 3, 7, 20}[x>>7%6]
	}
	for _, length := range []func(rank, chunk int) int{func(int, int) int { return 1 }, uneven} {
		if base.length = length; (c == AllToAll || c.Descriptor().wholeBlocks()) && !a.Uneven {
			base.length = func(int, int) int { return 3 }
		}
		err := base.compare(plans)
		if ordered := base; err == nil && (a.Ordered || c == Scan || c == ExclusiveScan) {
			ordered.op = compose
			err = ordered.compare(plans)
		}
		if tangled := base; err == nil && c == AllReduce {
			tangled.op = tangle
			err = tangled.sameBits(plans)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestComposeIsAssociativeButNotCommutative(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		a, b, c := rng.Int64(), rng.Int64(), rng.Int64()
		if l, r := compose(compose(a, b), c), compose(a, compose(b, c)); l != r {
			t.Fatalf("(a b) c = %d, a (b c) = %d", l, r)
		}
		if compose(a, b) == compose(b, a) {
			t.Fatalf("%d and %d commute", a, b)
		}
	}
}

func TestExecution(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for _, size := range executedSizes {
			for _, root := range roots(c, a, size) {
				for seed := range uint64(2) {
					if err := right(c, a, root, a.Plans(size, root), seed); err != nil {
						t.Fatalf("size %d, root %d, seed %d: %v", size, root, seed, err)
					}
				}
			}
		}
	})
}

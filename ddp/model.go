package ddp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/nexar-go/nexar"
)

// A Model is the parameters of a program on one rank. Its methods are for one goroutine, except for [Model.Ready].
type Model[T Float] struct {
	comm     *nexar.Comm
	cfg      Config
	params   []Param[T]
	learned  bool // the order of buckets follows the first step
	buckets  [][]int
	bucketOf []int // by parameter
	reducer  reducer[T]

	mu   sync.Mutex
	step *step[T] // between Begin and Finish
}

// A step is a step in progress. Model.mu guards its fields.
type step[T Float] struct {
	counts  []int64 // the samples of each rank
	total   int
	isReady []bool // by parameter
	order   []int32
	left    []int    // by bucket: parameters that are not ready
	next    int      // the first bucket that is not passed to the worker
	work    chan int // buckets for the worker
	done    chan struct{}
	cancel  context.CancelCauseFunc // of the reductions

	// Of the worker, until done is closed.
	err       error
	nonFinite int // the first parameter with an element that is infinite or NaN, plus 1
	handles   []*nexar.Handle
}

// New returns the Model of a communicator. All ranks call it as they call a collective, with parameters of the same names and lengths in the
// same order, and get the Data of [Config.Root]. If the configurations or parameters differ, all ranks get a [DifferenceError].
//
// The Model has a communicator of its own, so that the program may make collectives on c during a step.
func New[T Float](ctx context.Context, c *nexar.Comm, params []Param[T], cfg Config) (*Model[T], error) {
	m, err := newModel(ctx, c, params, cfg)
	if err != nil {
		return nil, err
	}
	data := make([][]T, len(params))
	for i, p := range params {
		data[i] = p.Data
	}
	if err := nexar.BroadcastBuckets(ctx, m.comm, data, m.cfg.Root); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// newModel is New without the broadcast.
func newModel[T Float](ctx context.Context, c *nexar.Comm, params []Param[T], cfg Config) (*Model[T], error) {
	full, invalid := cfg.complete(c.Size())
	if invalid == nil {
		invalid = checkParams(params)
	}
	text := fmt.Sprintf("BucketBytes %d, Format %d, a Compressor %t, MaxNorm %v, NonFinite %d, Root %d",
		full.BucketBytes, full.Format, full.Compressor != nil, full.MaxNorm, full.NonFinite, full.Root)
	if invalid != nil {
		text = invalid.Error() // The other ranks wait for this one, and learn why it fails.
	}
	traits := []trait{{hashOf([]byte(text)), text}}
	for i := range params {
		traits = append(traits, params[i].shape())
	}
	err := agree(ctx, c, traits, func(i int) string {
		if i == 0 {
			return "the configuration"
		}
		return fmt.Sprint("parameter ", i-1)
	})
	if invalid != nil {
		return nil, invalid
	}
	if err != nil {
		return nil, err
	}
	own, err := c.Dup(ctx)
	if err != nil {
		return nil, err
	}
	m := &Model[T]{comm: own, cfg: full, params: slices.Clone(params), learned: c.Deterministic() || len(params) == 1}
	m.reducer = m.newReducer()
	order := make([]int32, len(params))
	for i := range order { // Backward passes end with the first parameter.
		order[i] = int32(len(params) - 1 - i)
	}
	m.plan(order)
	return m, nil
}

// plan puts the parameters into buckets, in an order.
func (m *Model[T]) plan(order []int32) {
	m.buckets, m.bucketOf = nil, make([]int, len(m.params))
	bytes := m.cfg.BucketBytes // of the last bucket
	for _, i := range order {
		size := len(bytesOf(m.params[i].Grad))
		if bytes+size > m.cfg.BucketBytes {
			m.buckets, bytes = append(m.buckets, nil), 0
		}
		last := len(m.buckets) - 1
		m.buckets[last] = append(m.buckets[last], int(i))
		m.bucketOf[i] = last
		bytes += size
	}
	m.reducer.planned(m.buckets)
}

// Comm returns the communicator of the Model, which the program must not use during a step.
func (m *Model[T]) Comm() *nexar.Comm { return m.comm }

// Close closes the communicator of the Model. A step in progress fails on all ranks. The program keeps the parameters.
func (m *Model[T]) Close() error {
	m.mu.Lock()
	s := m.step
	m.step = nil
	m.mu.Unlock()
	err := m.comm.Close()
	if s != nil { // a step without Finish
		close(s.work)
		<-s.done
		s.cancel(nil)
		_ = nexar.WaitAll(s.handles...) // From then on nothing writes to the gradients.
	}
	return err
}

// Begin begins a step. samples is the number of samples of this rank; total is that of all ranks. It is a
// collective of 8 bytes. If no rank has samples, it returns 0, and no step has begun: all data has been used.
//
// ctx is that of the whole step: if it ends before [Model.Finish] returns, the communicator of the Model ends on all ranks.
func (m *Model[T]) Begin(ctx context.Context, samples int) (total int, err error) {
	m.mu.Lock()
	inStep := m.step != nil
	m.mu.Unlock()
	switch {
	case inStep:
		panic("ddp: Begin before Finish of the step before")
	case samples < 0:
		panic(fmt.Sprintf("ddp: Begin: %d samples, must not be negative", samples))
	}
	counts, err := nexar.AllGatherOne(ctx, m.comm, int64(samples))
	if err != nil {
		return 0, err
	}
	for rank, n := range counts {
		if n < 0 || n > int64(math.MaxInt-total) {
			return 0, fmt.Errorf("ddp: rank %d began a step with %d samples, want 0 or more, and at most %d on all ranks", rank, n, math.MaxInt)
		}
		total += int(n)
	}
	if total == 0 {
		return 0, nil
	}
	s := &step[T]{
		counts: counts, total: total, isReady: make([]bool, len(m.params)),
		left: make([]int, len(m.buckets)), work: make(chan int, len(m.buckets)), done: make(chan struct{}),
	}
	for i, b := range m.buckets {
		s.left[i] = len(b)
	}
	ctx, s.cancel = context.WithCancelCause(ctx)
	m.mu.Lock()
	m.step = s
	m.mu.Unlock()
	go m.reduce(ctx, s)
	return total, nil
}

// Ready says that the gradient of a parameter, given by its index, is complete: the mean over the samples of this rank. It does not block. The program
// must neither read nor write the gradient until [Model.Finish]. Any goroutine may call Ready. Before [Model.Begin] it has no effect.
//
// A parameter that is used twice in a model is ready after its last use. A second call for a parameter in a step panics.
func (m *Model[T]) Ready(param int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.step != nil {
		m.readyLocked(param)
	}
}

func (m *Model[T]) readyLocked(param int) {
	s := m.step
	if s.isReady[param] {
		panic(fmt.Sprintf("ddp: Ready(%d): %q was ready before in this step; a parameter that is used twice is ready after its last use", param, m.params[param].Name))
	}
	s.isReady[param] = true
	s.order = append(s.order, int32(param))
	s.left[m.bucketOf[param]]--
	for s.next < len(s.left) && s.left[s.next] == 0 { // the same order on all ranks
		s.work <- s.next
		s.next++
	}
}

// A Result tells about a step. It is the same on all ranks.
type Result struct {
	Samples int // of all ranks
	// Norm is the global norm of the gradients before it was limited, if Config.MaxNorm is not 0.
	Norm float64
	// Skipped says that gradients of NonFinite had infinite or NaN elements, with the policy Skip. All gradients are 0.
	Skipped   bool
	NonFinite []NonFinite // the ranks with such gradients; empty with the policy Pass
}

// NoRank is the Rank of a [NonFinite] if the gradients of all ranks are finite, but their sum is not.
const NoRank = -1

// A NonFinite is a gradient with an element that is infinite or NaN.
type NonFinite struct {
	Rank  int // or NoRank
	Param int // the first one of the rank
}

// A NonFiniteError says that gradients have elements that are infinite or NaN.
type NonFiniteError struct {
	NonFinite
	Name  string // of the parameter
	Ranks int    // with such gradients
}

// Error names the first rank and its first parameter.
func (e *NonFiniteError) Error() string {
	if e.Rank == NoRank {
		return fmt.Sprintf("ddp: the gradients of parameter %d, %q, are finite on all ranks, but their sum is not: scale the loss down", e.Param, e.Name)
	}
	text := fmt.Sprintf("ddp: the gradient of parameter %d, %q, on rank %d has an infinite or NaN element", e.Param, e.Name, e.Rank)
	if e.Ranks > 1 {
		text += fmt.Sprintf("; so have gradients of %d other ranks", e.Ranks-1)
	}
	return text
}

// Finish waits until all gradients are reduced: each Grad is the mean over the samples of all ranks, with the same bits on all of them. Gradients of
// parameters that were not ready on this rank, as they were not used, count as 0. If ctx or that of Begin ends first, the communicator of the Model ends
// on all ranks.
func (m *Model[T]) Finish(ctx context.Context) (Result, error) {
	m.mu.Lock()
	s := m.step
	if s == nil {
		m.mu.Unlock()
		panic("ddp: Finish without Begin")
	}
	for _, b := range m.buckets {
		for _, i := range b {
			if !s.isReady[i] {
				clear(m.params[i].Grad)
				m.readyLocked(i)
			}
		}
	}
	m.step = nil
	m.mu.Unlock()
	defer s.cancel(nil)
	defer context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })()
	close(s.work)
	<-s.done
	err := s.err
	if len(s.handles) > 0 {
		if e := nexar.WaitAll(s.handles...); err == nil {
			err = e
		}
	}
	if err != nil {
		return Result{}, err
	}
	if err := m.learn(ctx, s); err != nil {
		return Result{}, err
	}
	return m.result(ctx, s)
}

// learn plans the buckets after the first step, in the order of Config.Root.
func (m *Model[T]) learn(ctx context.Context, s *step[T]) error {
	if m.learned {
		return nil
	}
	if err := nexar.Broadcast(ctx, m.comm, s.order, m.cfg.Root); err != nil {
		return err
	}
	for i, param := range slices.Sorted(slices.Values(s.order)) {
		if param != int32(i) {
			return fmt.Errorf("ddp: rank %d has sent an order of buckets without parameter %d", m.cfg.Root, i)
		}
	}
	m.learned = true
	m.plan(s.order)
	return nil
}

// result exchanges the first non-finite gradients of all ranks, and limits the norm.
func (m *Model[T]) result(ctx context.Context, s *step[T]) (Result, error) {
	r := Result{Samples: s.total}
	if m.cfg.NonFinite != Pass {
		found, err := nexar.AllGatherOne(ctx, m.comm, int32(s.nonFinite))
		if err != nil {
			return Result{}, err
		}
		for rank, param := range found {
			if param < 0 || int(param) > len(m.params) {
				return Result{}, fmt.Errorf("ddp: rank %d has sent a NaN of parameter %d, of %d parameters", rank, param-1, len(m.params))
			}
			if param > 0 {
				r.NonFinite = append(r.NonFinite, NonFinite{rank, int(param) - 1})
			}
		}
	}
	if m.cfg.NonFinite != Pass && len(r.NonFinite) == 0 {
		if i := slices.IndexFunc(m.params, func(p Param[T]) bool { return !isFinite(p.Grad) }); i >= 0 {
			r.NonFinite = []NonFinite{{NoRank, i}} // on all ranks, as they have the same bits
		}
	}
	if len(r.NonFinite) > 0 {
		for _, p := range m.params {
			clear(p.Grad)
		}
		if m.cfg.NonFinite == Fail {
			first := r.NonFinite[0]
			return Result{}, &NonFiniteError{first, m.params[first.Param].Name, len(r.NonFinite)}
		}
		r.Skipped = true
		return r, nil
	}
	if m.cfg.MaxNorm > 0 {
		r.Norm = m.limit()
	}
	return r, nil
}

// Check returns a [DifferenceError] on all ranks if the Data of a parameter has other bits on some ranks, as after an update that depends on the
// rank. All ranks call it between two steps; it reads all parameters, and costs little beyond that.
func (m *Model[T]) Check(ctx context.Context) error {
	traits := make([]trait, len(m.params))
	for i := range m.params {
		traits[i] = m.params[i].content()
	}
	return agree(ctx, m.comm, traits, func(i int) string { return fmt.Sprint("parameter ", i) })
}

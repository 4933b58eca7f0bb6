package conformance

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A commNode is a communicator of a random program, with the steps of its ranks, which
// run one after the other. Several communicators run at the same time.
type commNode struct {
	id    int
	ranks []int // of the world
	steps []commStep
}

// A commStep creates communicators, or checks that no message is lost or mixed up with others.
type commStep struct {
	what         string
	colors, keys []int // by rank
	list         []int // for sub
	made         []*commNode
	count        int
	shift        int
}

func (s commStep) String() string {
	switch s.what {
	case "split":
		return fmt.Sprintf("split by %v and %v", s.colors, s.keys)
	case "sub":
		return fmt.Sprintf("sub of %v", s.list)
	}
	return fmt.Sprintf("%s of %d, %d further", s.what, s.count, s.shift)
}

// A generator draws programs, with a limited number of communicators.
type generator struct{ id, most int }

func (g *generator) grow(r *rapid.T, ranks []int, depth int) *commNode {
	v := &commNode{id: g.id, ranks: ranks}
	g.id++
	n := len(ranks)
	kinds := []string{"all_reduce", "all_gather", "broadcast", "started", "barrier", "message", "call"}
	for range rapid.IntRange(1, 5).Draw(r, "steps") {
		s := commStep{
			what:  rapid.SampledFrom(kinds).Draw(r, "step"),
			count: rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(1000, 20_000)).Draw(r, "count"),
			shift: rapid.IntRange(0, n-1).Draw(r, "shift"),
		}
		if depth > 0 && g.id < g.most && rapid.IntRange(0, 2).Draw(r, "make") > 0 {
			s = g.split(r, ranks, depth)
		}
		v.steps = append(v.steps, s)
	}
	return v
}

// split draws a step that creates communicators.
func (g *generator) split(r *rapid.T, ranks []int, depth int) commStep {
	n := len(ranks)
	s := commStep{what: rapid.SampledFrom([]string{"split", "split", "dup", "sub"}).Draw(r, "how")}
	s.colors, s.keys = make([]int, n), make([]int, n)
	switch s.what {
	case "dup":
		for rank := range s.keys {
			s.keys[rank] = rank
		}
	case "split":
		s.colors = rapid.SliceOfN(rapid.IntRange(-1, 2), n, n).Draw(r, "colors")
		s.keys = rapid.SliceOfN(rapid.IntRange(-2, 2), n, n).Draw(r, "keys")
	case "sub":
		s.list = rapid.Permutation(rangeOf(n)).Draw(r, "list")[:rapid.IntRange(0, n).Draw(r, "of")]
		for rank := range n {
			s.keys[rank] = slices.Index(s.list, rank)
			s.colors[rank] = min(0, s.keys[rank])
		}
	}
	for color := range 3 {
		members := slices.DeleteFunc(rangeOf(n), func(rank int) bool { return s.colors[rank] != color })
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(s.keys[a], s.keys[b]) })
		for i, rank := range members {
			members[i] = ranks[rank]
		}
		if len(members) > 0 {
			s.made = append(s.made, g.grow(r, members, depth-1))
		}
	}
	return s
}

func rangeOf(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// A runner runs a program on one rank.
type runner struct {
	ctx    context.Context
	world  *nexar.Comm
	fail   func(error)
	groves sync.WaitGroup
}

// run runs the steps of a commNode on a communicator, and those of its children on theirs
// at the same time.
func (w *runner) run(v *commNode, c *nexar.Comm) {
	err := isOf(w.world, c, v.ranks...)
	c.Register("where", func(_ context.Context, from int, args []byte) ([]byte, error) {
		return append(args, byte(v.id), byte(from), byte(c.Rank())), nil
	})
	if err == nil {
		err = c.Barrier(w.ctx)
	}
	for i := 0; i < len(v.steps) && err == nil; i++ {
		if err = w.step(v, i, c); err != nil {
			err = fmt.Errorf("communicator %d of %v, step %d, %v: %w", v.id, v.ranks, i, v.steps[i], err)
		}
	}
	if err == nil && c != w.world {
		// All its operations have ended, except for calls of late ranks.
		err = errors.Join(c.Barrier(w.ctx), c.Close())
	}
	if err != nil {
		w.fail(err)
	}
}

func (w *runner) step(v *commNode, i int, c *nexar.Comm) error {
	s := v.steps[i]
	var child *nexar.Comm
	var err error
	switch s.what {
	case "split":
		child, err = c.Split(w.ctx, s.colors[c.Rank()], s.keys[c.Rank()])
	case "dup":
		child, err = c.Dup(w.ctx)
	case "sub":
		child, err = c.Sub(w.ctx, s.list)
	default:
		return marked{v.id, i, s, w.ctx, c}.try()
	}
	at := slices.IndexFunc(s.made, func(g *commNode) bool { return slices.Contains(g.ranks, w.world.Rank()) })
	switch {
	case err != nil:
		return err
	case (child != nil) != (at >= 0):
		return fmt.Errorf("a communicator: %v, want one: %v", child != nil, at >= 0)
	case child != nil:
		w.groves.Go(func() { w.run(s.made[at], child) })
	}
	return nil
}

// A marked step has payloads that differ from those of every other communicator, step and
// rank.
type marked struct {
	comm, number int
	commStep
	ctx context.Context
	c   *nexar.Comm
}

func (m marked) element(rank, i int) int64 {
	return int64(worldtest.Mix(uint64(m.comm)<<40 | uint64(m.number)<<32 | uint64(rank)<<24 | uint64(i)))
}

func (m marked) vector(rank, count int) []int64 {
	x := make([]int64, count)
	for i := range x {
		x[i] = m.element(rank, i)
	}
	return x
}

func (m marked) try() error {
	n, rank := m.c.Size(), m.c.Rank()
	switch m.what {
	case "barrier":
		return m.c.Barrier(m.ctx)
	case "broadcast":
		x := m.vector(rank, m.count)
		return cmp.Or(nexar.Broadcast(m.ctx, m.c, x, m.shift), m.same(x, m.vector(m.shift, m.count)))
	case "all_gather":
		dst, want := make([]int64, n*m.count), []int64(nil)
		for r := range n {
			want = append(want, m.vector(r, m.count)...)
		}
		return cmp.Or(nexar.AllGather(m.ctx, m.c, dst, m.vector(rank, m.count)), m.same(dst, want))
	case "all_reduce", "started":
		x, want := m.vector(rank, m.count), make([]int64, m.count)
		for i := range want {
			for r := range n {
				want[i] += m.element(r, i)
			}
		}
		if m.what == "started" {
			return cmp.Or(nexar.StartAllReduce(m.ctx, m.c, x, nexar.Sum).Wait(), m.same(x, want))
		}
		return cmp.Or(nexar.AllReduce(m.ctx, m.c, x, nexar.Sum), m.same(x, want))
	case "message":
		to, from := (rank+m.shift)%n, (rank+n-m.shift)%n
		x := make([]int64, m.count)
		got, err := nexar.Exchange(m.ctx, m.c, x, m.vector(rank, m.count), to, from, nexar.Tag(m.shift))
		if want := (nexar.Status{Source: from, Tag: nexar.Tag(m.shift), Count: m.count}); err == nil && got != want {
			return fmt.Errorf("received %+v, want %+v", got, want)
		}
		return cmp.Or(err, m.same(x, m.vector(from, m.count)))
	}
	return m.call((rank + m.shift) % n)
}

// same compares a result.
func (m marked) same(got, want []int64) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("element %d of %d is %#x, want %#x", i, len(want), got[i], want[i])
		}
	}
	return nil
}

// call makes a remote call that returns the communicator and the caller.
func (m marked) call(to int) error {
	args := binary.BigEndian.AppendUint64(nil, uint64(m.element(m.c.Rank(), 0)))
	got, err := m.c.Call(m.ctx, to, "where", slices.Clone(args))
	if want := append(slices.Clip(args), byte(m.comm), byte(m.c.Rank()), byte(to)); err == nil && !slices.Equal(got, want) {
		return fmt.Errorf("rank %d answers %x, want %x", to, got, want)
	}
	return err
}

// runComms creates a world and runs a program on all its ranks.
func runComms(m worldtest.Medium, v *commNode) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*worldtest.Patience)
	defer cancel()
	comms, closing, err := m.Form(ctx, len(v.ranks), nexar.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	return worldtest.ForEach(len(comms), func(rank int) (err error) {
		var mu sync.Mutex
		w := &runner{ctx: ctx, world: comms[rank], fail: func(e error) {
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, e)
			cancel() // so that no rank waits for it
		}}
		w.run(v, comms[rank])
		w.groves.Wait()
		return err
	})
}

// TestRandomCommunicators creates communicators from communicators, and runs random
// operations on all of them at once.
func TestRandomCommunicators(t *testing.T) {
	t.Logf("-rapid.seed=%s", flag.Lookup("rapid.seed").Value)
	draw := rapid.Custom(func(r *rapid.T) *commNode {
		n := rapid.IntRange(1, 6).Draw(r, "ranks")
		return (&generator{most: 12}).grow(r, rangeOf(n), 3)
	})
	t.Run("mem", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) {
			if err := runComms(worldtest.Mem(), draw.Draw(r, "program")); err != nil {
				r.Fatal(err)
			}
		})
	})
	for _, m := range worldtest.Media(worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC(), worldtest.SHM(), worldtest.Mixed()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			rng, examples := rand.New(rand.NewPCG(3, 4)), 10
			if !worldtest.AllTrials() {
				examples = 3
			}
			for range examples {
				seed := rng.Int()
				if err := runComms(m, draw.Example(seed)); err != nil {
					t.Fatalf("example %d: %v", seed, err)
				}
			}
		})
	}
}

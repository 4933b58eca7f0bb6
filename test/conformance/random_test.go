package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestRandomPrograms runs random sequences of collectives, at a different pace on each
// rank, so that several run at once, with messages in between.
func TestRandomPrograms(t *testing.T) {
	t.Logf("-rapid.seed=%s", flag.Lookup("rapid.seed").Value)
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim()) {
		t.Run(m.Name, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				n := rapid.IntRange(1, 6).Draw(r, "ranks")
				b := trialGenerator{n: n, kinds: kinds(), network: m.Cost}
				steps := rapid.SliceOfN(rapid.Custom(b.drawStep), 1, 12).Draw(r, "steps")
				if err := runProgram(m, n, steps); err != nil {
					r.Fatal(err)
				}
			})
		})
	}
}

// A step of a program is a collective, or a message from each rank r to rank r+shift.
type step struct {
	trial
	shift  int
	pauses []int // of each rank before the step, in units of 10 µs
}

func (s step) String() string {
	if s.shift > 0 {
		return fmt.Sprintf("%d × %v to the rank %d further, pauses %v", s.count, s.kind.typ, s.shift, s.pauses)
	}
	return fmt.Sprintf("%v, pauses %v", s.trial, s.pauses)
}

func (b *trialGenerator) drawStep(r *rapid.T) step {
	var s step
	s.late = -1
	s.kind = rapid.SampledFrom(b.kinds).Draw(r, "type")
	s.op = rapid.SampledFrom(s.kind.ops()).Draw(r, "op")
	s.flavour = flavour(rapid.IntRange(0, int(flavours)-1).Draw(r, "flavour"))
	s.count = rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 3000), rapid.IntRange(8000, 70_000)).Draw(r, "count")
	s.pauses = rapid.SliceOfN(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 30)), b.n, b.n).Draw(r, "pauses")
	if rapid.IntRange(0, 5).Draw(r, "message") == 0 {
		s.shift = rapid.IntRange(1, b.n).Draw(r, "shift")
		return s
	}
	s.collective = rapid.SampledFrom(plan.Collectives()).Draw(r, "collective")
	s.root = rapid.IntRange(0, b.n-1).Draw(r, "root")
	list := b.algorithms(s.collective)
	s.algorithm = rapid.IntRange(-1, len(list)-1).Draw(r, "algorithm")
	ordered := s.collective == plan.Scan || s.collective == plan.ExclusiveScan
	if s.algorithm >= 0 && (!list[s.algorithm].Fits(b.n) || ordered && !list[s.algorithm].Ordered) {
		s.algorithm = -1
	}
	if s.algorithm >= 0 {
		s.channels = rapid.SampledFrom(b.channels(s.collective, list[s.algorithm], s.root)).Draw(r, "channels")
	}
	ordered = s.algorithm < 0 || list[s.algorithm].Ordered
	s.custom = s.collective == plan.AllReduce && ordered && rapid.Bool().Draw(r, "custom")
	return s
}

// runProgram creates a world and runs the steps on all its ranks.
func runProgram(m worldtest.Medium, n int, steps []step) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), worldtest.Patience)
	defer cancel()
	comms, closing, err := m.Form(ctx, n, nexar.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	results := make([][][]byte, len(steps)) // by step and rank
	for i := range results {
		results[i] = make([][]byte, n)
	}
	err = worldtest.ForEach(n, func(rank int) error {
		for i, s := range steps {
			time.Sleep(time.Duration(s.pauses[rank]) * 10 * time.Microsecond)
			var err error
			if s.shift > 0 {
				err = s.pass(ctx, comms[rank], i)
			} else {
				results[i][rank], err = s.on(ctx, comms[rank])
			}
			if err != nil {
				comms[rank].Close() // so that no rank waits for it
				return fmt.Errorf("step %d, %v:\n%w", i, s, err)
			}
		}
		return nil
	})
	for i, s := range steps {
		if err == nil {
			err = s.compare(results[i])
		}
	}
	return err
}

// pass sends a message to the rank of this one plus shift, and receives one.
func (s step) pass(ctx context.Context, c *nexar.Comm, tag int) error {
	n := c.Size()
	to, from := (c.Rank()+s.shift)%n, (c.Rank()-s.shift+n)%n
	sent := make(chan error, 1)
	go func() { sent <- nexar.Send(ctx, c, stream{c.Rank(), to, 0}.message(s.count), to, nexar.Tag(tag)) }()
	want := stream{from, c.Rank(), 0}
	buf := make([]int32, len(want.message(s.count)))
	got, err := nexar.Recv(ctx, c, buf, from, nexar.Tag(tag))
	if err != nil {
		return errors.Join(err, <-sent)
	}
	got.Tag = 0
	return errors.Join(want.check(s.count, got, buf), <-sent)
}

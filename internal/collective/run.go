package collective

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// A Runner begins the collectives of a communicator on one of its ranks.
type Runner struct {
	Engine     *engine.Comm
	Selector   *selector.Selector
	Rank, Size int
	*Settings
}

// Settings apply to all communicators of a node. A timeout limits the time without progress; 0 means
// no limit.
type Settings struct {
	Timeout            time.Duration // for collectives without a timeout of their own
	BarrierTimeout     time.Duration
	ReconfigureTimeout time.Duration
	Deterministic      bool // results have the same bits with every algorithm
}

// Begin gives a task its sequence number and starts it. t.Err must be nil. The error is one of the
// engine.
func (r *Runner) Begin(t *Task) (*engine.Op, error) {
	if t.Before != nil {
		t.Before()
	}
	t.Canonical = r.Canonical(t.Kind) && t.Op != 0
	t.Schedule, t.Work.Timeout = r.Selector.Schedule(&t.Shape), r.timeout(t)
	work := &t.Work
	if t.InPlace {
		merged := t.inPlace()
		work = &merged
	}
	if t.Prepare != nil {
		on, err := t.Prepare(*work)
		if err != nil {
			return nil, err
		}
		work.Device = on
	}
	return r.Engine.Start(work)
}

// End waits for the end of a task that Begin has started. The error is one of the engine.
func (t *Task) End(ctx context.Context, op *engine.Op) error {
	if err := op.Wait(ctx); err != nil {
		return err
	}
	if t.Empty {
		kernel.Identity(kernel.Type(t.Type), kernel.Op(t.Op), t.Data)
	}
	if t.Divisor > 1 {
		kernel.Divider(kernel.Type(t.Type))(t.Data, t.Divisor)
	}
	if t.After != nil {
		t.After()
	}
	return nil
}

// Canonical reports whether results of a kind must have the same bits with every algorithm.
func (r *Runner) Canonical(kind plan.Collective) bool { return r.Deterministic && kind.Reduces() }

// timeout returns the limit of the time without progress of a task.
func (r *Runner) timeout(t *Task) time.Duration {
	switch {
	case t.Kind == plan.Barrier:
		return r.BarrierTimeout
	case t.Op == ReconfigureOp, t.Op == IncludeOp:
		return r.ReconfigureTimeout
	}
	return r.Settings.Timeout
}

// inPlace returns the work of a task in place: Data and Input are the same buffer, the longer of the
// two.
func (t *Task) inPlace() exec.Work {
	w := t.Work
	if len(w.Input) > len(w.Data) {
		w.Data, w.DataFirst = w.Input, w.InputFirst
	}
	w.Input, w.InputFirst = w.Data, w.DataFirst // Some plans use both.
	return w
}

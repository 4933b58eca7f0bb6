// Package profile marks the operations of a program in CPU profiles and execution traces of the Go runtime.
package profile

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
)

// Labels are the labels of a communicator in CPU profiles. A nil *Labels has none.
type Labels struct{ rank, comm string }

// NewLabels returns the labels of a rank in a communicator with a name.
func NewLabels(rank int, comm string) *Labels { return &Labels{strconv.Itoa(rank), comm} }

// On reports whether Begin has an effect: if there are labels, or an execution trace is being written.
func (l *Labels) On() bool { return l != nil || trace.IsEnabled() }

// Begin makes an operation a task of the execution trace, and labels the goroutine until end, which gives it the labels of ctx again.
func (l *Labels) Begin(ctx context.Context, op string) (end func()) {
	if !l.On() {
		return func() {}
	}
	_, task := trace.NewTask(ctx, "nexar."+op)
	if l == nil {
		return task.End
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels("nexar_op", op, "nexar_comm", l.comm, "nexar_rank", l.rank)))
	return func() {
		pprof.SetGoroutineLabels(ctx)
		task.End()
	}
}

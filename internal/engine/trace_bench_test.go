package engine

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
)

// BenchmarkTracing measures the cost of tracing a brief operation.
func BenchmarkTracing(b *testing.B) {
	for name, about := range map[string]*recorder.Comm{"recorded": {Epoch: 1}, "not": nil} {
		b.Run(name, func(b *testing.B) {
			e := New(Config{})
			defer e.Close()
			e.begin(watchTick) // keeps the watchdog awake
			c := newComm(e, commID, nil)
			c.traced = about
			work := exec.Work{Schedule: &exec.Schedule{Plan: new(linkexec.Program), Channels: 1, Brief: true}, Data: make([]byte, 8)}
			op := c.newOpLocked(&work)
			op.exec.StartLocked(&op.call.Call, &op.work)
			c.calls.end(op.call)
			b.ReportAllocs()
			for b.Loop() {
				c.seq++
				op.call = c.calls.put(op, c.seq, callsTraced)
				op.call.Call = wire.Call{Comm: c.id, Seq: c.seq, Kind: 4, Channels: 1}
				op.stampLocked()
				op.traceLocked()
				c.calls.end(op.call)
			}
		})
	}
}

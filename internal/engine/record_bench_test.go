package engine

import (
	"testing"

	"github.com/nexar-go/nexar/internal/shmcoll"
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/internal/wire"
)

// BenchmarkNote is what the record of an operation on a board takes: its own part,
// without what the operation does otherwise.
func BenchmarkNote(b *testing.B) {
	for name, about := range map[string]*trace.Comm{"recorded": {Epoch: 1}, "not": nil} {
		b.Run(name, func(b *testing.B) {
			e := New(Config{})
			defer e.Close()
			e.begin() // keeps the watch awake
			c := newComm(e, commID, -1)
			c.about = about
			op := &Op{comm: c}
			op.work = Work{Recipe: &Recipe{Shared: new(shmcoll.Program)}, Data: make([]byte, 8)}
			op.channels = 1
			b.ReportAllocs()
			for b.Loop() {
				c.seq++
				op.call = wire.Call{Comm: c.id, Seq: c.seq, Kind: 4, Channels: 1}
				op.stamp()
				op.note()
			}
		})
	}
}

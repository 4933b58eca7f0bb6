package collective

import (
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// WaitOperation returns the call of a wait as snapshots have it, without the ranks that it waits for.
func WaitOperation(w *wire.Wait) trace.Operation {
	o := trace.Operation{
		Comm: recorder.CommName(w.Call.Comm), Root: -1, Peer: -1, Tag: w.Tag, Duration: time.Duration(min(w.For, 1<<62)), Site: w.Site,
		Op: [...]string{wire.WaitSend: "send", wire.WaitRecv: "recv", wire.WaitProbe: "probe", wire.WaitNone: "nothing"}[w.Kind],
	}
	if w.Kind == wire.WaitCollective {
		o.Seq = w.Call.Seq
	} else if !w.Any && len(w.Peers) > 0 {
		o.Peer = int(w.Peers[0].Rank)
	}
	return Operations([]engine.Trace{{Operation: o, Call: w.Call}})[0]
}

package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// A silentConn prefers remote writes to its memory. Its peer writes nothing, and does not answer when a grant of memory
// is recalled.
type silentConn struct {
	transport.Conn
	recalled *atomic.Int32
}

func (c *silentConn) Capabilities() transport.Capabilities {
	return transport.Capabilities{RemoteMemory: c}
}

func (c *silentConn) Suits([]byte) bool { return true }

func (c *silentConn) Register(memory []byte) (transport.Registration, error) {
	return silentMemory{c, len(memory)}, nil
}

func (c *silentConn) WriteRemote(context.Context, transport.RemoteKey, int, []byte) error {
	return transport.ErrRemoteAccess
}

// silentMemory is registered memory and its only grant.
type silentMemory struct {
	conn *silentConn
	n    int
}

func (m silentMemory) Grant(_, n int) (transport.Grant, error) { return silentMemory{m.conn, n}, nil }
func (m silentMemory) Deregister()                             {}
func (m silentMemory) Key() transport.RemoteKey                { return transport.RemoteKey{Len: uint64(m.n)} }
func (m silentMemory) Revoke()                                 {}

func (m silentMemory) Recall(ctx context.Context) error {
	m.conn.recalled.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// TestSilentPeersAreWaitedForAtOnce: a cancelled operation waits for all peers that may be writing into its memory at
// the same time, a second in all.
func TestSilentPeersAreWaitedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		var recalled atomic.Int32
		silent := func(c transport.Conn) transport.Conn { return &silentConn{c, &recalled} }
		w, peers, _ := newFakePeersOver(t, n, overSim(sim.Config{}), silent)
		w.open(0)
		synctest.Wait() // until the lanes are open
		work := w.workOf(choice{plan.Gather, "direct", 1, 0}, vector(0, n<<20))
		work.Input = work.Data[:4<<20]
		op, err := w.comms[0].start(work)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range peers[1:] {
			p.expect("step grant")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		began := time.Now()
		if err := op.Wait(ctx); err != enough {
			t.Errorf("Wait: error %v, want %v", err, enough)
		}
		if took := time.Since(began); took != time.Second || recalled.Load() != n-1 {
			t.Errorf("Wait took %v, with %d peers asked to stop, want a second and %d peers", took, recalled.Load(), n-1)
		}
	})
}

// TestOfferedSteps: a step that can be written remotely is offered if it is longer than link.PromptMax. Others are sent at once.
func TestOfferedSteps(t *testing.T) {
	plain := func(c transport.Conn) transport.Conn { return c }
	remote := func(c transport.Conn) transport.Conn { return &silentConn{c, new(atomic.Int32)} }
	for _, test := range []struct {
		bytes int
		wrap  func(transport.Conn) transport.Conn
		want  string
	}{
		{link.PromptMax, remote, "step"},
		{link.PromptMax + 4, remote, "step offer"},
		{wire.PayloadMax, remote, "step offer"},
		{wire.PayloadMax, plain, "step"},
	} {
		w, peers, _ := newFakePeersOver(t, 2, overMem, test.wrap)
		w.open(0)
		if _, err := w.comms[0].start(w.workOf(choice{plan.AllReduce, "direct", 1, 0}, vector(0, 2*test.bytes/4))); err != nil {
			t.Fatal(err)
		}
		if got := <-peers[1].in; got.kind != test.want {
			t.Errorf("%d bytes: the first frame is a %s, want a %s", test.bytes, got.kind, test.want)
		}
	}
}

package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
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

package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// An outage separates a node from another one, or from all others and the seed.
type outage struct {
	overQUIC, ofNode, isBusy bool // isBusy: during operations
	took                     time.Duration
	phase                    time.Duration // of its beginning, between two beats
}

func (o outage) String() string {
	return fmt.Sprintf("over QUIC %v, whole node %v, busy %v, %v from %v", o.overQUIC, o.ofNode, o.isBusy, o.took, o.phase)
}

// TestOutages: outages that are shorter than the heartbeat timeout by a heartbeat interval end no communicator, wherever they begin between two
// beats, although QUIC repeats its packets after ever longer times.
func TestOutages(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many outages")
	const beats = 200 * time.Millisecond
	step := beats / 2
	if worldtest.AllTrials() {
		step = beats / 10
	}
	for kind := range 8 {
		for _, took := range []time.Duration{650 * time.Millisecond, 900 * time.Millisecond} {
			for phase := time.Duration(0); phase < beats; phase += step {
				o := outage{kind&1 == 0, kind&2 == 0, kind&4 == 0, took, phase + 3*time.Millisecond}
				synctest.Test(t, func(t *testing.T) { o.check(t) })
			}
		}
	}
}

func (o outage) check(t *testing.T) {
	w := worldtest.NewSimCluster(t, uint64(o.phase), 3)
	defer w.Close()
	nodes := make([]*nexar.Node, 3)
	if err := worldtest.ForEach(len(nodes), func(rank int) (err error) {
		host, cfg := fmt.Sprint("host", rank), simConfig(nexar.Manual, &rank)
		if o.overQUIC {
			nodes[rank], err = w.Join(host, cfg)
		} else {
			nodes[rank], err = w.JoinWire(host, false, cfg)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Ctx)
	var work sync.WaitGroup
	for rank, n := range nodes {
		defer n.Close()
		work.Go(func() {
			for o.isBusy && ctx.Err() == nil {
				if err := nexar.AllReduce(ctx, n.World(), make([]int, 1000), nexar.Sum); err != nil && ctx.Err() == nil {
					t.Errorf("%v: rank %d: %v", o, rank, err)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(3*time.Second + o.phase)))
	set := func(l sim.Link) {
		w.Network.SetLink("host0", "host1", l)
		if o.ofNode {
			w.Network.SetLink("host0", "host2", l)
			w.Network.SetLink("host0", "seed", l)
		}
	}
	set(sim.Link{Down: true})
	time.Sleep(o.took)
	set(worldtest.SimClusterLink())
	time.Sleep(5 * time.Second)
	for rank, n := range nodes {
		if err := n.World().Err(); err != nil {
			t.Errorf("%v: the communicator of rank %d has ended: %v", o, rank, err)
		}
	}
	cancel()
	work.Wait()
}

package nexar

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// inBubble calls f with n ranks on hosts of their own, whose names are those of
// the nodes. Time passes only while all wait, and is that of links of a
// millisecond and 100 MB/s, and not of this machine.
func inBubble(t *testing.T, n int, f func(t *testing.T, comms []*Comm, network *sim.Network)) {
	synctest.Test(t, func(t *testing.T) {
		network := sim.New(sim.Config{Delay: time.Millisecond, Rate: 100_000_000, Window: 4 << 20})
		slow := medium{"slow", cost.QUIC(), func(n int) (membership.View, []transport.Transport, func() error, error) {
			return listenOn(network, n)
		}}
		f(t, slow.cluster(t, n, Config{}), network)
	})
}

func listenOn(network *sim.Network, n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	if view, _, err = names(n); err != nil {
		return view, nil, nil, err
	}
	for _, node := range view.Nodes {
		tr, err := network.Host(node.ID.String()).Listen(simPort)
		if err != nil {
			return view, nil, nil, errors.Join(err, network.Close())
		}
		list = append(list, named{tr})
	}
	return view, list, network.Close, nil
}

// took is how long it takes until all ranks have done f.
func took(t *testing.T, comms []*Comm, f func(c *Comm) error) time.Duration {
	t.Helper()
	began := time.Now()
	onAll(t, comms, func(_ int, c *Comm) error { return f(c) })
	return time.Since(began)
}

// Ranks that compute while a collective is under way are done when the longer of
// both is, and not after both.
func TestComputationOverlaps(t *testing.T) {
	for _, count := range []int{2, 1 << 20} {
		inBubble(t, 4, func(t *testing.T, comms []*Comm, _ *sim.Network) {
			ctx := t.Context()
			alone := took(t, comms, func(c *Comm) error { return AllReduce(ctx, c, make([]float32, count), Sum) })
			for _, computing := range []time.Duration{alone / 4, alone, 3 * alone} {
				both := took(t, comms, func(c *Comm) error {
					h := StartAllReduce(ctx, c, make([]float32, count), Sum)
					time.Sleep(computing)
					return h.Wait()
				})
				if longer := max(alone, computing); both > longer+alone/10 {
					t.Errorf("%d elements take %v, computing %v, and both together %v", count, alone, computing, both)
				}
			}
		})
	}
}

// Many short collectives at once take hardly longer than one.
func TestHandlesOverlap(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, comms []*Comm, _ *sim.Network) {
		ctx := t.Context()
		alone := took(t, comms, func(c *Comm) error { return AllReduce(ctx, c, make([]float32, 2), Sum) })
		many := took(t, comms, func(c *Comm) error {
			handles := make([]*Handle, 64)
			for i := range handles {
				handles[i] = StartAllReduce(ctx, c, make([]float32, 2), Sum)
			}
			return WaitAll(handles...)
		})
		if many > 2*alone {
			t.Errorf("64 all-reduces at once take %v, one takes %v", many, alone)
		}
	})
}

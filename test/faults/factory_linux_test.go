package faults

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/shm"
)

// own is a transport with another name.
type own struct{ transport.Transport }

func (own) Name() string                           { return "own" }
func (o own) Capabilities() transport.Capabilities { return transport.CapabilitiesOf(o.Transport) }

// TestFactoryWithCapabilities: a transport of the program is used with all its capabilities:
// polling, non-blocking writes, and shared areas.
func TestFactoryWithCapabilities(t *testing.T) {
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	cluster := rand.Text()
	factory := transport.Factory{Name: "own", Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		t, err := shm.New(shm.Config{Cluster: cluster, Node: cmp.Or(env.Node, rand.Text()), AreaSize: 1 << 20})
		return own{t}, err
	}}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			node, err := nexar.Join(t.Context(), nexar.Config{
				Seeds: []string{seed.Addr()}, Factories: []transport.Factory{factory}, Transports: []string{"own", "quic"},
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer node.Close()
			world := node.World()
			for _, size := range []int{1, 1000, 1 << 20} {
				x := make([]int64, size)
				for i := range x {
					x[i] = int64(i + world.Rank())
				}
				if err := nexar.AllReduce(t.Context(), world, x, nexar.Sum); err != nil {
					t.Error(err)
					return
				}
				for i, got := range x {
					if want := int64(2*i + 1); got != want {
						t.Errorf("element %d of %d is %d, want %d", i, size, got, want)
						return
					}
				}
			}
			if p := node.Peers(); len(p) != 1 || p[0].Transport != "own" {
				t.Errorf("peers %+v, want one over the transport of the program", p)
			}
		})
	}
	wg.Wait()
}

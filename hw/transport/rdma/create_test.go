//go:build linux

package rdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/transport"
)

// TestDialWithoutObjects: a dial fails with a reason if an object of the connection cannot be made, or if the device was removed. It
// leaves nothing, and later dials succeed.
func TestDialWithoutObjects(t *testing.T) {
	needFake(t)
	defer fake.Error("", 0)
	defer fake.Remove(false)
	cluster := clusterOf(t, new(Counters), make([]Config, 2)...)
	for _, x := range cluster.Transports {
		t.Cleanup(func() { x.Close() })
	}
	dial := func() (transport.Conn, error) {
		return cluster.Transports[0].Dial(t.Context(), cluster.Transports[1].Addr(), cluster.Identities[1])
	}
	objects := fake.Live()
	wantFailure := func(fault string) {
		t.Helper()
		if c, err := dial(); err == nil {
			c.Close()
			t.Errorf("%s: the dial succeeds", fault)
		}
		for end := time.Now().Add(time.Minute); fake.Live() != objects && time.Now().Before(end); { // The side that accepts ends later.
			time.Sleep(time.Millisecond)
		}
		if n := fake.Live(); n != objects {
			t.Errorf("%s: %d objects after the dial, and %d before", fault, n, objects)
		}
	}
	for _, call := range []string{"ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp", "ibv_reg_mr", "ibv_modify_qp"} {
		fake.Error(call, syscall.ENOMEM)
		wantFailure(call)
	}
	fake.Error("", 0)
	c, err := dial()
	if err != nil {
		t.Fatalf("a dial without faults: %v", err)
	}
	c.Close()
	fake.Remove(true)
	wantFailure("a removed device")
}

// TestJoinAfterRemoval: a node joins a world whose RDMA devices were removed. Its links use TCP, and collectives are right.
func TestJoinAfterRemoval(t *testing.T) {
	needFake(t)
	wantNoObjects(t)
	defer fake.Remove(false)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true, Elastic: true, ElasticMax: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	join := func(f transport.Factory) (*nexar.Node, error) {
		return nexar.Join(ctx, nexar.Config{
			Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: reach, Factories: []transport.Factory{f},
			HeartbeatInterval: 10 * time.Second, HeartbeatTimeout: time.Minute,
		})
	}
	counters := new(Counters)
	late := counting(counters)()
	listen := late.Listen
	late.Listen = func(ctx context.Context, env transport.Env) (transport.Transport, error) {
		x, err := listen(ctx, env)
		fake.Remove(true) // Nodes know the port of the newcomer for RDMA, and dial it there.
		return x, err
	}
	var linked, ranks sync.WaitGroup // linked waits until RDMA links the first two nodes
	work := func(f transport.Factory, first bool) error {
		node, err := join(f)
		if err != nil {
			if first {
				linked.Done()
			}
			return err
		}
		defer node.Close()
		if first {
			err := wantRDMA(node)
			linked.Done()
			if err != nil {
				return err
			}
		}
		for comm, err := range node.Epochs(ctx) {
			if err != nil {
				return err
			}
			if comm.Size() == 3 {
				return sumWithoutRDMA(ctx, node)
			}
			for changed := false; !changed; {
				if changed, err = node.Reconfigure(ctx); err != nil {
					return err
				}
			}
		}
		return errors.New("the epochs have ended")
	}
	linked.Add(2)
	for range 2 {
		ranks.Go(func() {
			if err := work(counting(counters)(), true); err != nil {
				t.Error(err)
				cancel()
			}
		})
	}
	linked.Wait()
	if err := work(late, false); err != nil {
		t.Errorf("the newcomer: %v", err)
	}
	ranks.Wait()
}

// sumWithoutRDMA reduces on three ranks. It returns an error if RDMA links the node to another.
func sumWithoutRDMA(ctx context.Context, node *nexar.Node) error {
	comm := node.World()
	v := []float64{float64(comm.Rank() + 1)}
	if err := nexar.AllReduce(ctx, comm, v, nexar.Sum); err != nil {
		return err
	}
	if v[0] != 6 {
		return fmt.Errorf("sum %v, want 6", v[0])
	}
	var err error
	for _, p := range node.Peers() {
		if p.Transport == Name {
			err = errors.Join(err, fmt.Errorf("linked to rank %d over %s, want another transport", p.Rank, p.Transport))
		}
	}
	return errors.Join(err, comm.Barrier(ctx))
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestCutsOfLivingNodes: the connections between living nodes are shut down again and again while the nodes
// reduce. Each step has the right result or an error. No node is removed: the epochs after lost frames have
// the same ranks.
func TestCutsOfLivingNodes(t *testing.T) {
	for _, w := range []struct {
		topology string
		ranks    int
	}{{"full", 3}, {"k-regular:2", 6}, {"hypercube", 6}} {
		t.Run(w.topology, func(t *testing.T) { cutLivingNodes(t, w.topology, w.ranks) })
	}
}

func cutLivingNodes(t *testing.T, topology string, ranks int) {
	const cuts, between = 12, 20
	nodes, _ := worldtest.JoinAll(t, ranks, nexar.SeedConfig{}, nexar.Config{
		Transports: []string{"tcp"}, Topology: topology, HeartbeatTimeout: 10 * worldtest.Patience,
	})
	ports := make(map[int]bool) // at which nodes have been dialed
	for rank, n := range nodes {
		for _, p := range n.Peers()[:rank] {
			if p.Hops > 1 {
				continue
			}
			_, port, err := net.SplitHostPort(p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			number, _ := strconv.Atoi(port)
			ports[number] = true
		}
	}
	var steps, epochs atomic.Int64 // of rank 0
	var done atomic.Bool
	cutting := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	go func() {
		defer done.Store(true)
		for range cuts {
			for goal := steps.Load() + between; steps.Load() < goal; time.Sleep(time.Millisecond) {
				if ctx.Err() != nil {
					cutting <- fmt.Errorf("after %d steps in %d epochs the ranks make no progress", steps.Load(), epochs.Load())
					return
				}
			}
			if n := cut(topology, ports); n == 0 {
				cutting <- fmt.Errorf("no connection was shut down")
				return
			}
		}
		for goal := steps.Load() + 2*between; steps.Load() < goal && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		}
		cutting <- nil
	}()
	err := worldtest.ForEach(ranks, func(rank int) error {
		for comm, err := range nodes[rank].Epochs(ctx) {
			if err != nil {
				return err
			}
			if comm.Size() != ranks || comm.Rank() != rank {
				return fmt.Errorf("epoch %d has %d ranks, and rank %d has become rank %d", comm.Epoch(), comm.Size(), rank, comm.Rank())
			}
			if rank == 0 {
				epochs.Add(1)
			}
			for {
				x := []int64{1, 0}
				if done.Load() {
					x[1] = 1
				}
				err := nexar.AllReduce(ctx, comm, x, nexar.Sum)
				if err == nil && topology != "full" {
					err = toAll(ctx, comm)
				}
				if errors.Is(err, errWrong) {
					return err
				}
				if err != nil {
					// The next epoch may begin before a rank knows the reason.
					if text := err.Error(); !strings.Contains(text, "frames were lost") && !strings.Contains(text, "superseded by a newer view") {
						return fmt.Errorf("rank %d, epoch %d: got error %w, want one about lost frames or a newer view", rank, comm.Epoch(), err)
					}
					break
				}
				if x[0] != int64(ranks) {
					return fmt.Errorf("the sum of %d ranks is %d", ranks, x[0])
				}
				if x[1] == int64(ranks) {
					return nil
				}
				if rank == 0 {
					steps.Add(1)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-cutting; err != nil {
		t.Error(err)
	}
	for rank, n := range nodes {
		if c := n.World().Change(); c.OldSize > 0 && len(c.Removed)+len(c.Joined) > 0 {
			t.Errorf("rank %d: the world has changed: %+v", rank, c)
		}
	}
	t.Logf("%d steps in %d epochs", steps.Load(), epochs.Load())
}

// cut shuts down the connections with all ports in the full topology, and with one port otherwise, so that the nodes have
// processors enough to dial again in time. It returns the number of ends of connections.
func cut(topology string, ports map[int]bool) (n int) {
	if topology == "full" {
		return shutDown(ports)
	}
	for port := range ports {
		if n = shutDown(map[int]bool{port: true}); n > 0 {
			break // Others have no connection any more.
		}
	}
	return n
}

// shutDown shuts down the TCP connections of this process with one of the ports, and returns their number.
func shutDown(ports map[int]bool) (n int) {
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		fd, _ := strconv.Atoi(f.Name())
		local, err := syscall.Getsockname(fd)
		if err != nil {
			continue
		}
		peer, err := syscall.Getpeername(fd)
		if err != nil {
			continue
		}
		if (ports[portOf(local)] || ports[portOf(peer)]) && syscall.Shutdown(fd, syscall.SHUT_RDWR) == nil {
			n++
		}
	}
	return n
}

func portOf(a syscall.Sockaddr) int {
	switch a := a.(type) {
	case *syscall.SockaddrInet4:
		return a.Port
	case *syscall.SockaddrInet6:
		return a.Port
	}
	return 0
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
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
// reduce numbers of the step, and send numbered messages. Each step has the right result or an error: no message is lost, repeated or
// out of order. No node is removed: the epochs after lost frames have the same ranks.
func TestCutsOfLivingNodes(t *testing.T) {
	for _, w := range []struct {
		topology string
		ranks    int
	}{{"full", 3}, {"k-regular:2", 6}, {"hypercube", 6}} {
		if worldtest.Brief() && w.topology == "hypercube" {
			continue // k-regular:2 has relays as well
		}
		t.Run(w.topology, func(t *testing.T) { cutLivingNodes(t, w.topology, w.ranks) })
	}
}

func cutLivingNodes(t *testing.T, topology string, ranks int) {
	const between = 20
	cuts := 12
	if worldtest.Brief() {
		cuts = 4
	}
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// further waits for steps, as long as there is one within Patience: on a busy machine all of them may take longer.
	further := func(n int64) bool {
		last, at := steps.Load(), time.Now()
		for goal := last + n; last < goal && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if now := steps.Load(); now > last {
				last, at = now, time.Now()
			} else if time.Since(at) > worldtest.Patience {
				cancel()
			}
		}
		return ctx.Err() == nil
	}
	go func() {
		defer time.AfterFunc(worldtest.Patience, cancel)
		defer done.Store(true)
		for range cuts {
			if !further(between) {
				cutting <- fmt.Errorf("after %d steps in %d epochs the ranks make no progress", steps.Load(), epochs.Load())
				return
			}
			if n := cut(topology, ports); n == 0 {
				cutting <- fmt.Errorf("no connection was shut down")
				return
			}
		}
		further(2 * between)
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
			for step := int64(0); ; step++ {
				x := []int64{step*int64(ranks) + int64(rank), 0}
				if done.Load() {
					x[1] = 1
				}
				err := nexar.AllReduce(ctx, comm, x, nexar.Sum)
				if err == nil {
					err = exchangeNumbers(ctx, comm, step)
				}
				if err == nil && topology != "full" {
					err = toAll(ctx, comm)
				}
				if errors.Is(err, errWrong) {
					cancel() // The other ranks need not wait for this one.
					return err
				}
				if err != nil {
					// The next epoch may begin before a rank knows the reason.
					if text := err.Error(); !strings.Contains(text, "frames were lost") && !strings.Contains(text, "superseded by a newer view") {
						return fmt.Errorf("rank %d, epoch %d: got error %w, want one about lost frames or a newer view", rank, comm.Epoch(), err)
					}
					break
				}
				if n := int64(ranks); x[0] != n*n*step+n*(n-1)/2 {
					return fmt.Errorf("rank %d, epoch %d, step %d: the sum is %d, want %d", rank, comm.Epoch(), step, x[0], n*n*step+n*(n-1)/2)
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

// numbersOfStep is the number of messages to a rank in a step of exchangeNumbers.
const numbersOfStep = 3

// exchangeNumbers sends numbered messages to the next rank and to the one halfway round, and receives those of the ranks before and
// halfway round. Numbers continue those of the step before. All messages to a rank are on the way at the same time, with different lengths. The
// error is errWrong if a message is lost, repeated or out of order.
func exchangeNumbers(ctx context.Context, c *nexar.Comm, step int64) error {
	n := c.Size()
	for _, distance := range slices.Compact([]int{1, max(1, n/2)}) {
		to, from := (c.Rank()+distance)%n, (c.Rank()+n-distance)%n
		var sends []*nexar.Handle
		for i := range int64(numbersOfStep) {
			number := step*numbersOfStep + i
			sends = append(sends, nexar.StartSend(ctx, c, slices.Repeat([]int64{number}, int(1+number%3*1000)), to, nexar.Tag(distance)))
		}
		for i := range int64(numbersOfStep) {
			want, got := step*numbersOfStep+i, make([]int64, 2001)
			s, err := nexar.Recv(ctx, c, got, from, nexar.Tag(distance))
			if err != nil {
				return err
			}
			if s.Count != int(1+want%3*1000) || got[0] != want || got[s.Count-1] != want {
				return fmt.Errorf("%w: rank %d has received %d to %d, with %d elements, from rank %d in place of message %d",
					errWrong, c.Rank(), got[0], got[s.Count-1], s.Count, from, want)
			}
		}
		for _, h := range sends {
			if err := h.Wait(); err != nil {
				return err
			}
		}
	}
	return nil
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

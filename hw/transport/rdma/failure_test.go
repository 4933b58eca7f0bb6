//go:build linux

package rdma

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// newPair returns both ends of a conn whose queue pair must not fail.
func newPair(t *testing.T) (a, b *conn) {
	t.Helper()
	needDevice(t)
	return connect(t, newCluster(t, 2))
}

func connect(t *testing.T, cluster transporttest.Cluster) (a, b *conn) {
	t.Helper()
	for _, x := range cluster.Transports {
		t.Cleanup(func() { x.Close() })
	}
	ca, err := cluster.Transports[0].Dial(t.Context(), cluster.Transports[1].Addr(), cluster.Identities[1])
	if err != nil {
		t.Fatal(err)
	}
	cb, err := cluster.Transports[1].Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ca.(*conn), cb.(*conn)
}

// failQP makes the QP of a conn fail, as hardware does after an error.
func failQP(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.qp != nil {
		_ = c.qp.Fail()
	}
}

// stream sends n numbered pieces over a pipe of its own, and checks them at the other end.
func stream(ctx context.Context, from, to *conn, n int, progress func(i int)) error {
	s, err := from.OpenLarge(ctx)
	if err != nil {
		return err
	}
	// The first byte lets the other side accept the pipe.
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			p := bytes.Repeat([]byte{byte(i)}, 1+i*7919%50_000)
			if _, err := s.Write(p); err != nil {
				sent <- fmt.Errorf("write piece %d: %w", i, err)
				return
			}
			progress(i)
		}
		sent <- s.Close()
	}()
	r, err := to.AcceptPipe(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		p := make([]byte, 1+i*7919%50_000)
		if _, err := io.ReadFull(r, p); err != nil {
			return fmt.Errorf("read piece %d: %w", i, err)
		}
		if !bytes.Equal(p, bytes.Repeat([]byte{byte(i)}, len(p))) {
			return fmt.Errorf("piece %d differs", i)
		}
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("end of the pipe: %v, want EOF", err)
	}
	return <-sent
}

// registerMapped registers 64 KiB of mapped memory with a conn until the end of the test.
func registerMapped(t *testing.T, c *conn) (memory []byte, reg transport.Registration) {
	t.Helper()
	m, err := transport.Map(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Free() })
	reg, err = c.Register(m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reg.Deregister)
	return m.Bytes(), reg
}

// registerExposed registers memory in place of that of a GPU.
func registerExposed(t *testing.T, c *conn) (memory []byte, reg transport.Registration) {
	t.Helper()
	x, err := Expose(c.t, exposable(t))
	if err != nil {
		t.Fatal(err)
	}
	if reg, err = c.Register(x.Memory); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		reg.Deregister()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x.Memory, reg
}

// wantFailed waits for the end of a conn, and fails the test unless its queue pair, or that of the peer, has failed for a reason with text.
func wantFailed(t *testing.T, c *conn, text string) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatal("the conn has not ended")
	}
	if err := c.Err(); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), text) {
		t.Errorf("the conn has ended with %v, want %v and %q", err, errFailed, text)
	}
}

// TestFailedQP: when the QP fails in the middle of streams in both directions, both conns end with an error that names the device and
// the port. What has arrived is right. From then on nothing is written into memory of the host or of a device, no memory is granted, and writes with old
// keys fail.
func TestFailedQP(t *testing.T) {
	needDevice(t)
	moments := 8
	if testing.Short() {
		moments = 3
	}
	for at := range moments {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			a, b := connect(t, newBreakable(t, 2))
			register := registerMapped
			if at%4 > 1 && fake != nil {
				register = registerExposed
			}
			memory, reg := register(t, b)
			g, err := reg.Grant(0, len(memory))
			if err != nil {
				t.Fatal(err)
			}
			// Side a writes until the end.
			var all sync.WaitGroup
			all.Go(func() {
				for i := byte(1); ; i++ {
					if err := a.WriteRemote(t.Context(), g.Key(), 0, bytes.Repeat([]byte{i}, len(memory))); err != nil {
						return
					}
				}
			})
			after := make([]byte, len(memory))
			all.Go(func() {
				<-b.Done()
				copy(after, memory)
			})
			for i, c := range [][2]*conn{{a, b}, {b, a}} {
				all.Go(func() {
					err := stream(t.Context(), c[0], c[1], 60, func(k int) {
						if i == 0 && k == at*7 {
							failQP([]*conn{a, b}[at%2])
						}
					})
					if err != nil && !errors.Is(err, transport.ErrPeerGone) {
						t.Errorf("failure of side %d at piece %d: %v", at%2, at*7, err)
					}
				})
			}
			device := fmt.Sprintf("device %s, port %d: ", a.t.dev.d.Name, a.t.dev.port.Number)
			wantFailed(t, a, device)
			wantFailed(t, b, device)
			all.Wait()
			if a.Suits(memory) || b.Suits(memory) {
				t.Error("remote writes are preferred after the failure of the QP")
			}
			if _, err := reg.Grant(0, 1000); err == nil {
				t.Error("memory is granted after the failure of the QP")
			}
			if err := a.WriteRemote(t.Context(), g.Key(), 0, []byte{0}); !errors.Is(err, errFailed) {
				t.Errorf("remote write after the failure: %v, want %v", err, errFailed)
			}
			g.Revoke()
			if !bytes.Equal(memory, after) {
				t.Error("memory has changed after the end of the conn")
			}
		})
	}
}

// patience is Config.Stall on an emulated processor, which may not run for a while.
const patience = time.Minute

// worldTransports collects the transports of the nodes of a world in this process.
type worldTransports struct {
	mu   sync.Mutex
	list []*rdma

	stall    time.Duration // Config.Stall
	counters Counters
	reasons  []string // see wantOthers
}

func (w *worldTransports) factory() transport.Factory {
	f := Factory(Config{Listen: "127.0.0.1:0", Stall: cmp.Or(w.stall, patience), Counters: &w.counters})
	listen := f.Listen
	f.Listen = func(ctx context.Context, env transport.Env) (transport.Transport, error) {
		t, err := listen(ctx, env)
		if err == nil {
			w.mu.Lock()
			w.list = append(w.list, t.(*rdma))
			w.mu.Unlock()
		}
		return t, err
	}
	return f
}

// conns returns the conns of all transports.
func (w *worldTransports) conns() (list []*conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.list {
		list = append(list, t.all()...)
	}
	return list
}

// wantOthers waits until other transports link a node to all others, for the reason that RDMA has failed.
func (w *worldTransports) wantOthers(ctx context.Context, node *nexar.Node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	isOver := func(p nexar.Peer) bool { return p.Transport == Name || p.BulkTransport == Name }
	for slices.ContainsFunc(node.Peers(), isOver) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("after the failure: %+v, want other transports for all", node.Peers())
		case <-time.After(time.Millisecond):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range node.Peers() {
		if !p.Encrypted || !strings.Contains(p.Reason, Name+": ") {
			return fmt.Errorf("rank %d after the failure: %+v, want an encrypted transport, and why it is not RDMA", p.Rank, p)
		}
		w.reasons = append(w.reasons, p.Reason)
	}
	return nil
}

// checkReasons fails the test unless a link has left RDMA for a reason that contains text.
func (w *worldTransports) checkReasons(t *testing.T, text string) {
	t.Helper()
	if w.counters.Failures() == 0 {
		t.Error("no queue pair has failed, so nothing was tested")
	}
	if !slices.ContainsFunc(w.reasons, func(s string) bool { return strings.Contains(s, text) }) {
		t.Errorf("reasons for other transports: %q, want %q among them", w.reasons, text)
	}
}

// testWorldGoesOn reduces vectors on several ranks while fail breaks RDMA, for a reason that contains text. The links go on over other
// transports: no operation fails, and all sums are right.
func testWorldGoesOn(t *testing.T, world int, text string, fail func(w *worldTransports) error) {
	var w worldTransports
	failed := make(chan struct{})
	inWorldWith(t, world, reach, w.factory, func(ctx context.Context, node *nexar.Node) error {
		v, free, err := nexar.AllocRegistered[float64](200_000)
		if err != nil {
			return err
		}
		defer free()
		rank := node.World().Rank()
		for round := range 12 {
			if round == 4 && rank == 0 {
				if err := wantRDMA(node); err != nil {
					return err
				}
				time.AfterFunc(20*time.Millisecond, func() {
					defer close(failed)
					if n := w.counters.Failures(); n > 0 {
						t.Errorf("%d conns have failed before", n)
					}
					if err := fail(&w); err != nil {
						t.Error(err)
					}
				})
			}
			if round == 8 && rank == 0 { // The collectives may be faster.
				<-failed
			}
			for i := range v {
				v[i] = float64((rank + 1) * (round + i%7))
			}
			if err := nexar.AllReduce(ctx, node.World(), v, nexar.Sum); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			sum := world * (world + 1) / 2
			for i := range v {
				if want := float64(sum * (round + i%7)); v[i] != want {
					return fmt.Errorf("round %d: element %d: sum %v, want %v", round, i, v[i], want)
				}
			}
		}
		return w.wantOthers(ctx, node)
	})
	w.checkReasons(t, text)
}

// TestWorldGoesOnWithoutQP: the QPs of a world fail during a collective, which goes on over other transports.
func TestWorldGoesOnWithoutQP(t *testing.T) {
	testWorldGoesOn(t, 3, "the queue pair has failed: device ", func(w *worldTransports) error {
		for _, c := range w.conns() {
			failQP(c)
		}
		return nil
	})
}

// netdev returns the network interface of the device, which carries no TCP connection of the test, or skips the test. RDMA_NETDEV
// names it.
func netdev(t *testing.T) string {
	t.Helper()
	name := os.Getenv("RDMA_NETDEV")
	require.Have(t, "netdev", name != "", "RDMA_NETDEV names no network interface of a device that the test may take down")
	return name
}

// execute runs a command.
func execute(command string, args ...string) error {
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", command, strings.Join(args, " "), err, out)
	}
	return nil
}

// TestWorldGoesOnWithoutPort: the port of the device goes down during a collective.
func TestWorldGoesOnWithoutPort(t *testing.T) {
	name := netdev(t)
	testWorldGoesOn(t, 2, "port 1", func(*worldTransports) error { return execute("ip", "link", "set", name, "down") })
	if err := execute("ip", "link", "set", name, "up"); err != nil {
		t.Error(err)
	}
}

// TestWorldGoesOnWithoutDevice: the device is removed during a collective. The software RDMA of Linux 6.1 cannot be removed while a
// process uses it.
func TestWorldGoesOnWithoutDevice(t *testing.T) {
	needFake(t)
	defer fake.Remove(false)
	testWorldGoesOn(t, 2, "device fake0 has failed or was removed", func(*worldTransports) error {
		fake.Remove(true)
		return nil
	})
}

package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

const (
	seedPort = "7945"
	nodePort = "7946" // of the node on each host
)

func (h *host) addr() netip.Addr {
	if h.v4.IsValid() {
		return h.v4
	}
	return h.v6
}

func (h *host) at(port string) string { return net.JoinHostPort(h.addr().String(), port) }

// A cluster has a seed on the first host of a network and a worker on every host; rank i is on
// host i.
type cluster struct {
	*network
	workers *workerSet
	seed    *worker
	ranks   []*worker
}

// newCluster starts a seed on the first host and a worker on each. vars returns further variables
// of a worker; it may be nil.
func newCluster(t *testing.T, hosts int, have family, vars func(w *network, rank int) []string) *cluster {
	t.Helper()
	c := &cluster{network: newNetwork(t, hosts, have), workers: newWorkerSet(t)}
	c.seed = c.workers.start(c.hosts[0], "seed")
	mustSucceed(t, []result{c.seed.do(command{Do: "seed", N: hosts, Addr: ":" + seedPort})})
	for rank, h := range c.hosts {
		env := []string{"NEXAR_SEEDS=" + c.hosts[0].at(seedPort), "NEXAR_LISTEN=:" + nodePort, fmt.Sprint("NEXAR_RANK=", rank)}
		if vars != nil {
			env = append(env, vars(c.network, rank)...)
		}
		c.ranks = append(c.ranks, c.workers.start(h, fmt.Sprint("rank ", rank), env...))
	}
	return c
}

// join has all workers join and make every collective once.
func (c *cluster) join() {
	c.t.Helper()
	mustSucceed(c.t, runAll(c.ranks, command{Do: "join"}))
	mustSucceed(c.t, runAll(c.ranks, command{Do: "check"}))
}

// Four hosts that share nothing but a network form a world, over IPv4 and over IPv6, with the
// same port on each.
func TestHosts(t *testing.T) {
	t.Parallel()
	for name, have := range map[string]family{"IPv4": ipv4, "IPv6": ipv6, "both": ipv4 | ipv6} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 4, have, nil)
			c.join()
			victim := 3
			c.ranks[victim].kill(os.Kill)
			for rank, r := range runAll(c.ranks[:victim], command{Do: "loop", Op: "barrier"}) {
				if r.Failure == nil || r.Failure.Rank != victim || r.Failure.Addr != c.hosts[victim].at(nodePort) {
					t.Errorf("rank %d: %v at %q, want the failure of rank %d at %s", rank, r.Failure, r.Failure.Addr, victim, c.hosts[victim].at(nodePort))
				}
			}
		})
	}
}

// A worker that reaches the seed over loopback is reachable for the others: the seed does not
// distribute 127.0.0.1 as its only address.
func TestSeedOverLoopback(t *testing.T) {
	t.Parallel()
	for name, have := range map[string]family{"IPv4": ipv4, "IPv6": ipv6} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 4, have, func(w *network, rank int) []string {
				switch {
				case rank > 0:
					return nil
				case have == ipv4:
					return []string{"NEXAR_SEEDS=127.0.0.1:" + seedPort}
				default:
					return []string{"NEXAR_SEEDS=[::1]:" + seedPort}
				}
			})
			c.join()
		})
	}
}

// Other nodes know a node by the address that it advertises.
func TestAdvertise(t *testing.T) {
	t.Parallel()
	const second = "10.77.0.202"
	c := newCluster(t, 3, ipv4, func(w *network, rank int) []string {
		if rank != 2 {
			return nil
		}
		w.hosts[2].run("ip", "addr", "add", second+"/24", "dev", "eth0")
		return []string{"NEXAR_ADVERTISE=" + second}
	})
	c.join()
	c.ranks[2].kill(os.Kill)
	for rank, r := range runAll(c.ranks[:2], command{Do: "loop", Op: "barrier"}) {
		if r.Failure == nil || r.Failure.Addr != second+":"+nodePort {
			t.Errorf("rank %d: %v, want the failure of a node at %s", rank, r.Failure, second)
		}
	}
}

// The seed refuses a node that does not answer at its address, with that address and the one that
// it sees.
func TestAdvertiseIsChecked(t *testing.T) {
	t.Parallel()
	const nowhere = "10.77.0.99"
	c := newCluster(t, 2, ipv4, func(w *network, rank int) []string {
		env := []string{"NEXAR_FORM_TIMEOUT_SECS=20"}
		if rank == 0 {
			env = append(env, "NEXAR_ADVERTISE="+nowhere)
		}
		return env
	})
	results := runAll(c.ranks, command{Do: "join"})
	for rank, r := range results {
		if r.Failure == nil {
			t.Fatalf("rank %d has joined", rank)
		}
	}
	for _, text := range []string{"refused this node", nowhere + ":" + nodePort + " (", "the seed sees it at 10.77.0."} {
		if !strings.Contains(results[0].Failure.Text, text) {
			t.Errorf("rank 0: the error does not contain %q: %v", text, results[0].Failure)
		}
	}
}

// An unreachable address that the seed does not check fails the formation. The errors of all nodes name the node and the
// address.
func TestAdvertiseUnreachable(t *testing.T) {
	t.Parallel()
	const nowhere = "10.77.0.99"
	c := newCluster(t, 3, ipv4, func(w *network, rank int) []string {
		env := []string{"NEXAR_FORM_TIMEOUT_SECS=6"}
		if rank == 0 {
			env = append(env, "NEXAR_ADVERTISE="+nowhere, "NEXAR_ADVERTISE_UNCHECKED=1")
		}
		return env
	})
	for rank, r := range runAll(c.ranks, command{Do: "join"}) {
		if r.Failure == nil {
			t.Errorf("rank %d has joined", rank)
			continue
		}
		for _, text := range []string{"cannot reach rank 0", nowhere + ":" + nodePort} {
			if !strings.Contains(r.Failure.Text, text) {
				t.Errorf("rank %d: the error does not contain %q: %v", rank, text, r.Failure)
			}
		}
	}
}

// A host that is cut off fails by its silence.
func TestCutOff(t *testing.T) {
	t.Parallel()
	const (
		timeout = 5 * time.Second
		lost    = 1
	)
	c := newCluster(t, 4, ipv4, func(*network, int) []string {
		return []string{"NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds())}
	})
	c.join()
	ids := runAll(c.ranks, command{Do: "id"})
	running := make([]<-chan result, len(c.ranks))
	for rank, w := range c.ranks {
		running[rank] = w.start(command{Do: "loop", Op: "all_reduce", N: 10_000})
	}
	time.Sleep(300 * time.Millisecond)
	cut := time.Now()
	c.hosts[lost].run("ip", "link", "set", "eth0", "down")
	for rank, r := range awaitAll(c.ranks, running) {
		if rank == lost {
			if r.Failure == nil || !r.Failure.PeerFailed {
				t.Errorf("the host that was cut off: %v, want a failed peer", r.Failure)
			}
			continue
		}
		checkLost(t, rank, r.Failure, lost, ids[lost].Text)
		took := r.At.Sub(cut)
		t.Logf("rank %d had its error after %v", rank, took)
		if took > timeout+slowMax {
			t.Errorf("rank %d had its error after %v, want at most %v more than the heartbeat timeout of %v", rank, took, slowMax, timeout)
		}
	}
}

// Loss of packets delays operations and fails none.
func TestLoss(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4, ipv4|ipv6, nil)
	for _, h := range c.hosts {
		_, err := h.try(`
			table inet nexar {
				chain in {
					type filter hook input priority 0;
					iifname "eth0" numgen random mod 100 < 5 counter drop
				}
			}`, "nft", "-f", "-")
		require.Have(t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
	}
	c.join()
	mustSucceed(t, runAll(c.ranks, command{Do: "loop", Op: "all_reduce", N: 200_000, Rounds: 5}))
	mustSucceed(t, runAll(c.ranks, command{Do: "loop", Op: "barrier", Rounds: 50}))
	for rank, h := range c.hosts {
		var lost int
		rules := h.run("nft", "list", "chain", "inet", "nexar", "in")
		_, count, _ := strings.Cut(rules, "counter packets ")
		if _, err := fmt.Sscan(count, &lost); err != nil || lost < 10 {
			t.Errorf("only %d packets to rank %d were lost: %v\n%s", lost, rank, err, rules)
		}
	}
}

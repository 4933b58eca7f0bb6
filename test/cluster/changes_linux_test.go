package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
)

// changingHosts is the number of hosts with which a world forms.
const changingHosts = 3

// newChangingNetwork starts a world of six processes on three hosts, with a seed on the first
// host. Persistent processes join again after they were removed. A fourth host is unused.
func newChangingNetwork(t *testing.T, persistent bool, vars ...string) (*changingWorld, *network) {
	t.Helper()
	net := newNetwork(t, changingHosts+1, ipv4)
	w := &changingWorld{
		T: t, workers: newWorkerSet(t), rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), stats: &changeStats{kinds: make(map[string]int)},
		transports: "shm,tcp,quic", persistent: persistent, every: 20 * time.Millisecond,
	}
	seed := w.workers.start(net.hosts[0], "seed", "NEXAR_ELASTIC_ENABLED=1", fmt.Sprint("NEXAR_ELASTIC_MAX_WORLD_SIZE=", changingMax))
	mustSucceed(t, []result{seed.do(command{Do: "seed", N: changingRanks, Addr: ":" + seedPort})})
	w.logs = map[string]*testlog.Buffer{"seed": seed.log}
	w.seeds, w.listen = net.hosts[0].at(seedPort), ":0"
	w.vars = slices.Concat(vars, []string{"NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_STACKS=1"})
	w.launcher = func(n int) launcher { return net.hosts[(n-1)%changingHosts] }
	for range changingRanks {
		w.start(false)
	}
	w.settle()
	return w, net
}

// TestChangesLoss changes a world while packets between its hosts are lost. Changes take longer,
// and no live node is removed.
func TestChangesLoss(t *testing.T) {
	t.Parallel()
	// If the packets that close the sockets of a dead process are lost, only its silence shows
	// its death. Neither loss nor a busy machine silences a live process this long.
	w, net := newChangingNetwork(t, false, "NEXAR_HEARTBEAT_TIMEOUT_SECS=30")
	for _, h := range net.hosts {
		_, err := h.try(`
			table inet nexar {
				chain in {
					type filter hook input priority 0;
					iifname "eth0" numgen random mod 100 < 5 counter drop
				}
			}`, "nft", "-f", "-")
		require.Have(t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
	}
	for range 4 {
		w.change()
	}
	w.finish()
}

// TestChangesCutOff cuts a host off. The others go on without its processes, and further
// processes join and leave.
func TestChangesCutOff(t *testing.T) {
	t.Parallel()
	w, net := newChangingNetwork(t, false, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.2", "NEXAR_HEARTBEAT_TIMEOUT_SECS=5", "NEXAR_RECOVERY_TIMEOUT_SECS=10")
	cut := time.Now()
	away := w.cutOff(net.hosts[lostHost], lostHost)
	w.settle()
	t.Logf("the other hosts go on after %v", time.Since(cut))
	w.launcher = func(int) launcher { return net.hosts[changingHosts] }
	w.join()
	w.leave(true)
	w.settle()
	for _, p := range away {
		select {
		case r := <-p.running:
			if r.Failure == nil || !strings.Contains(r.Failure.Text, "no agreement on the members of the world") {
				t.Errorf("%s was cut off: %v, want an error about the missing agreement", p.name, r.Failure)
			}
		case <-time.After(settleMax):
			w.fail("%s, which was cut off, does not end", p.name)
		}
	}
	w.launcher = func(int) launcher { return net.hosts[0] }
	w.join()
	w.finish()
}

// lostHost is the index of the host that is cut off.
const lostHost = 2

// cutOff disconnects a host and returns its processes, which no longer count as live.
func (w *changingWorld) cutOff(h *host, number int) (away []*process) {
	w.note("host %d is cut off", number)
	h.run("ip", "link", "set", "eth0", "down")
	for i := len(w.processes) - 1; i >= 0; i-- {
		if i%changingHosts == number {
			away = append(away, w.processes[i])
			w.processes = append(w.processes[:i], w.processes[i+1:]...)
		}
	}
	if len(away) != changingRanks/changingHosts {
		w.fail("%d processes are on the host that is cut off, want %d", len(away), changingRanks/changingHosts)
	}
	return away
}

// TestRejoin cuts a host off. Its processes get an error within the recovery timeout and form no
// world of their own. They join again as new nodes. After the network has been repaired they are
// in the world from the next reconfiguration on, with its state.
func TestRejoin(t *testing.T) {
	t.Parallel()
	const silence, recovery = 5 * time.Second, 10 * time.Second
	w, net := newChangingNetwork(t, true, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.2", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", silence.Seconds()),
		fmt.Sprint("NEXAR_RECOVERY_TIMEOUT_SECS=", recovery.Seconds()))
	cut := time.Now()
	away := w.cutOff(net.hosts[lostHost], lostHost)
	w.settle()
	for _, p := range away {
		before := p.last()
		for p.last().Number > 0 {
			if p.last().Number > before.Number {
				w.fail("%s has a further epoch without the other hosts: %+v", p.name, p.epochs)
			}
			time.Sleep(10 * time.Millisecond)
			w.query(p)
		}
		if took := p.last().At.Sub(cut); took > silence+recovery+slowMax {
			w.fail("%s had its error after %v, want at most %v after the heartbeat timeout of %v", p.name, took, recovery+slowMax, silence)
		}
		t.Logf("%s had its error after %v", p.name, p.last().At.Sub(cut))
	}
	net.hosts[lostHost].run("ip", "link", "set", "eth0", "up")
	healed := time.Now()
	w.note("host %d is connected again", lostHost)
	w.processes = append(w.processes, away...)
	w.settle()
	t.Logf("all hosts are in one world %v after the repair", time.Since(healed))
	if len(w.processes) != changingRanks {
		t.Errorf("%d processes are in the world, want %d", len(w.processes), changingRanks)
	}
	w.finish()
}

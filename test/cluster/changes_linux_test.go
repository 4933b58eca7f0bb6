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

// changingHosts is the number of hosts that a world begins with.
const changingHosts = 3

// newChangingNetwork is a world of six processes on three hosts, with a seed on the
// first. If they are persistent, processes join again when they have lost the others.
func newChangingNetwork(t *testing.T, persistent bool, vars ...string) (*changing, *network) {
	t.Helper()
	net := newNetwork(t, changingHosts+1, ipv4)
	w := &changing{T: t, crew: newCrew(t), rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), counts: &tally{kinds: make(map[string]int)}, way: "shm,tcp,quic", persistent: persistent}
	seed := w.crew.hire(net.hosts[0], "seed", "NEXAR_ELASTIC_ENABLED=1", fmt.Sprint("NEXAR_ELASTIC_MAX_WORLD_SIZE=", changingMax))
	ok(t, []report{seed.do(order{Do: "seed", N: changingRanks, Addr: ":" + seedPort})})
	w.logs = map[string]*testlog.Buffer{"seed": seed.log}
	w.seeds, w.listen = net.hosts[0].at(seedPort), ":0"
	w.vars = slices.Concat(vars, []string{"NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1"})
	w.place = func(n int) place { return net.hosts[(n-1)%changingHosts] }
	for range changingRanks {
		w.hire(false)
	}
	w.settle()
	return w, net
}

// TestChangesLoss: a world changes while packets between its hosts get lost. It takes longer, and no
// living node is removed.
func TestChangesLoss(t *testing.T) {
	t.Parallel()
	// When the network loses the packets that close the sockets of a dead process, only
	// its silence shows its death. Loss or a busy machine never silence a process this long.
	w, net := newChangingNetwork(t, false, "NEXAR_HEARTBEAT_TIMEOUT_SECS=30")
	for _, h := range net.hosts {
		_, err := h.try(`
			table inet nexar {
				chain in {
					type filter hook input priority 0;
					iifname "eth0" numgen random mod 100 < 5 counter drop
				}
			}`, "nft", "-f", "-")
		require.Have(t, "nft", err == nil, fmt.Sprintf("packets cannot be made to get lost: %v", err))
	}
	for range 4 {
		w.change()
	}
	w.finish()
}

// TestChangesCutOff: a host is cut off, and the others go on without its processes. One
// from another host joins, and others leave.
func TestChangesCutOff(t *testing.T) {
	t.Parallel()
	w, net := newChangingNetwork(t, false, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.2", "NEXAR_HEARTBEAT_TIMEOUT_SECS=5", "NEXAR_RECOVERY_TIMEOUT_SECS=10")
	cut := time.Now()
	away := w.cutOff(net.hosts[lostHost], lostHost)
	w.settle()
	t.Logf("the others go on after %v", time.Since(cut))
	w.place = func(int) place { return net.hosts[changingHosts] }
	w.join()
	w.depart(true)
	w.settle()
	for _, h := range away {
		select {
		case r := <-h.running:
			if r.Failure == nil || !strings.Contains(r.Failure.Text, "no agreement on who is in the world") {
				t.Errorf("%s was cut off: %v, want that there is no agreement", h.name, r.Failure)
			}
		case <-time.After(settleMax):
			w.fail("%s, which was cut off, does not end", h.name)
		}
	}
	w.place = func(int) place { return net.hosts[0] }
	w.join()
	w.finish()
}

// lostHost is the one that is cut off.
const lostHost = 2

// cutOff takes the processes of a host away from the others.
func (w *changing) cutOff(h *host, number int) (away []*hand) {
	w.note("host %d is cut off", number)
	h.run("ip", "link", "set", "eth0", "down")
	for i := len(w.hands) - 1; i >= 0; i-- {
		if i%changingHosts == number {
			away = append(away, w.hands[i])
			w.hands = append(w.hands[:i], w.hands[i+1:]...)
		}
	}
	return away
}

// TestRejoin: a host is cut off, and the others go on without it. Its processes are
// told so within the recovery timeout, and make no world of their own. They join
// again, as new nodes, and when the network is whole they are in the world of the
// others from the next checkpoint on, with the state that these have.
func TestRejoin(t *testing.T) {
	t.Parallel()
	const silence, recovery = 5 * time.Second, 10 * time.Second
	w, net := newChangingNetwork(t, true, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.2", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", silence.Seconds()),
		fmt.Sprint("NEXAR_RECOVERY_TIMEOUT_SECS=", recovery.Seconds()))
	cut := time.Now()
	away := w.cutOff(net.hosts[lostHost], lostHost)
	w.settle()
	for _, h := range away {
		before := h.last()
		for h.last().Number > 0 {
			if h.last().Number > before.Number {
				w.fail("%s has gone on by itself: %+v", h.name, h.epochs)
			}
			time.Sleep(10 * time.Millisecond)
			w.ask(h)
		}
		if took := h.last().At.Sub(cut); took > silence+recovery+slowMax {
			w.fail("%s was told after %v, want at most %v after the heartbeat timeout of %v", h.name, took, recovery+slowMax, silence)
		}
		t.Logf("%s was told after %v", h.name, h.last().At.Sub(cut))
	}
	net.hosts[lostHost].run("ip", "link", "set", "eth0", "up")
	healed := time.Now()
	w.note("the network is whole")
	w.hands = append(w.hands, away...)
	w.settle()
	t.Logf("all work together %v after the network was whole", time.Since(healed))
	if len(w.hands) != changingRanks {
		t.Errorf("%d processes are in the world, want %d", len(w.hands), changingRanks)
	}
	w.finish()
}

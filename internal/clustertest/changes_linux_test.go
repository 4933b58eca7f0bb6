package clustertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// changingHosts are those on which a world begins.
const changingHosts = 3

// newChangingNetwork is a world of six processes on three hosts, with a seed on the
// first.
func newChangingNetwork(t *testing.T, vars ...string) (*changing, *network) {
	t.Helper()
	net := newNetwork(t, changingHosts+1, ipv4)
	w := &changing{T: t, crew: newCrew(t), rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), counts: &tally{kinds: make(map[string]int)}, way: "shm,tcp,quic"}
	seed := w.crew.hire(net.hosts[0], "seed", "NEXAR_ELASTIC_ENABLED=1", fmt.Sprint("NEXAR_ELASTIC_MAX_WORLD_SIZE=", changingMax))
	ok(t, []report{seed.do(order{Do: "seed", N: changingRanks, Addr: ":" + seedPort})})
	w.logs = map[string]*logBuffer{"seed": seed.log}
	w.seeds, w.listen = net.hosts[0].at(seedPort), ":0"
	w.vars = append(vars, "NEXAR_LEAVE_ON_SIGTERM=1", "NEXAR_DUMP_ON_QUIT=1")
	w.place = func(n int) place { return net.hosts[(n-1)%changingHosts] }
	for range changingRanks {
		w.hire(false)
	}
	w.settle()
	return w, net
}

// TestChangesLoss: a world changes while packets between its hosts get lost. It takes
// longer, and nobody is taken for dead who is not.
func TestChangesLoss(t *testing.T) {
	t.Parallel()
	w, net := newChangingNetwork(t)
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
	w, net := newChangingNetwork(t, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.2", "NEXAR_HEARTBEAT_TIMEOUT_SECS=1.5", "NEXAR_RECOVERY_TIMEOUT_SECS=4")
	const lost = 2
	w.note("host %d is cut off", lost)
	net.hosts[lost].run("ip", "link", "set", "eth0", "down")
	cut := time.Now()
	var away []*hand
	for i := len(w.hands) - 1; i >= 0; i-- {
		if i%changingHosts == lost {
			away = append(away, w.hands[i])
			w.hands = append(w.hands[:i], w.hands[i+1:]...)
		}
	}
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

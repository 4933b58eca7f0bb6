package cluster

import (
	"strings"
	"testing"
	"time"
)

// A rank leaves orderly while its packets to rank 0 are lost. Two other ranks have read its
// goodbye and wait for rank 0. They learn of its end when rank 0 does, from a report that names
// rank 0, and all three go on together. If the seed has another address than rank 0, the leave
// reaches it; otherwise the seed loses its connection as well.
func TestGoodbyeReadBySome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		transports  string
		reachesSeed bool
	}{
		"TCP and QUIC":           {"tcp,quic", true},
		"QUIC":                   {"quic", true},
		"QUIC, seed cut off too": {"quic", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goodbyeReadBySome(t, c.transports, c.reachesSeed)
		})
	}
}

func goodbyeReadBySome(t *testing.T, transports string, reachesSeed bool) {
	const (
		leaver    = 3
		seedAddr  = "10.77.0.201"       // a second address of the first host
		unusedMAC = "02:00:00:00:de:ad" // no host has it
		ceiling   = time.Minute         // for the heartbeat timeout and the delays of a busy machine
	)
	c := newCluster(t, 4, ipv4, func(w *network, rank int) []string {
		vars := []string{
			"NEXAR_TRANSPORTS=" + transports, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", "NEXAR_HEARTBEAT_TIMEOUT_SECS=2",
			"NEXAR_RECOVERY_TIMEOUT_SECS=120",
		}
		if rank == 0 && reachesSeed {
			w.hosts[0].run("ip", "addr", "add", seedAddr+"/24", "dev", "eth0")
			vars = append(vars, "NEXAR_ADVERTISE="+w.hosts[0].addr().String())
		}
		if reachesSeed {
			vars = append(vars, "NEXAR_SEEDS="+seedAddr+":"+seedPort)
		}
		return vars
	})
	c.join()
	waiting := make([]<-chan result, leaver)
	for rank, w := range c.ranks[:leaver] {
		peer := 0
		if rank == 0 {
			peer = 1
		}
		waiting[rank] = w.start(command{Do: "wait-for-failure", Peer: peer, Timeout: 3 * ceiling})
	}
	time.Sleep(300 * time.Millisecond)
	cut := time.Now()
	c.hosts[leaver].run("ip", "neigh", "replace", c.hosts[0].addr().String(), "lladdr", unusedMAC, "dev", "eth0", "nud", "permanent")
	closed := c.ranks[leaver].start(command{Do: "close"})
	for rank, r := range awaitAll(c.ranks[:leaver], waiting) {
		if r.Failure != nil || len(r.CallsAfter) != 1 || len(r.Epochs) != 2 {
			t.Errorf("rank %d: %v; %v; epochs %+v", rank, r.Failure, r.CallsAfter, r.Epochs)
			continue
		}
		f := r.CallsAfter[0]
		if !f.PeerFailed || f.Rank != leaver || f.Left || rank > 0 && !strings.Contains(f.Text, "as rank 0 reports") {
			t.Errorf("rank %d: %v, want the failure of rank %d, as rank 0 reports", rank, f, leaver)
		}
		if next := r.Epochs[1]; next.Rank != rank || next.Size != leaver {
			t.Errorf("rank %d is rank %d of %d in the next epoch, want %d of %d", rank, next.Rank, next.Size, rank, leaver)
		}
		took := r.Epochs[1].At.Sub(cut)
		t.Logf("rank %d had its error after %v and the next communicator after %v", rank, f.Took, took)
		if took > ceiling {
			t.Errorf("rank %d had the next communicator after %v, want at most %v", rank, took, ceiling)
		}
	}
	c.ranks[leaver].await(closed)
}

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// When a host is cut off, the others go on without it. It does not go on alone, since it cannot reach the
// seed.
func TestSurviveCutOff(t *testing.T) {
	t.Parallel()
	const (
		timeout  = 5 * time.Second
		recovery = 10 * time.Second
		lost     = 2
	)
	c := newCluster(t, 4, ipv4, func(*network, int) []string {
		return []string{"NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()),
			fmt.Sprint("NEXAR_RECOVERY_TIMEOUT_SECS=", recovery.Seconds())}
	})
	c.join()
	running := make([]<-chan result, len(c.ranks))
	for rank, w := range c.ranks {
		running[rank] = w.start(command{Do: "survive", Op: "all_reduce", N: 10_000, Peer: len(c.ranks) - 1, Rounds: 20})
	}
	time.Sleep(300 * time.Millisecond)
	cut := time.Now()
	c.hosts[lost].run("ip", "link", "set", "eth0", "down")
	at := 0
	for rank, r := range awaitAll(c.ranks, running) {
		if rank == lost {
			if r.Failure == nil || !strings.Contains(r.Failure.Text, "no agreement on the members of the world") {
				t.Errorf("the host that was cut off: %v, want an error about the missing agreement", r.Failure)
			}
			if took := r.At.Sub(cut); took > timeout+recovery+slowMax {
				t.Errorf("the host that was cut off had its error after %v, want at most %v after the heartbeat timeout of %v", took, recovery+slowMax, timeout)
			}
			if len(r.Epochs) != 1 {
				t.Errorf("the host that was cut off has a further epoch: %+v", r.Epochs)
			}
			continue
		}
		if r.Failure != nil || len(r.Epochs) != 2 {
			t.Errorf("rank %d: %v, epochs %+v", rank, r.Failure, r.Epochs)
			continue
		}
		checkEpochs(t, r.Epochs, at, len(c.ranks)-1, len(c.ranks), false)
		at++
		took := r.Epochs[1].At.Sub(cut)
		t.Logf("rank %d had the next communicator after %v", rank, took)
		if took > timeout+slowMax {
			t.Errorf("rank %d had the next communicator after %v, want at most %v more than the heartbeat timeout of %v", rank, took, slowMax, timeout)
		}
	}
}

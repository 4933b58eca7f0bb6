//go:build unix

package clustertest

import (
	"syscall"
	"testing"
	"time"
)

// A process that stands still for less than the heartbeat timeout has not
// failed: the others wait for it. When it stands still for longer, they give
// it up, and say whom; and it is told so when it goes on.
func TestStop(t *testing.T) {
	t.Parallel()
	const (
		ranks, victim = 4, 2
		timeout       = 2500 * time.Millisecond
	)
	c := newCrew(t)
	team := c.team(ranks, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", "NEXAR_HEARTBEAT_TIMEOUT_SECS=2.5")
	ids := all(team, order{Do: "id"})
	begin := func(o order) (running []<-chan report) {
		for _, w := range team {
			running = append(running, w.start(o))
		}
		return running
	}

	running := begin(order{Do: "loop", What: "all_reduce", N: 1000, Sets: 500})
	team[victim].kill(syscall.SIGSTOP)
	time.Sleep(timeout / 3)
	team[victim].kill(syscall.SIGCONT)
	ok(t, await(team, running))

	running = begin(order{Do: "loop", What: "all_reduce", N: 1000})
	time.Sleep(50 * time.Millisecond)
	stopped := team[victim].kill(syscall.SIGSTOP)
	for rank := range team {
		if rank == victim {
			continue
		}
		r := team[rank].await(running[rank])
		checkLost(t, rank, r.Failure, victim, ids[victim].Text)
		if silent := r.At.Sub(stopped); silent < timeout-time.Second || silent > timeout+noticeMax {
			t.Errorf("rank %d gave it up after %v of silence, want %v", rank, silent, timeout)
		}
	}
	team[victim].kill(syscall.SIGCONT)
	if r := team[victim].await(running[victim]); r.Failure == nil || !r.Failure.PeerFailed {
		t.Errorf("the one that stood still: %v, want an error, as the others have gone on", r.Failure)
	}
}

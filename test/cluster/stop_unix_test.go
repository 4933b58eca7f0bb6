//go:build unix

package cluster

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that is stopped for less than the heartbeat timeout has not failed: the others wait for it. If
// it is stopped for longer, their errors name it, and it gets an error when it continues.
func TestStop(t *testing.T) {
	t.Parallel()
	const (
		ranks, victim = 4, 2
		timeout       = 6 * time.Second
	)
	c := newCrew(t)
	team := c.team(ranks, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()))
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
		if silent := r.At.Sub(stopped); silent < timeout-time.Second || silent > timeout+slowMax {
			t.Errorf("rank %d gave it up after %v of silence, want %v", rank, silent, timeout)
		}
	}
	team[victim].kill(syscall.SIGCONT)
	if r := team[victim].await(running[victim]); r.Failure == nil || !r.Failure.PeerFailed {
		t.Errorf("the one that stood still: %v, want an error, as the others have gone on", r.Failure)
	}
}

// TestStopTimesOut: without heartbeats, the timeouts of other ranks name a process that was stopped during
// an operation, over every transport.
func TestStopTimesOut(t *testing.T) {
	t.Parallel()
	const ranks, victim = 3, 1
	for way, n := range map[string]int{"shm": 4 << 20, "tcp,quic": 4 << 20, "quic": 10} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t)
			team := c.team(ranks, "NEXAR_TRANSPORTS="+way, "NEXAR_HEARTBEAT_TIMEOUT_SECS=600", "NEXAR_COLLECTIVE_TIMEOUT_SECS=4")
			var running []<-chan report
			for _, w := range team {
				running = append(running, w.start(order{Do: "loop", What: "all_reduce", N: n}))
			}
			time.Sleep(500 * time.Millisecond)
			team[victim].kill(syscall.SIGSTOP)
			defer team[victim].kill(syscall.SIGCONT)
			for rank := range team {
				if rank == victim {
					continue
				}
				f := team[rank].await(running[rank]).Failure
				if f == nil || !f.Deadline && !f.Revoked || !strings.Contains(f.Text, fmt.Sprintf("rank %d (", victim)) {
					t.Errorf("rank %d: %v, want that the time is up, and because of rank %d", rank, f, victim)
				}
			}
		})
	}
}

// All processes stand still at the same time, as on a machine that was suspended, or
// under a shell's Ctrl-Z, for longer than any timeout. They go on where they were.
func TestStopAll(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	c := newCrew(t)
	_, team := c.enlist(3, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()),
		fmt.Sprint("NEXAR_COLLECTIVE_TIMEOUT_SECS=", (3*timeout).Seconds()))
	signal := func(sig os.Signal) {
		for _, w := range c.workers {
			if err := w.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	once := order{Do: "loop", What: "all_reduce", N: 1000, Sets: 1}
	running := []<-chan report{team[0].start(once), team[1].start(once)}
	time.Sleep(timeout / 5)
	signal(syscall.SIGSTOP)
	time.Sleep(4 * timeout)
	signal(syscall.SIGCONT)
	time.Sleep(timeout / 2)
	ok(t, await(team, append(running, team[2].start(once))))
	time.Sleep(2 * timeout)
	ok(t, all(team, order{Do: "check"}))
}

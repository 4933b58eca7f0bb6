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

// The other ranks wait for a process that is stopped for less than the heartbeat timeout. If it is stopped
// for longer, their errors name it, and it gets an error when it continues.
func TestStop(t *testing.T) {
	t.Parallel()
	const (
		ranks, victim = 4, 2
		timeout       = 6 * time.Second
	)
	c := newWorkerSet(t)
	workers := c.startWorld(ranks, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()))
	ids := runAll(workers, command{Do: "id"})
	begin := func(o command) (running []<-chan result) {
		for _, w := range workers {
			running = append(running, w.start(o))
		}
		return running
	}

	running := begin(command{Do: "loop", Op: "all_reduce", N: 1000, Rounds: 500})
	workers[victim].kill(syscall.SIGSTOP)
	time.Sleep(timeout / 3)
	workers[victim].kill(syscall.SIGCONT)
	mustSucceed(t, awaitAll(workers, running))

	running = begin(command{Do: "loop", Op: "all_reduce", N: 1000})
	time.Sleep(50 * time.Millisecond)
	stopped := workers[victim].kill(syscall.SIGSTOP)
	for rank := range workers {
		if rank == victim {
			continue
		}
		r := workers[rank].await(running[rank])
		checkLost(t, rank, r.Failure, victim, ids[victim].Text)
		if silent := r.At.Sub(stopped); silent < timeout-time.Second || silent > timeout+slowMax {
			t.Errorf("rank %d had its error after %v of silence, want %v", rank, silent, timeout)
		}
	}
	workers[victim].kill(syscall.SIGCONT)
	if r := workers[victim].await(running[victim]); r.Failure == nil || !r.Failure.PeerFailed {
		t.Errorf("the stopped process: %v, want a failed peer, as the others have gone on", r.Failure)
	}
}

// If a process is stopped during an operation and heartbeats do not detect it, the timeout errors of the
// other ranks name it, over every transport.
func TestStopTimesOut(t *testing.T) {
	t.Parallel()
	const ranks, victim = 3, 1
	for way, n := range map[string]int{"shm": 4 << 20, "tcp,quic": 4 << 20, "quic": 10} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := newWorkerSet(t)
			workers := c.startWorld(ranks, "NEXAR_TRANSPORTS="+way, "NEXAR_HEARTBEAT_TIMEOUT_SECS=600", "NEXAR_COLLECTIVE_TIMEOUT_SECS=4")
			var running []<-chan result
			for _, w := range workers {
				running = append(running, w.start(command{Do: "loop", Op: "all_reduce", N: n}))
			}
			time.Sleep(500 * time.Millisecond)
			workers[victim].kill(syscall.SIGSTOP)
			defer workers[victim].kill(syscall.SIGCONT)
			for rank := range workers {
				if rank == victim {
					continue
				}
				f := workers[rank].await(running[rank]).Failure
				if f == nil || !f.Deadline && !f.Revoked || !strings.Contains(f.Text, fmt.Sprint("rank ", victim)) {
					t.Errorf("rank %d: %v, want a timeout that names rank %d", rank, f, victim)
				}
			}
		})
	}
}

// All processes are stopped at the same time for longer than any timeout, as on a suspended machine or
// by Ctrl-Z in a shell. They go on without an error.
func TestStopAll(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	c := newWorkerSet(t)
	_, workers := c.startWorldWithSeed(3, "NEXAR_HEARTBEAT_INTERVAL_SECS=0.1", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()),
		fmt.Sprint("NEXAR_COLLECTIVE_TIMEOUT_SECS=", (3*timeout).Seconds()))
	signal := func(sig os.Signal) {
		for _, w := range c.workers {
			if err := w.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	once := command{Do: "loop", Op: "all_reduce", N: 1000, Rounds: 1}
	running := []<-chan result{workers[0].start(once), workers[1].start(once)}
	time.Sleep(timeout / 5)
	signal(syscall.SIGSTOP)
	time.Sleep(4 * timeout)
	signal(syscall.SIGCONT)
	time.Sleep(timeout / 2)
	mustSucceed(t, awaitAll(workers, append(running, workers[2].start(once))))
	time.Sleep(2 * timeout)
	mustSucceed(t, runAll(workers, command{Do: "check"}))
}

package attack

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// processAttacks are attacks on processes.
func processAttacks() []attack {
	return []attack{
		{"kill", "a killed rank is replaced by a newcomer", 12 * time.Second, true, attackKill},
		{"stop", "a rank that is stopped for less than the heartbeat timeout stays, one that is stopped for longer is removed", 15 * time.Second, false, attackStop},
		{"change", "ranks join and leave at reconfigurations", 15 * time.Second, false, attackChange},
	}
}

// attackKill kills ranks and replaces them by newcomers.
func attackKill(t *testing.T, rng *rand.Rand) {
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "quic", "shm,tcp,quic"))
	w.startLocal(ranks, arguments{Elastic: true})
	for range 2 {
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		alive := w.survivors()
		alive[rng.IntN(len(alive))].signal(os.Kill)
		w.waitForSize(ranks - 1)
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		w.waitForSize(ranks)
		w.waitForSteps(10)
	}
	w.finish()
}

// attackStop stops ranks for shorter and longer than the heartbeat timeout.
func attackStop(t *testing.T, rng *rand.Rand) {
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "quic", "shm,tcp,quic"))
	w.startLocal(ranks, arguments{})
	victim := w.ranks[rng.IntN(ranks)]
	for range 3 {
		stopFor(t, victim, time.Duration(rng.IntN(int(heartbeatTimeout/3))))
		w.waitForSteps(5)
	}
	victim.signal(syscall.SIGSTOP)
	w.waitForSize(ranks - 1)
	w.waitForSteps(5)
	victim.signal(syscall.SIGCONT)
	w.waitForRemoval(victim)
	w.finish()
}

// stopFor stops a process for less than the heartbeat timeout, so that it is no victim.
func stopFor(t *testing.T, p *process, d time.Duration) {
	t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Errorf("%v to %s: %v", sig, p.name, err)
		}
		if sig == syscall.SIGSTOP {
			time.Sleep(d)
		}
	}
}

// attackChange has ranks join and leave while others work.
func attackChange(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "shm,tcp,quic"))
	w.startLocal(3, arguments{Elastic: true})
	for range 3 {
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		w.waitForSize(4)
		alive := w.survivors()
		leaver := alive[rng.IntN(len(alive))]
		leaver.markVictim() // it is not in the last world
		leaver.send("leave")
		leaver.await(bound, "leave", func(e event) bool { return e.Kind == evDone })
		w.waitForSize(3)
	}
	w.finish()
}

package attack

import (
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// processAttacks are those that need nothing of the network.
func processAttacks() []attack {
	return []attack{
		{"kill", "a killed rank is replaced by a newcomer", 12 * time.Second, true, attackKill},
		{"stop", "a rank that is stopped for less than the heartbeat timeout stays, one that is stopped for longer goes", 15 * time.Second, false, attackStop},
		{"change", "ranks join and leave at checkpoints", 15 * time.Second, false, attackChange},
	}
}

// attackKill kills ranks and lets newcomers take their places.
func attackKill(t *testing.T, rng *rand.Rand) {
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "quic", "shm,tcp,quic"))
	w.local(ranks, arguments{Elastic: true})
	for range 2 {
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		alive := w.alive()
		alive[rng.IntN(len(alive))].signal(os.Kill)
		w.size(ranks - 1)
		w.rank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		w.size(ranks)
		w.progress(10)
	}
	w.finish()
}

// attackStop stops ranks for shorter and longer than the heartbeat timeout.
func attackStop(t *testing.T, rng *rand.Rand) {
	const ranks = 4
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "quic", "shm,tcp,quic"))
	w.local(ranks, arguments{})
	victim := w.ranks[rng.IntN(ranks)]
	for range 3 {
		freeze(t, victim, time.Duration(rng.IntN(int(heartbeatTimeout/3))))
		w.progress(5)
	}
	victim.signal(syscall.SIGSTOP)
	w.size(ranks - 1)
	w.progress(5)
	victim.signal(syscall.SIGCONT)
	w.removed(victim)
	w.finish()
}

// freeze stops a process for a while, after which it is none the worse.
func freeze(t *testing.T, p *process, d time.Duration) {
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
	w.local(3, arguments{Elastic: true})
	for range 3 {
		w.rank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		w.size(4)
		alive := w.alive()
		leaver := alive[rng.IntN(len(alive))]
		leaver.harm() // it is in no world when the others finish
		leaver.tell("leave")
		leaver.await(bound, "leave", func(e event) bool { return e.Kind == evDone })
		w.size(3)
	}
	w.finish()
}

package attack

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/wire"
)

// hostileAttacks are attacks by programs that connect to a world or write into its memory.
func hostileAttacks() []attack {
	return []attack{
		{"hostile connections", "garbage, wrong tokens, and nonsense after the right token have no effect, while ranks fail and join", 20 * time.Second, false, attackHostile},
		{"shared memory", "random writes into the shared memory of a rank end no other process and hang none", 20 * time.Second, false, attackSharedMemory},
		{"seed killed in a write", "seeds that are killed at any moment of a change of the world restart with the decided state", 30 * time.Second, false, attackSeedKill},
		{"peer tokens", "seeds with different peer tokens log that the token of the other is wrong", 10 * time.Second, false, attackPeerTokens},
	}
}

// attackHostile runs many hostile clients while the world changes.
func attackHostile(t *testing.T, rng *mathrand.Rand) {
	w := newIdentityWorld(t, rng, 3, arguments{Elastic: true}, transports(rng, "shm", "tcp,quic", "shm,tcp,quic"))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	addrs := append([]string{w.seedAddr}, w.listen...)
	for i := range 6 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				addr := addrs[(i+n)%len(addrs)]
				switch (i + n) % 3 {
				case 0:
					garbage(addr, "udp")
				case 1:
					garbage(addr, "tcp")
				case 2:
					w.sendNonsense(ctx, n%2 == 0)
				}
			}
		})
	}
	for range 2 {
		w.waitForSteps(10)
		alive := w.survivors()
		alive[rng.IntN(len(alive))].signal(os.Kill)
		w.waitForSize(2)
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		w.waitForSize(3)
	}
	cancel()
	all.Wait()
	w.finish()
}

// garbage sends random bytes to a port.
func garbage(addr, network string) {
	c, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	b := make([]byte, 1200)
	rand.Read(b)
	if network == "udp" {
		b[0] |= 0xc0 // a long header, as of the first packet of a connection
	}
	c.SetDeadline(time.Now().Add(time.Second))
	c.Write(b)
	if network == "tcp" {
		io.Copy(io.Discard, c)
	}
}

// sendNonsense connects to the seed, with the right or a wrong token, and sends messages that are
// invalid at this point of the protocol.
func (w *identityWorld) sendNonsense(ctx context.Context, right bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	copied := *w.world
	if !right {
		copied.token = nexar.NewToken()
	}
	end, err := newEndpoint()
	if err != nil {
		return
	}
	defer end.Close()
	c, err := (&identityWorld{world: &copied, seedAddr: w.seedAddr}).connect(ctx, end)
	if err != nil {
		return
	}
	defer c.conn.Close()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	junk := make([]byte, 300)
	rand.Read(junk)
	for _, m := range []wire.JoinMessage{
		wire.JoinReady{Epoch: 1 << 40}, wire.JoinRequest{CSR: junk, Rank: wire.AnyRank, Name: "nonsense"}, wire.JoinLeave{},
		wire.JoinLog{Data: junk}, wire.JoinSeedHello{Seed: 7, World: 3},
	}[int(junk[0])%5:] {
		if c.send(m) != nil {
			return
		}
	}
	c.out.Write(junk)
	c.receive()
}

// attackSharedMemory has a process of the same user write into the shared memory of a rank. Results
// computed from altered memory can be wrong: the same user could alter the private memory of a
// rank as well. No rank may crash or hang.
func attackSharedMemory(t *testing.T, rng *mathrand.Rand) {
	const ranks = 3
	w := newWorld(t, rng, "NEXAR_TRANSPORTS=shm", "NEXAR_COLLECTIVE_TIMEOUT_SECS=10", "NEXAR_BARRIER_TIMEOUT_SECS=10")
	w.startLocal(ranks, arguments{})
	victim := w.ranks[rng.IntN(ranks)]
	for _, p := range w.ranks {
		p.markVictim() // results and memberships are not checked
	}
	writes := 0
	for range 200 {
		n, err := writeRandomly(victim.cmd.Process.Pid, rng)
		writes += n
		if err != nil {
			break // the victim has ended
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("%d writes", writes)
	if writes == 0 {
		t.Error("nothing was written")
	}
	for _, p := range w.ranks {
		p.send("stop")
		p.in.Close()
	}
	for _, p := range w.ranks {
		began := time.Now()
		p.reap()
		if took := time.Since(began); took > bound {
			t.Errorf("%s took %v to end", p.name, took)
		}
		for _, sign := range []string{"panic:", "fatal error:", "SIGBUS", "SIGSEGV"} {
			if strings.Contains(p.log.String(), sign) {
				t.Errorf("%s: its log has %q:\n%s", p.name, sign, p.log.Tail(4000))
			}
		}
	}
}

// writeRandomly writes random bytes to random addresses of the pipes and areas that a process has
// mapped, and returns the number of writes.
func writeRandomly(pid int, rng *mathrand.Rand) (writes int, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || !strings.Contains(line, "memfd:nexar") || !strings.Contains(line, "rw-s") {
			continue
		}
		for range 4 {
			b := make([]byte, 1+rng.IntN(16))
			for i := range b {
				b[i] = byte(rng.Int())
			}
			at := from + rng.Int64N(to-from-int64(len(b)))
			if rng.IntN(2) == 0 {
				at = from + rng.Int64N(512) // the range of the counters
			}
			if _, err := mem.WriteAt(b, at); err == nil {
				writes++
			}
		}
	}
	return writes, nil
}

// attackSeedKill kills seeds while the world changes.
func attackSeedKill(t *testing.T, rng *mathrand.Rand) {
	const ranks = 3
	g := newSeedGroup(t, rng, ranks)
	for range ranks {
		g.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	g.waitForSteps(1)
	for range 4 {
		alive := g.survivors()
		alive[rng.IntN(len(alive))].signal(os.Kill)
		i := rng.IntN(groupSeeds)
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		g.seeds[i].signal(os.Kill)
		g.seeds[i].reap()
		g.waitForSize(ranks - 1)
		g.startMember(i, ranks)
		g.seeds[i].await(bound, "seed that listens again", func(e event) bool { return e.Kind == evReady })
		g.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		g.waitForSize(ranks)
	}
	g.finish()
}

// attackPeerTokens gives two seeds different peer tokens.
func attackPeerTokens(t *testing.T, rng *mathrand.Rand) {
	w := newWorld(t, rng)
	dir, addrs := t.TempDir(), []string{testhost.FreePort(t), testhost.FreePort(t)}
	var seeds []*process
	for i, addr := range addrs {
		args := arguments{World: 1, Listen: addr, Peers: addrs, PeerToken: pki.NewToken().Reveal(), StateDir: filepath.Join(dir, fmt.Sprint(i))}
		p := start(t, nil, "seed", fmt.Sprint("seed ", i), args, "NEXAR_CLUSTER_TOKEN="+w.token)
		p.await(bound, "seed that listens", func(e event) bool { return e.Kind == evReady })
		seeds = append(seeds, p)
	}
	for i, p := range seeds {
		want := fmt.Sprintf("seed %s does not hold the token of the seeds (--peer-token-file)", addrs[1-i])
		for began := time.Now(); !strings.Contains(p.log.String(), want); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > bound {
				t.Fatalf("seed %d does not log %q:\n%s", i, want, p.log.Tail(3000))
			}
		}
	}
}

package clustertest

import (
	"cmp"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// floodVariable has TestFloodCost measure, so many rounds of each kind.
const floodVariable = "NEXAR_MEASURE_FLOOD"

// A floodCost is what one round has taken.
type floodCost struct {
	join, status time.Duration // the slowest
	reduces      float64       // a second
	cpu          time.Duration // of the seed, a second
}

// TestFloodCost measures what a flood of the seed costs others, against the same sender
// that floods sockets that nobody reads: the processors are shared with it either way.
func TestFloodCost(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(floodVariable))
	if err != nil {
		return // It is no test; there is nothing that could fail.
	}
	for _, kind := range append(floodKinds(), "all") {
		var discarded, flooded []floodCost
		for range rounds {
			discarded = append(discarded, measureFlood(t, kind, false))
			flooded = append(flooded, measureFlood(t, kind, true))
		}
		for name, costs := range map[string][]floodCost{"discard": discarded, "seed": flooded} {
			t.Logf("%-10s %-8s join %v, status %v, all-reduces %.0f/s, seed %v/s", kind, name,
				median(costs, func(c floodCost) time.Duration { return c.join }),
				median(costs, func(c floodCost) time.Duration { return c.status }),
				median(costs, func(c floodCost) float64 { return c.reduces }),
				median(costs, func(c floodCost) time.Duration { return c.cpu }))
		}
	}
}

func median[T cmp.Ordered](costs []floodCost, of func(floodCost) T) T {
	var all []T
	for _, c := range costs {
		all = append(all, of(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func measureFlood(t *testing.T, kind string, atSeed bool) (cost floodCost) {
	c := &crew{t: t, token: nexar.NewToken()}
	defer c.dismiss()
	sender, seed := c.hire(nil, "flooder"), c.hire(nil, "seed")
	r := seed.do(order{Do: "seed", N: 2, Addr: "127.0.0.1:0"})
	ok(t, []report{r})
	addr := r.Text
	target := addr
	if !atSeed {
		target = discardAll(t)
	}
	const lasts = 20 * time.Second
	sending := sender.start(order{Do: "flood", What: kind, N: floodRate, For: lasts, Addr: target, From: floodFrom})
	time.Sleep(6 * time.Second)
	team := c.ranks(2, addr)
	for _, r := range all(team, order{Do: "join"}) {
		ok(t, []report{r})
		cost.join = max(cost.join, r.Took)
	}
	const working = 6 * time.Second
	before := used(t, seed)
	for _, r := range all(team, order{Do: "loop", What: "all_reduce", N: 1000, For: working}) {
		cost.reduces = float64(r.Rounds) / working.Seconds()
	}
	cost.cpu = time.Duration(float64(used(t, seed)-before) / working.Seconds())
	for range 10 {
		began := time.Now()
		if _, err := nexar.AskStatus(t.Context(), nexar.Config{Seeds: []string{addr}, Token: c.token}); err != nil {
			t.Errorf("flood of %q, at the seed: %v: status: %v", kind, atSeed, err)
		}
		cost.status = max(cost.status, time.Since(began))
		time.Sleep(50 * time.Millisecond)
	}
	if r := sender.await(sending); r.Rounds < floodRate {
		t.Errorf("flood of %q: %d handshakes in %v, %v", kind, r.Rounds, r.Took, r.Failure)
	} else {
		t.Logf("%s, at the seed: %v: %+v, sent %d in %v", kind, atSeed, cost, r.Rounds, r.Took)
	}
	return cost
}

// discardAll returns the address of a UDP socket that is never read, and of a TCP port
// that closes what it accepts.
func discardAll(t *testing.T) string {
	t.Helper()
	packets, err := net.ListenPacket("udp", freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		packets.Close()
		l.Close()
	})
	go func() {
		for {
			sock, err := l.Accept()
			if err != nil {
				return
			}
			sock.Close()
		}
	}()
	return packets.LocalAddr().String()
}

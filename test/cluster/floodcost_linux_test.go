package cluster

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

// A floodCost is the result of one round.
type floodCost struct {
	join, status time.Duration // the slowest
}

// A floodSlot is the work done in one slot of time.
type floodSlot struct {
	reduces float64       // a second
	cpu     time.Duration // of the seed, a second
}

// TestFloodCost measures the cost of a flood of the seed for others, against the same sender
// that floods sockets that nobody reads: the processors are shared with it either way.
func TestFloodCost(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(floodVariable))
	if err != nil {
		t.Logf("nothing is measured, and nothing can fail: %s is not a number of rounds", floodVariable)
		return
	}
	for _, kind := range append(floodKinds(), "all") {
		var discarded, flooded []floodCost
		for range rounds {
			discarded = append(discarded, measureFlood(t, kind, false))
			flooded = append(flooded, measureFlood(t, kind, true))
		}
		for name, costs := range map[string][]floodCost{"discard": discarded, "seed": flooded} {
			t.Logf("%-10s %-8s join %v, status %v (medians of the slowest)", kind, name,
				median(costs, func(c floodCost) time.Duration { return c.join }),
				median(costs, func(c floodCost) time.Duration { return c.status }))
		}
		slots := measureWork(t, kind, 10*rounds)
		var ratios []float64
		for _, pair := range slots {
			ratios = append(ratios, pair[1].reduces/pair[0].reduces)
		}
		slices.Sort(ratios)
		t.Logf("%-10s all-reduces while the seed is flooded: %.3f of those beside a discarding socket (median of %d pairs; quartiles %.3f, %.3f); seed %v and %v a second",
			kind, ratios[len(ratios)/2], len(ratios), ratios[len(ratios)/4], ratios[3*len(ratios)/4],
			median(slots, func(p [2]floodSlot) time.Duration { return p[1].cpu }),
			median(slots, func(p [2]floodSlot) time.Duration { return p[0].cpu }))
	}
}

// measureWork has two ranks reduce while a sender floods in turn a socket that discards,
// and the seed, and returns the work done in each pair of slots.
func measureWork(t *testing.T, kind string, pairs int) (slots [][2]floodSlot) {
	const slot = time.Second
	c := &crew{t: t, token: nexar.NewToken()}
	defer c.dismiss()
	seed := c.hire(nil, "seed")
	r := seed.do(order{Do: "seed", N: 2, Addr: "127.0.0.1:0"})
	ok(t, []report{r})
	team := c.ranks(2, r.Text)
	ok(t, all(team, order{Do: "join"}))
	lasts := 6*time.Second + time.Duration(2*pairs+2)*slot
	var senders []*worker
	var floods []<-chan report
	for parity, target := range []string{discardAll(t), r.Text} {
		w := c.hire(nil, "flooder")
		senders = append(senders, w)
		floods = append(floods, w.start(order{
			Do: "flood", What: kind, N: floodRate, For: lasts, Addr: target, From: floodFrom, Slot: slot, Tag: parity,
		}))
	}
	time.Sleep(6 * time.Second)
	var pair [2]floodSlot
	for range 2 * pairs {
		next := slotOf(time.Now(), slot) + 1
		begin := time.Unix(0, int64(next)*int64(slot)).Add(slot / 10)
		time.Sleep(time.Until(begin))
		before, rounds, working := used(t, seed), 0, time.Duration(0)
		for time.Since(begin) < slot*7/10 {
			reports := all(team, order{Do: "loop", What: "all_reduce", N: 1000, Sets: 500})
			ok(t, reports)
			rounds += reports[0].Rounds
			working += reports[0].Took
		}
		took := time.Since(begin).Seconds()
		pair[next%2] = floodSlot{float64(rounds) / working.Seconds(), time.Duration(float64(used(t, seed)-before) / took)}
		if next%2 == 1 && pair[0].reduces > 0 {
			slots = append(slots, pair)
		}
	}
	for _, r := range await(senders, floods) {
		if r.Rounds == 0 {
			t.Errorf("flood of %q: %v", kind, r.Failure)
		}
	}
	return slots
}

func median[C any, T cmp.Ordered](costs []C, of func(C) T) T {
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
	const lasts = 12 * time.Second
	sending := sender.start(order{Do: "flood", What: kind, N: floodRate, For: lasts, Addr: target, From: floodFrom})
	time.Sleep(6 * time.Second)
	team := c.ranks(2, addr)
	for _, r := range all(team, order{Do: "join"}) {
		ok(t, []report{r})
		cost.join = max(cost.join, r.Took)
	}
	for range 10 {
		began := time.Now()
		if _, err := nexar.QueryCluster(t.Context(), nexar.Config{Seeds: []string{addr}, Token: c.token}); err != nil {
			t.Errorf("flood of %q, at the seed: %v: status: %v", kind, atSeed, err)
		}
		cost.status = max(cost.status, time.Since(began))
		time.Sleep(50 * time.Millisecond)
	}
	if r := sender.await(sending); r.Rounds < floodRate {
		t.Errorf("flood of %q: %d handshakes in %v, %v", kind, r.Rounds, r.Took, r.Failure)
	}
	return cost
}

// discardAll returns the address of a UDP socket that is never read, and of a TCP port
// that closes all connections it accepts.
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

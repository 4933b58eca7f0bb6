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
	"github.com/nexar-go/nexar/internal/testhost"
)

// floodVariable is the number of rounds that TestFloodCost measures of each kind.
const floodVariable = "NEXAR_MEASURE_FLOOD"

// A floodCost is the result of one round.
type floodCost struct {
	join, status time.Duration // the longest
}

// A floodWindow is the work done in one time window.
type floodWindow struct {
	reduces float64       // per second
	cpu     time.Duration // of the seed per second
}

// TestFloodCost measures the cost of a flood of the seed for other nodes. The baseline is the same
// flood of sockets that are not read, since the flooder shares the processors in both cases.
func TestFloodCost(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(floodVariable))
	if err != nil {
		t.Logf("nothing is measured: %s is not a number of rounds", floodVariable)
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
		windows := measureWork(t, kind, 10*rounds)
		var ratios []float64
		for _, pair := range windows {
			ratios = append(ratios, pair[1].reduces/pair[0].reduces)
		}
		slices.Sort(ratios)
		t.Logf("%-10s all-reduces while the seed is flooded: %.3f of those beside a discarding socket (median of %d pairs; quartiles %.3f, %.3f); seed %v and %v a second",
			kind, ratios[len(ratios)/2], len(ratios), ratios[len(ratios)/4], ratios[3*len(ratios)/4],
			median(windows, func(p [2]floodWindow) time.Duration { return p[1].cpu }),
			median(windows, func(p [2]floodWindow) time.Duration { return p[0].cpu }))
	}
}

// measureWork has two ranks make all-reduces while flooders flood a discarding socket and the seed
// in alternating time windows, and returns the work done in each pair of windows.
func measureWork(t *testing.T, kind string, pairs int) (windows [][2]floodWindow) {
	const window = time.Second
	c := &workerSet{t: t, token: nexar.NewToken()}
	defer c.stopAll()
	seed := c.start(nil, "seed")
	r := seed.do(command{Do: "seed", N: 2, Addr: "127.0.0.1:0"})
	mustSucceed(t, []result{r})
	workers := c.startRanksOf(2, r.Text)
	mustSucceed(t, runAll(workers, command{Do: "join"}))
	lasts := 6*time.Second + time.Duration(2*pairs+2)*window
	var senders []*worker
	var floods []<-chan result
	for parity, target := range []string{discardAll(t), r.Text} {
		w := c.start(nil, "flooder")
		senders = append(senders, w)
		floods = append(floods, w.start(command{
			Do: "flood", Op: kind, N: floodRate, Duration: lasts, Addr: target, From: floodFrom, Window: window, Tag: parity,
		}))
	}
	time.Sleep(6 * time.Second)
	var pair [2]floodWindow
	for range 2 * pairs {
		next := windowOf(time.Now(), window) + 1
		begin := time.Unix(0, int64(next)*int64(window)).Add(window / 10)
		time.Sleep(time.Until(begin))
		before, rounds, working := cpuTime(t, seed), 0, time.Duration(0)
		for time.Since(begin) < window*7/10 {
			reports := runAll(workers, command{Do: "loop", Op: "all_reduce", N: 1000, Rounds: 500})
			mustSucceed(t, reports)
			rounds += reports[0].Rounds
			working += reports[0].Took
		}
		took := time.Since(begin).Seconds()
		pair[next%2] = floodWindow{float64(rounds) / working.Seconds(), time.Duration(float64(cpuTime(t, seed)-before) / took)}
		if next%2 == 1 && pair[0].reduces > 0 {
			windows = append(windows, pair)
		}
	}
	for _, r := range awaitAll(senders, floods) {
		if r.Rounds == 0 {
			t.Errorf("flood of %q: %v", kind, r.Failure)
		}
	}
	return windows
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
	c := &workerSet{t: t, token: nexar.NewToken()}
	defer c.stopAll()
	sender, seed := c.start(nil, "flooder"), c.start(nil, "seed")
	r := seed.do(command{Do: "seed", N: 2, Addr: "127.0.0.1:0"})
	mustSucceed(t, []result{r})
	addr := r.Text
	target := addr
	if !atSeed {
		target = discardAll(t)
	}
	const lasts = 12 * time.Second
	sending := sender.start(command{Do: "flood", Op: kind, N: floodRate, Duration: lasts, Addr: target, From: floodFrom})
	time.Sleep(6 * time.Second)
	workers := c.startRanksOf(2, addr)
	for _, r := range runAll(workers, command{Do: "join"}) {
		mustSucceed(t, []result{r})
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

// discardAll returns the address of a UDP socket that is not read and of a TCP port that closes
// the connections it accepts.
func discardAll(t *testing.T) string {
	t.Helper()
	packets, err := net.ListenPacket("udp", testhost.FreePort(t))
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

package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

const (
	// lossesVariable is the duration of each variant of TestLossyNetwork, by default lossesAlways.
	lossesVariable = "LOSSES"
	lossesAlways   = 8 * time.Second

	// lossWaitMax is the longest wait for a retransmission at which the transport aims with a
	// loss of 10 %.
	lossWaitMax = 3 * time.Second
	// lossCeiling limits the duration of an operation. A busy machine does not reach it, a
	// stalled socket does.
	lossCeiling = 10 * time.Second
)

// loseReceived has a host drop a part of the packets that it receives.
func (h *host) loseReceived(t *testing.T, percent int) {
	t.Helper()
	_, err := h.try(fmt.Sprintf(`
		table inet nexar {
			chain in {
				type filter hook input priority 0;
				iifname "eth0" numgen random mod 100 < %d counter drop
			}
		}`, percent), "nft", "-f", "-")
	require.Have(t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
}

// A stallMonitor samples the TCP sockets of hosts and keeps the longest stall. A socket stalls while
// it has unacknowledged bytes and gets no acknowledgement of new ones.
type stallMonitor struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	longest time.Duration
	what    string
	counts  map[time.Duration]int // stalls by their least duration
}

// stallSteps are thresholds: a stallMonitor counts the stalls of at least each.
var stallSteps = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second}

func monitorStalls(hosts []*host) *stallMonitor {
	w := &stallMonitor{stop: make(chan struct{}), counts: make(map[time.Duration]int)}
	for i, h := range hosts {
		w.done.Go(func() { w.watch(i, h) })
	}
	return w
}

// end stops the sampling.
func (w *stallMonitor) end() {
	close(w.stop)
	w.done.Wait()
}

// A stalledSocket is a socket with unacknowledged bytes.
type stalledSocket struct {
	acked       string
	since, seen time.Time // first and last in this state
	line        string
}

func (w *stallMonitor) watch(number int, h *host) {
	before := make(map[string]stalledSocket)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		out, err := h.try("", "ss", "-tinoOH", "state", "established")
		if err != nil {
			continue
		}
		now := time.Now()
		after := make(map[string]stalledSocket)
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if len(fields) < 4 || !strings.Contains(line, " unacked:") || !strings.Contains(line, "timer:(on") {
				continue
			}
			s := stalledSocket{since: now, seen: now, line: line}
			for _, f := range fields {
				if strings.HasPrefix(f, "bytes_acked:") {
					s.acked = f
				}
			}
			key := fields[2] + " " + fields[3]
			if old, ok := before[key]; ok && old.acked == s.acked {
				s.since = old.since
			}
			after[key] = s
		}
		w.mu.Lock()
		for key, old := range before {
			if s, ok := after[key]; ok && s.since.Equal(old.since) {
				continue
			}
			w.count(old.seen.Sub(old.since), fmt.Sprintf("host %d: %s", number, old.line))
		}
		w.mu.Unlock()
		before = after
	}
}

func (w *stallMonitor) count(took time.Duration, what string) {
	for _, step := range stallSteps {
		if took >= step {
			w.counts[step]++
		}
	}
	if took > w.longest {
		w.longest, w.what = took, what
	}
}

func (w *stallMonitor) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("longest %v; %s\n  %s", w.longest.Round(10*time.Millisecond), formatCounts(w.counts), strings.TrimSpace(w.what))
}

// countAtLeast counts, for each of stallSteps, the durations that are at least as long.
func countAtLeast(times []time.Duration) string {
	over := make(map[time.Duration]int)
	for _, d := range times {
		for _, step := range stallSteps {
			if d >= step {
				over[step]++
			}
		}
	}
	return formatCounts(over)
}

// formatCounts formats counts by stallSteps.
func formatCounts(over map[time.Duration]int) string {
	var b strings.Builder
	for _, step := range stallSteps {
		fmt.Fprintf(&b, "≥%v: %d  ", step, over[step])
	}
	return strings.TrimSpace(b.String())
}

// Three hosts that each lose 10 % of the packets they receive make all collectives over TCP, with TLS and in the clear, over QUIC, and over both: no
// operation stalls, and no rank fails.
func TestLossyNetwork(t *testing.T) {
	took := lossesAlways
	if long := os.Getenv(lossesVariable); long != "" {
		var err error
		if took, err = time.ParseDuration(long); err != nil || took <= 0 {
			t.Fatalf("%s=%q, want a duration", lossesVariable, long)
		}
	}
	for name, test := range map[string]struct {
		transports string
		plain      bool
	}{
		"TLS": {"tcp", false}, "plain": {"tcp", true}, "QUIC": {"quic", false}, "both": {"quic,tcp", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, ipv4, func(w *network, rank int) []string {
				return []string{"NEXAR_TRANSPORTS=" + test.transports, fmt.Sprint("NEXAR_PLAIN_BULK=", plainBit(test.plain))}
			})
			for _, h := range c.hosts {
				h.loseReceived(t, 10)
			}
			c.join()
			stalls := monitorStalls(c.hosts)
			times := make([][]time.Duration, len(c.ranks))
			for left := took; left > 0; left -= time.Minute {
				reports := runAll(c.ranks, command{Do: "stress", Duration: min(left, time.Minute)})
				mustSucceed(t, reports)
				for rank, r := range reports {
					times[rank] = append(times[rank], r.Times...)
					if r.Text != "" {
						t.Logf("rank %d: slow: %s", rank, r.Text)
					}
				}
			}
			stalls.end()
			for rank, list := range times {
				longest := slices.Max(list)
				t.Logf("rank %d: %d operations, longest %v, %s", rank, len(list), longest.Round(time.Millisecond), countAtLeast(list))
				if longest > lossCeiling {
					t.Errorf("rank %d: an operation took %v, want at most %v", rank, longest, lossCeiling)
				}
			}
			t.Logf("stalls of sockets, expected below %v: %v", lossWaitMax, stalls)
		})
	}
}

// plainBit returns the value of NEXAR_PLAIN_BULK.
func plainBit(plain bool) int {
	if plain {
		return 1
	}
	return 0
}

// While the network drops the data of a rank, the ranks wait for each other. The status of the
// cluster names the link with the unsent bytes and reports no cycle. The ranks go on when the network does.
func TestStatusNamesLink(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, ipv4, func(*network, int) []string {
		return []string{"NEXAR_TRANSPORTS=tcp,quic", "NEXAR_HEARTBEAT_TIMEOUT_SECS=60"}
	})
	c.join()
	rules := func(rules string) {
		t.Helper()
		_, err := c.hosts[2].try(rules, "nft", "-f", "-")
		require.Have(t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
	}
	rules(`table inet nexar {
		chain in {
			type filter hook input priority 0;
			ip saddr ` + c.hosts[1].v4.String() + ` drop
		}
	}`)
	running := make([]<-chan result, len(c.ranks))
	for rank, w := range c.ranks {
		running[rank] = w.start(command{Do: "loop", Op: "all_reduce", N: 50_000, Rounds: 3})
	}
	want := "data of rank 1 for rank 2 in flight"
	var text string
	for limit := time.Now().Add(10 * time.Second); !strings.Contains(text, want) && time.Now().Before(limit); {
		time.Sleep(500 * time.Millisecond)
		r := c.ranks[0].do(command{Do: "status"})
		mustSucceed(t, []result{r})
		text = r.Text
	}
	if !strings.Contains(text, want) || strings.Contains(text, "deadlock") {
		t.Errorf("want %q and no cycle, got\n%s", want, text)
	}
	rules("delete table inet nexar")
	mustSucceed(t, awaitAll(c.ranks, running))
}

// dropFrom has a host drop the packets of another one that match a filter of nft, or all if it is empty.
func (c *cluster) dropFrom(at, from int, filter string) {
	c.t.Helper()
	var rules strings.Builder
	for addr, family := range map[netip.Addr]string{c.hosts[from].v4: "ip", c.hosts[from].v6: "ip6"} {
		if addr.IsValid() && (filter == "" || !strings.HasPrefix(filter, "ip ") || family == "ip") {
			fmt.Fprintln(&rules, family, "saddr", addr, filter, "drop")
		}
	}
	_, err := c.hosts[at].try("table inet nexar {\nchain in {\ntype filter hook input priority 0;\n"+rules.String()+"}\n}", "nft", "-f", "-")
	require.Have(c.t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
}

// TestPathDies: the network drops all packets of a rank on a path for good, or all long ones, and the connections of its links move to another path.
// No operation ends.
func TestPathDies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		transports string
		have       family
		filter     string
	}{
		"TCP":                      {"tcp,quic", ipv4, "meta l4proto tcp"},
		"QUIC":                     {"tcp,quic", ipv4, "meta l4proto udp"},
		"QUIC over IPv4":           {"quic", ipv4 | ipv6, "ip protocol udp"},
		"IPv4":                     {"quic", ipv4 | ipv6, "ip protocol { tcp, udp }"},
		"long packets of TCP":      {"tcp,quic", ipv4, "meta l4proto tcp meta length > 1300"},
		"long packets over IPv4":   {"tcp", ipv4 | ipv6, "ip protocol tcp meta length > 1300"},
		"long packets of all TCPs": {"tcp,quic", ipv4 | ipv6, "meta l4proto tcp meta length > 1300"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, test.have, func(*network, int) []string { return []string{"NEXAR_TRANSPORTS=" + test.transports} })
			c.join()
			mustSucceed(t, runAll(c.ranks, command{Do: "loop", Op: "all_reduce", N: 50_000, Rounds: 3}))
			c.dropFrom(2, 1, test.filter)
			began := time.Now()
			mustSucceed(t, runAll(c.ranks, command{Do: "loop", Op: "all_reduce", N: 50_000, Rounds: 3}))
			t.Logf("all-reduces took %v", time.Since(began))
			mustSucceed(t, runAll(c.ranks, command{Do: "stress", Duration: 7 * time.Second})) // longer than the heartbeat timeout
		})
	}
}

// TestLongPacketsDropped: the network drops the long packets of a rank on its only path, and passes handshakes and heartbeats. Operations end with an error
// that names the path and tells what to compare.
func TestLongPacketsDropped(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, ipv4, func(*network, int) []string {
		return []string{"NEXAR_TRANSPORTS=tcp", "NEXAR_HEARTBEAT_TIMEOUT_SECS=3"}
	})
	c.join()
	c.dropFrom(2, 1, "meta l4proto tcp meta length > 1300")
	began, told := time.Now(), false
	for rank, r := range runAll(c.ranks, command{Do: "loop", Op: "all_reduce", N: 50_000, Rounds: 3}) {
		if r.Failure == nil || !r.Failure.PeerFailed {
			t.Errorf("rank %d: %v, want a failed peer", rank, r.Failure)
			continue
		}
		t.Logf("rank %d after %v: %v", rank, time.Since(began), r.Failure.Text)
		told = told || strings.Contains(r.Failure.Text, "connections in a row, the last one over tcp") && strings.Contains(r.Failure.Text, "compare the MTU")
	}
	if !told {
		t.Error("no error names the path and the MTU")
	}
}

// Loss does not delay the notice of a killed rank.
func TestKillUnderLoss(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"tcp", "quic"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, ipv4, func(*network, int) []string { return []string{"NEXAR_TRANSPORTS=" + way} })
			for _, h := range c.hosts {
				h.loseReceived(t, 10)
			}
			c.join()
			ids := runAll(c.ranks, command{Do: "id"})
			running := make([]<-chan result, len(c.ranks))
			for rank, w := range c.ranks {
				running[rank] = w.start(command{Do: "loop", Op: "all_reduce", N: 10_000})
			}
			time.Sleep(300 * time.Millisecond)
			const victim = 1
			killed := c.ranks[victim].kill(os.Kill)
			for rank, r := range awaitAll(c.ranks, running) {
				if rank == victim {
					continue
				}
				checkLost(t, rank, r.Failure, victim, ids[victim].Text)
				took := r.At.Sub(killed)
				t.Logf("rank %d had its error after %v", rank, took)
				if took > slowMax {
					t.Errorf("rank %d had its error after %v, want at most %v", rank, took, slowMax)
				}
			}
		})
	}
}

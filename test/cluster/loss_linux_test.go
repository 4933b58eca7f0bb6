package cluster

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

const (
	// lossesVariable is how long TestLossyTCP runs each of its variants. Without it
	// they are short.
	lossesVariable = "LOSSES"
	lossesAlways   = 8 * time.Second

	// lossWaitMax is the longest wait for a retransmission that the transport
	// aims at with 10 % of all packets lost.
	lossWaitMax = 3 * time.Second
	// lossCeiling is the duration of an operation at which the test fails: a busy
	// machine is slow, but a stalled socket is slower.
	lossCeiling = 10 * time.Second
)

// drop makes a host lose some of the packets that it receives.
func (h *host) drop(t *testing.T, percent int) {
	t.Helper()
	_, err := h.try(fmt.Sprintf(`
		table inet nexar {
			chain in {
				type filter hook input priority 0;
				iifname "eth0" numgen random mod 100 < %d counter drop
			}
		}`, percent), "nft", "-f", "-")
	require.Have(t, "nft", err == nil, fmt.Sprintf("packets cannot be made to get lost: %v", err))
}

// A stallWatch samples the TCP sockets of hosts and keeps the longest time that
// one of them had unacknowledged bytes and got no acknowledgement of new ones.
type stallWatch struct {
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	longest time.Duration
	what    string
	over    map[time.Duration]int // stalls that lasted at least so long
}

// stallSteps are the durations that a stallWatch counts.
var stallSteps = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second}

func watchStalls(hosts []*host) *stallWatch {
	w := &stallWatch{stop: make(chan struct{}), over: make(map[time.Duration]int)}
	for i, h := range hosts {
		w.done.Go(func() { w.watch(i, h) })
	}
	return w
}

// end stops the sampling.
func (w *stallWatch) end() {
	close(w.stop)
	w.done.Wait()
}

// A stalled is a socket that has unacknowledged bytes.
type stalled struct {
	acked       string
	since, seen time.Time // first and last in this state
	line        string
}

func (w *stallWatch) watch(number int, h *host) {
	before := make(map[string]stalled)
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
		after := make(map[string]stalled)
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if len(fields) < 4 || !strings.Contains(line, " unacked:") || !strings.Contains(line, "timer:(on") {
				continue
			}
			s := stalled{since: now, seen: now, line: line}
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

func (w *stallWatch) count(took time.Duration, what string) {
	for _, step := range stallSteps {
		if took >= step {
			w.over[step]++
		}
	}
	if took > w.longest {
		w.longest, w.what = took, what
	}
}

func (w *stallWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("longest %v; %s\n  %s", w.longest.Round(10*time.Millisecond), counts(w.over), strings.TrimSpace(w.what))
}

// distribution counts the operations that took at least so long.
func distribution(times []time.Duration) string {
	over := make(map[time.Duration]int)
	for _, d := range times {
		for _, step := range stallSteps {
			if d >= step {
				over[step]++
			}
		}
	}
	return counts(over)
}

// counts lists how many things took at least how long.
func counts(over map[time.Duration]int) string {
	var b strings.Builder
	for _, step := range stallSteps {
		fmt.Fprintf(&b, "≥%v: %d  ", step, over[step])
	}
	return strings.TrimSpace(b.String())
}

// Three hosts that each lose 10 % of the packets they receive carry all collectives
// over TCP alone: no operation stalls, and no rank counts as failed.
func TestLossyTCP(t *testing.T) {
	took := lossesAlways
	if long := os.Getenv(lossesVariable); long != "" {
		var err error
		if took, err = time.ParseDuration(long); err != nil || took <= 0 {
			t.Fatalf("%s=%q, want a duration", lossesVariable, long)
		}
	}
	for name, plain := range map[string]bool{"TLS": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, ipv4, func(w *network, rank int) []string {
				return []string{"NEXAR_TRANSPORTS=tcp", fmt.Sprint("NEXAR_PLAIN_BULK=", plainBit(plain))}
			})
			for _, h := range c.hosts {
				h.drop(t, 10)
			}
			c.join()
			stalls := watchStalls(c.hosts)
			times := make([][]time.Duration, len(c.team))
			for left := took; left > 0; left -= time.Minute {
				reports := all(c.team, order{Do: "endure", Time: min(left, time.Minute)})
				ok(t, reports)
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
				t.Logf("rank %d: %d operations, longest %v, %s", rank, len(list), longest.Round(time.Millisecond), distribution(list))
				if longest > lossCeiling {
					t.Errorf("rank %d: an operation took %v, want at most %v", rank, longest, lossCeiling)
				}
			}
			t.Logf("stalls of sockets, of which none should last %v: %v", lossWaitMax, stalls)
		})
	}
}

// plainBit is the value of NEXAR_PLAIN_BULK.
func plainBit(plain bool) int {
	if plain {
		return 1
	}
	return 0
}

// While the data of a rank does not get through, the ranks seem to wait for each
// other. The status of the cluster names the link that holds the bytes, and no circle. QUIC
// carries the session with the seed.
func TestStatusNamesLink(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, ipv4, func(*network, int) []string { return []string{"NEXAR_TRANSPORTS=tcp,quic"} })
	c.join()
	rules := func(rules string) {
		t.Helper()
		_, err := c.hosts[0].try(rules, "nft", "-f", "-")
		require.Have(t, "nft", err == nil, fmt.Sprintf("packets cannot be made to get lost: %v", err))
	}
	rules(`table inet nexar {
		chain in {
			type filter hook input priority 0;
			ip saddr ` + c.hosts[1].v4.String() + ` meta l4proto tcp drop
		}
	}`)
	running := make([]<-chan report, len(c.team))
	for rank, w := range c.team {
		running[rank] = w.start(order{Do: "loop", What: "all_reduce", N: 50_000, Sets: 3})
	}
	want := "data of rank 1 for rank 0, "
	var text string
	for limit := time.Now().Add(10 * time.Second); !strings.Contains(text, want) && time.Now().Before(limit); {
		time.Sleep(500 * time.Millisecond)
		r := c.team[2].do(order{Do: "status"})
		ok(t, []report{r})
		text = r.Text
	}
	if !strings.Contains(text, want) || strings.Contains(text, "in a circle") {
		t.Errorf("want %q and no circle, got\n%s", want, text)
	}
	rules("delete table inet nexar")
	ok(t, await(c.team, running))
}

// A rank that is killed counts as failed as soon as without loss: the others do not
// need its packets to know.
func TestKillUnderLoss(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"tcp", "quic"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, ipv4, func(*network, int) []string { return []string{"NEXAR_TRANSPORTS=" + way} })
			for _, h := range c.hosts {
				h.drop(t, 10)
			}
			c.join()
			ids := all(c.team, order{Do: "id"})
			running := make([]<-chan report, len(c.team))
			for rank, w := range c.team {
				running[rank] = w.start(order{Do: "loop", What: "all_reduce", N: 10_000})
			}
			time.Sleep(300 * time.Millisecond)
			const victim = 1
			killed := c.team[victim].kill(os.Kill)
			for rank, r := range await(c.team, running) {
				if rank == victim {
					continue
				}
				checkLost(t, rank, r.Failure, victim, ids[victim].Text)
				took := r.At.Sub(killed)
				t.Logf("rank %d knew after %v", rank, took)
				if took > slowMax {
					t.Errorf("rank %d knew after %v, want at most %v", rank, took, slowMax)
				}
			}
		})
	}
}

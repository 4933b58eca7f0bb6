package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

const (
	// relaysVariable is the number of rounds of TestRelays. By default there is a short one in a single world.
	relaysVariable = "RELAYS"
	// pacedRate is the number of bytes a second that a link of TestRelays carries: few enough that the processors are not busy.
	pacedRate = 32_000_000
	// spreadMax limits the difference between the fastest and the slowest stream of a relay, as a part of the slowest.
	spreadMax = 0.2
)

// A relayedWorld has four streams that pass one relay.
type relayedWorld struct {
	name, topology string
	ranks, relay   int
	next           int       // the streams share the link of the relay to this rank, which is also measured with pacedRate; -1: none
	streams        [4][2]int // source and destination of each
	mixed          bool      // the ranks of some streams also relay others, so that the processors favor the rest: no limit without pacedRate
}

func relayedWorlds() []relayedWorld {
	return []relayedWorld{
		{"that join one after the other", "k-regular:2", 12, 4, 5, [4][2]int{{0, 5}, {1, 6}, {2, 7}, {3, 8}}, true},
		{"that join at the relay", "hypercube", 32, 15, 31, [4][2]int{{7, 27}, {11, 23}, {13, 30}, {14, 29}}, false},
		{"over links of their own", "k-regular:10", 27, 0, -1, [4][2]int{{19, 14}, {23, 8}, {25, 4}, {26, 2}}, false},
		{"in both directions", "k-regular:2", 12, 4, -1, [4][2]int{{2, 5}, {3, 6}, {5, 2}, {6, 3}}, false},
	}
}

// TestRelays: four streams between processes that pass one relay, by TCP with TLS, get equal parts of the link or of the processors. With
// RELAYS it also measures messages over paths of different lengths.
func TestRelays(t *testing.T) {
	worlds, rounds, duration := relayedWorlds(), 5, 5*time.Second
	text := os.Getenv(relaysVariable)
	if text == "" {
		t.Parallel()
		require.NoRace(t, "TestSparseWorkers sends over relays as well")
		worlds, rounds, duration = worlds[:1], 1, 1500*time.Millisecond
	} else {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil || rounds < 1 {
			t.Fatalf("%s=%q, want a number", relaysVariable, text)
		}
	}
	var tables []string
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			workers := newWorkerSet(t).startWorld(w.ranks, "NEXAR_TOPOLOGY="+w.topology, "NEXAR_TRANSPORTS=tcp")
			w.measure(t, workers, 1, 0) // They connect.
			table := w.paths(t, workers)
			if text != "" {
				rates := w.measure(t, workers, rounds, duration)
				table += describe(rates, "at the speed of the processors")
				if !w.mixed {
					wantEqual(t, rates)
				}
			}
			if w.next >= 0 {
				pace(t, workers, w.relay, w.next, pacedRate)
				rates := w.measure(t, workers, rounds, duration)
				for tries := 1; text == "" && tries < 8 && spreads(rates)[0] > spreadMax; tries++ { // Other tests need the processors, too.
					rates = w.measure(t, workers, 1, duration)
				}
				table += describe(rates, fmt.Sprintf("over a link of %d MB/s from rank %d to rank %d", int(pacedRate/1e6), w.relay, w.next))
				wantEqual(t, rates)
			}
			t.Log("\n" + table)
			tables = append(tables, table)
		})
	}
	if text == "" || t.Failed() {
		return
	}
	t.Run("lengths", func(t *testing.T) {
		table := pathLengths(t, rounds)
		t.Log("\n" + table)
		tables = append(tables, table)
	})
	writeReport(t, fmt.Sprintf(`Messages over relays between processes of one machine, with TCP and TLS between neighbors; printed by "make relays".
Four streams of messages of 1 MiB pass one relay at the same time, for %v in each of %d rounds. The speeds are medians; the
differences are those between the fastest and the slowest stream of each round. There are more ranks than processors. So a
stream is slower if its ranks also relay many others, as in the first world, unless a link is what limits the streams.
%s, commit %s

%s`, duration, rounds, machine(), commit(), strings.Join(tables, "\n")))
}

// measure returns the speed of each stream in each round, in MB/s.
func (w relayedWorld) measure(t *testing.T, workers []*worker, rounds int, duration time.Duration) (rates [][4]float64) {
	t.Helper()
	for range rounds {
		var receiving, sending [4]<-chan result
		for i, s := range w.streams {
			receiving[i] = workers[s[1]].start(command{Do: "absorb", Peer: s[0]})
		}
		for i, s := range w.streams {
			sending[i] = workers[s[0]].start(command{Do: "stream", Peer: s[1], Duration: duration})
		}
		var rate [4]float64
		for i, s := range w.streams {
			sent, got := workers[s[0]].await(sending[i]), workers[s[1]].await(receiving[i])
			mustSucceed(t, []result{sent, got})
			if sent.Rounds != got.Rounds {
				t.Errorf("rank %d has received %d messages of the %d of rank %d", s[1], got.Rounds, sent.Rounds, s[0])
			}
			rate[i] = float64(sent.Rounds) * streamed / 1e6 / sent.Took.Seconds()
		}
		rates = append(rates, rate)
	}
	return rates
}

// paths describes the paths of the streams. All of them lead over the relay, and from it over the shared link.
func (w relayedWorld) paths(t *testing.T, workers []*worker) string {
	t.Helper()
	reports := runAll(workers, command{Do: "peers"})
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d ranks, four streams %s, through rank %d:", w.topology, w.ranks, w.name, w.relay)
	for i, s := range w.streams {
		path := []int{s[0]}
		for at := s[0]; at != s[1]; path = append(path, at) {
			k := slices.IndexFunc(reports[at].Peers, func(p nexar.Peer) bool { return p.Rank == s[1] })
			if k < 0 {
				t.Fatalf("rank %d reports no peer %d: %v", at, s[1], reports[at].Failure)
			}
			p := reports[at].Peers[k]
			if at = s[1]; p.Hops > 1 {
				at = p.Relay
			} else if p.Transport != "tcp+tls" {
				t.Errorf("the last link to rank %d is %s, want tcp+tls", s[1], p.Transport)
			}
		}
		if k := slices.Index(path, w.relay); k < 1 || k == len(path)-1 || w.next >= 0 && path[k+1] != w.next {
			t.Errorf("a stream takes the path %v, want one through rank %d, and from there over the shared link", path, w.relay)
		}
		if i%2 == 0 {
			b.WriteString("\n ")
		}
		fmt.Fprintf(&b, "   %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(path), " ", " → "), "[]"))
	}
	return b.String() + "\n"
}

// wantEqual fails the test if a median of the differences between the speeds of streams is too large.
func wantEqual(t *testing.T, rates [][4]float64) {
	t.Helper()
	if spread := medianOfAll(spreads(rates)); spread > spreadMax {
		t.Errorf("the fastest stream is %.0f %% faster than the slowest, want at most %.0f %%: %.1f MB/s", 100*spread, 100*spreadMax, rates)
	}
}

// describe describes the speeds of streams.
func describe(rates [][4]float64, how string) string {
	var speeds []string
	for i := range 4 {
		var mine []float64
		for _, r := range rates {
			mine = append(mine, r[i])
		}
		speeds = append(speeds, fmt.Sprintf("%.1f", medianOfAll(mine)))
	}
	var parts []string
	for _, s := range spreads(rates) {
		parts = append(parts, fmt.Sprintf("%.0f", 100*s))
	}
	return fmt.Sprintf("  %s: %s MB/s, differences %s %%\n", how, strings.Join(speeds, ", "), strings.Join(parts, ", "))
}

// spreads returns by which part the fastest stream of each round was faster than the slowest.
func spreads(rates [][4]float64) (parts []float64) {
	for _, r := range rates {
		parts = append(parts, slices.Max(r[:])/slices.Min(r[:])-1)
	}
	return parts
}

func medianOfAll(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// pace limits what each connection from a worker to another one carries, in bytes a second.
func pace(t *testing.T, workers []*worker, from, to, rate int) {
	t.Helper()
	_, owner := connections(t, workers)
	pid := workers[from].cmd.Process.Pid
	process, err := unix.PidfdOpen(pid, 0)
	require.Have(t, "pidfd", err == nil, fmt.Sprintf("pidfd_open: %v", err))
	defer unix.Close(process)
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	paced := 0
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err == unix.EBADF {
			continue // It is closed by now.
		}
		require.Have(t, "pidfd", err == nil, fmt.Sprintf("pidfd_getfd: %v", err))
		defer unix.Close(fd)
		local, _ := unix.Getsockname(fd) // nil if it is no socket
		remote, _ := unix.Getpeername(fd)
		if rank, ok := owner[socketAddrs{addrPort(remote), addrPort(local)}]; !ok || rank != to {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, rate); err != nil {
			t.Fatal(err)
		}
		paced++
	}
	if paced == 0 {
		t.Fatalf("rank %d has no connection to rank %d", from, to)
	}
}

// addrPort converts an IPv4 address.
func addrPort(a unix.Sockaddr) netip.AddrPort {
	if a, ok := a.(*unix.SockaddrInet4); ok {
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// pathLengths measures messages over 1, 2, 3 and 5 links of a ring, in turn.
func pathLengths(t *testing.T, rounds int) string {
	workers := newWorkerSet(t).startWorld(12, "NEXAR_TOPOLOGY=k-regular:2", "NEXAR_TRANSPORTS=tcp")
	lengths, sizes := []int{1, 2, 3, 5}, []int{8, 1 << 20, 8 << 20}
	took := make(map[[2]int][]float64) // seconds, by the number of links and of bytes
	for range rounds {
		for _, links := range lengths {
			for _, n := range sizes {
				repeat := 12
				if n == 8 {
					repeat = 1000
				}
				answering := workers[links].start(command{Do: "time-messages", N: n, Rounds: repeat, Peer: 0})
				r := workers[0].do(command{Do: "time-messages", N: n, Rounds: repeat, Peer: links})
				mustSucceed(t, []result{r, workers[links].await(answering)})
				var times []float64
				for _, d := range r.Times[repeat/6:] {
					times = append(times, d.Seconds())
				}
				took[[2]int{links, n}] = append(took[[2]int{links, n}], medianOfAll(times))
			}
		}
	}
	var b strings.Builder
	b.WriteString("k-regular:2, 12 ranks, one message at a time and an answer of 8 B:\n")
	for _, links := range lengths {
		at := func(n int) float64 { return medianOfAll(took[[2]int{links, n}]) }
		fmt.Fprintf(&b, "  links: %d, 8 B: %.0f µs, 1 MiB: %.0f MB/s, 8 MiB: %.0f MB/s\n",
			links, 1e6*at(8), (1<<20)/1e6/at(1<<20), (8<<20)/1e6/at(8<<20))
	}
	return b.String()
}

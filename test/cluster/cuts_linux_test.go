package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// cutsVariable is the number of worlds of TestCuts, by default one each of the first two kinds.
const cutsVariable = "CUTS"

// A cutTrial is a world of hosts with cut connections.
type cutTrial struct {
	kind   cutWorld
	cuts   [cutKinds]int // of each kind
	ended  int           // communicators
	passed bool
}

// A cutWorld is a kind of worlds with cut connections.
type cutWorld struct{ topology, transports string }

// Kinds of cuts.
const (
	breakAll     = iota // all connections of a pair
	breakOne            // one socket of a pair
	drop                // one of a pair sends nothing to the other
	breakAndDrop        // all connections of a pair, and then one sends nothing to the other, and the other nothing to it
	cutKinds
)

const (
	cutHosts = 5
	// cutsEach is the number of cuts of a world.
	cutsEach = 20
	// cutQuiet is the number of rounds of all ranks after the last cut.
	cutQuiet = 100
)

// TestCuts: the connections of random pairs of living hosts break, or a single socket of them does, or one of the two sends nothing to the other
// for a while. All results are right, no node is removed, and no communicator ends.
func TestCuts(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("ss")
	require.Have(t, "netns", err == nil, "the command ss of iproute2 is not installed")
	kinds := cutWorlds()
	count, long := 2, os.Getenv(cutsVariable)
	if long != "" {
		if count, err = strconv.Atoi(long); err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", cutsVariable, long)
		}
	}
	var all []cutTrial
	for i := range count {
		k := cutTrial{kind: kinds[i%len(kinds)]}
		k.passed = t.Run(fmt.Sprintf("%d/%s,%s", i+1, k.kind.topology, k.kind.transports), k.run)
		all = append(all, k)
		if long != "" && len(all)%10 == 0 {
			fmt.Fprintf(os.Stderr, "%d of %d worlds\n", len(all), count)
		}
	}
	if long != "" {
		report := cutsReport(all)
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

func cutWorlds() []cutWorld {
	return []cutWorld{
		{"full", "tcp"}, {"k-regular:2", "tcp"}, {"full", "tcp,quic"}, {"k-regular:2", "tcp,quic"}, {"k-regular:4", "tcp"}, {"hypercube", "tcp,quic"},
		{"full", "quic"}, {"k-regular:2", "quic"},
	}
}

func (k *cutTrial) run(t *testing.T) {
	c := newCluster(t, cutHosts, ipv4, func(*network, int) []string {
		return []string{"NEXAR_TOPOLOGY=" + k.kind.topology, "NEXAR_TRANSPORTS=" + k.kind.transports}
	})
	c.join()
	running := make([]<-chan result, cutHosts)
	for rank, w := range c.ranks {
		running[rank] = w.start(command{Do: "outlast", Op: "all_to_all", N: 1000})
	}
	for range cutsEach {
		time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond)
		a := rand.IntN(cutHosts)
		b := (a + 1 + rand.IntN(cutHosts-1)) % cutHosts
		kind, isCut := rand.IntN(cutKinds), true
		switch kind {
		case breakAll:
			c.breakSockets(a, b, "")
		case breakOne:
			one := c.anySocket(a, b)
			if isCut = one != ""; isCut {
				c.breakSockets(a, b, one)
			}
		case drop:
			c.dropPackets(a, b)
		case breakAndDrop:
			c.breakSockets(a, b, "")
			c.dropPackets(a, b)
			c.dropPackets(b, a)
		}
		if isCut {
			k.cuts[kind]++
		}
	}
	defer c.diagnose()
	for rank, w := range c.ranks {
		awaitRounds(t, w, running[rank], cutQuiet)
	}
	mustSucceed(t, []result{c.ranks[0].do(command{Do: "stop"})})
	for rank, r := range awaitAll(c.ranks, running) {
		if r.Failure != nil {
			t.Errorf("rank %d: %v", rank, r.Failure)
		}
		for _, e := range r.Epochs {
			if e.Rank != rank || e.Size != cutHosts {
				t.Errorf("rank %d of %d has become rank %d of %d", rank, cutHosts, e.Rank, e.Size)
			}
		}
		k.ended = max(k.ended, len(r.Epochs)-1)
	}
	if k.ended > 0 {
		t.Errorf("after %d cuts, %d communicators have ended, want none", cutsEach, k.ended)
	}
}

// diagnose prints the sockets of all hosts and the goroutines of all ranks, if the test has failed.
func (c *cluster) diagnose() {
	if c.t.Failed() {
		for _, h := range c.hosts {
			c.t.Logf("sockets of %v:\n%s", h.addr(), h.run("ss", "-tinoem"))
		}
	}
	printGoroutines(c.t, c.ranks)
}

// breakSockets breaks the sockets between two hosts that a filter of ss selects. Those to the seed stay.
func (c *cluster) breakSockets(a, b int, filter string) {
	c.t.Helper()
	c.hosts[a].run("ss", "-K", "-t", c.between(b)+filter)
}

// between returns a filter of ss for the sockets to a host. Those to the seed are excluded.
func (c *cluster) between(b int) string {
	return fmt.Sprintf("dst %v and not ( sport = :%s or dport = :%s )", c.hosts[b].addr(), seedPort, seedPort)
}

// anySocket returns a filter of ss for one of the sockets between two hosts: of the control socket of a connection, of a lane, or one that is
// being opened. It returns "" if there is none.
func (c *cluster) anySocket(a, b int) string {
	c.t.Helper()
	lines := strings.Split(strings.TrimSpace(c.hosts[a].run("ss", "-tnH", c.between(b))), "\n")
	f := strings.Fields(lines[rand.IntN(len(lines))])
	if len(f) < 5 {
		return ""
	}
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	return fmt.Sprintf(" and sport = :%s and dport = :%s", port(f[3]), port(f[4]))
}

// dropPackets has a host send nothing to another one for a while.
func (c *cluster) dropPackets(a, b int) {
	c.t.Helper()
	other := c.hosts[b].addr().String()
	c.hosts[a].run("ip", "route", "add", "blackhole", other)
	time.Sleep(300 * time.Millisecond)
	c.hosts[a].run("ip", "route", "del", "blackhole", other)
}

// cutsReport returns the report of "make cuts".
func cutsReport(all []cutTrial) string {
	text := fmt.Sprintf(`Connections between random pairs of %d living hosts are cut %d times in each world, in the middle of verified
all-to-alls of 8 kB: all TCP connections of a pair break, or one socket of them (ss -K), or one host sends nothing to the other for
300 ms (a black hole in its routes), or all break and then each of the two hosts sends nothing for 300 ms in turn; printed by "make cuts".
%s

A world has failed if an element is wrong, a rank hangs, fails or is removed, or a communicator has ended.

`, cutHosts, cutsEach, machine())
	for _, kind := range cutWorlds() {
		sum, worlds, failed := cutTrial{}, 0, 0
		for _, k := range all {
			if k.kind != kind {
				continue
			}
			worlds++
			if !k.passed {
				failed++
			}
			for kind, n := range k.cuts {
				sum.cuts[kind] += n
			}
			sum.ended += k.ended
		}
		text += fmt.Sprintf("%-12s %-9s %d worlds, %d failed; %d times broken, %d sockets broken, %d times without packets, %d times both; %d communicators ended\n",
			kind.topology, kind.transports, worlds, failed, sum.cuts[breakAll], sum.cuts[breakOne], sum.cuts[drop], sum.cuts[breakAndDrop], sum.ended)
	}
	return text
}

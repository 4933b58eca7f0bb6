package attack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
)

// networkAttacks are those on networks between hosts.
func networkAttacks() []attack {
	return []attack{
		{"partition one way", "one of two ranks between which one direction is cut goes", 15 * time.Second, false, attackOneWay},
		{"flap", "a link that is down for a second at a time costs nobody the place; down for longer than the heartbeat timeout, it costs that host alone", 30 * time.Second, false, attackFlap},
		{"MTU 1280", "QUIC and TCP work on links of 1,280 bytes", 8 * time.Second, true, attackMTU},
		{"MTU black hole", "QUIC works where larger packets than 1,280 bytes vanish without a word", 8 * time.Second, false, attackBlackHole},
		{"no IPv6", "hosts without IPv6 in the kernel form a world", 8 * time.Second, false, attackNoIPv6},
		{"only IPv6", "hosts without an IPv4 address form a world", 8 * time.Second, false, attackOnlyIPv6},
	}
}

const (
	seedPort = "7945"
	nodePort = "7946"
)

// On networks, as on one host, ranks use whichever of these a round draws.
func farTransports(rng *rand.Rand) string { return transports(rng, "tcp,quic", "quic", "shm,tcp,quic") }

// onHosts starts a seed on the first host of a network and a rank on every host,
// so that rank i is on host i, and waits until they make steps.
func (w *world) onHosts(n *testhost.Network, args arguments) {
	w.t.Helper()
	args.World, args.Listen = len(n.Hosts), ":"+seedPort
	w.seed(n.Hosts[0], args)
	w.addrs = []string{net.JoinHostPort(n.Hosts[0].Addr().String(), seedPort)}
	for i, h := range n.Hosts {
		w.rank(h, arguments{}, "NEXAR_LISTEN=:"+nodePort, fmt.Sprint("NEXAR_RANK=", i))
	}
	w.progress(1)
}

// rules puts rules of nft on a host in the place of those before.
func rules(t *testing.T, h *testhost.Host, text string) {
	t.Helper()
	_, err := h.Try("add table inet attack\ndelete table inet attack\n", "nft", "-f", "-")
	require.Have(t, "nft", err == nil, fmt.Sprintf("packets cannot be dropped: %v", err))
	if _, err := h.Try(text, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// dropping returns rules that drop incoming packets that match.
func dropping(match string) string {
	return fmt.Sprintf("table inet attack {\nchain in {\ntype filter hook input priority 0\n%s drop\n}\n}\n", match)
}

// attackOneWay cuts one direction of one pair of hosts.
func attackOneWay(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 4, testhost.IPv4)
	w := newWorld(t, rng, farTransports(rng))
	w.onHosts(n, arguments{})
	pair := rng.Perm(3)[:2] // of hosts 1 to 3: the link to the seed stays
	from, to := pair[0]+1, pair[1]+1
	rules(t, n.Hosts[to], dropping(fmt.Sprintf("ip saddr %v", n.Hosts[from].V4)))
	w.settle(w.ranks[from], w.ranks[to])
	if len(w.alive()) != 3 {
		t.Errorf("%d ranks are left, want 3 of 4", len(w.alive()))
	}
	w.progress(5)
	w.finish()
}

// attackFlap takes the link of a host down and up, for a second at a time and then
// for longer than the heartbeat timeout.
func attackFlap(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 4, testhost.IPv4)
	// QUIC and TCP double the pause before they send a lost packet again, which can span
	// several outages, all eight seconds of them together.
	const timeout = 9 * time.Second
	w := newWorld(t, rng, farTransports(rng), fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()))
	w.onHosts(n, arguments{})
	i := 1 + rng.IntN(3)
	h := n.Hosts[i]
	down, up := func() { h.Run("ip", "link", "set", "eth0", "down") }, func() { h.Run("ip", "link", "set", "eth0", "up") }
	if rng.IntN(2) == 0 {
		down, up = func() { rules(t, h, dropping(`iifname "eth0"`)) }, func() { rules(t, h, "") }
	}
	for range 4 {
		down()
		time.Sleep(time.Second)
		up()
		time.Sleep(time.Second)
	}
	w.progress(5)
	w.ranks[i].harm()
	down()
	time.Sleep(timeout + 3*time.Second)
	up()
	w.size(3)
	w.removed(w.ranks[i])
	w.progress(5)
	w.finish()
}

// attackMTU makes all links short.
func attackMTU(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 3, testhost.IPv4|testhost.IPv6)
	for i, h := range n.Hosts {
		h.Run("ip", "link", "set", "eth0", "mtu", "1280")
		n.Bridge.Run("ip", "link", "set", fmt.Sprint("port", i), "mtu", "1280")
	}
	w := newWorld(t, rng, farTransports(rng))
	w.onHosts(n, arguments{})
	w.progress(20)
	w.finish()
}

// attackBlackHole shortens the links between hosts without telling the hosts.
func attackBlackHole(t *testing.T, rng *rand.Rand) {
	family := []testhost.Family{testhost.IPv4, testhost.IPv6}[rng.IntN(2)]
	n := testhost.New(t, 3, family)
	for i := range n.Hosts {
		// A bridge port drops longer frames and sends no ICMP message.
		n.Bridge.Run("ip", "link", "set", fmt.Sprint("port", i), "mtu", "1280")
	}
	w := newWorld(t, rng, "NEXAR_TRANSPORTS=quic")
	w.onHosts(n, arguments{})
	w.progress(20)
	w.finish()
}

// attackNoIPv6 takes IPv6 from the hosts.
func attackNoIPv6(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 3, testhost.IPv4)
	for _, h := range n.Hosts {
		h.Run("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
		if out := h.Run("ip", "-6", "addr"); strings.Contains(out, "inet6") {
			t.Fatalf("a host still has IPv6:\n%s", out)
		}
	}
	w := newWorld(t, rng, farTransports(rng))
	w.onHosts(n, arguments{})
	w.progress(20)
	w.finish()
}

// attackOnlyIPv6 gives hosts IPv6 alone.
func attackOnlyIPv6(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, rng, farTransports(rng))
	w.onHosts(testhost.New(t, 3, testhost.IPv6), arguments{})
	w.progress(20)
	w.finish()
}

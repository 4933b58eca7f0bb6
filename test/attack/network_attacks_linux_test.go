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

// networkAttacks are attacks on networks between hosts.
func networkAttacks() []attack {
	return []attack{
		{"partition one way", "of two ranks between which one direction is cut, one is removed", 15 * time.Second, false, attackOneWay},
		{"flap", "a link that is down for a second at a time removes no node; down for longer than the heartbeat timeout, it removes that host alone", 30 * time.Second, false, attackFlap},
		{"MTU 1280", "QUIC and TCP work on links of 1,280 bytes", 8 * time.Second, true, attackMTU},
		{"MTU black hole", "QUIC works where packets of more than 1,280 bytes are dropped silently", 8 * time.Second, false, attackBlackHole},
		{"no IPv6", "hosts without IPv6 in the kernel form a world", 8 * time.Second, false, attackNoIPv6},
		{"only IPv6", "hosts without an IPv4 address form a world", 8 * time.Second, false, attackOnlyIPv6},
	}
}

const (
	seedPort = "7945"
	nodePort = "7946"
)

// networkTransports draws the transports of ranks on different hosts.
func networkTransports(rng *rand.Rand) string {
	return transports(rng, "tcp,quic", "quic", "shm,tcp,quic")
}

// startOnHosts starts a seed on the first host of a network and a rank on every host, rank i on host
// i, and waits until they make steps.
func (w *world) startOnHosts(n *testhost.Network, args arguments) {
	w.t.Helper()
	w.hosts = n.Hosts
	args.World, args.Listen = len(n.Hosts), ":"+seedPort
	w.startSeed(n.Hosts[0], args)
	w.addrs = []string{net.JoinHostPort(n.Hosts[0].Addr().String(), seedPort)}
	for i, h := range n.Hosts {
		w.startRank(h, arguments{}, "NEXAR_LISTEN=:"+nodePort, fmt.Sprint("NEXAR_RANK=", i))
	}
	w.waitForSteps(1)
}

// setRules replaces the nft rules of a host.
func setRules(t *testing.T, h *testhost.Host, text string) {
	t.Helper()
	_, err := h.Try("add table inet attack\ndelete table inet attack\n", "nft", "-f", "-")
	require.Have(t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
	if _, err := h.Try(text, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// dropRule returns nft rules that drop matching incoming packets.
func dropRule(match string) string {
	return fmt.Sprintf("table inet attack {\nchain in {\ntype filter hook input priority 0\n%s drop\n}\n}\n", match)
}

// attackOneWay cuts one direction of one pair of hosts.
func attackOneWay(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 4, testhost.IPv4)
	w := newWorld(t, rng, networkTransports(rng))
	w.startOnHosts(n, arguments{})
	pair := rng.Perm(3)[:2] // of hosts 1 to 3; host 0 has the seed
	from, to := pair[0]+1, pair[1]+1
	setRules(t, n.Hosts[to], dropRule(fmt.Sprintf("ip saddr %v", n.Hosts[from].V4)))
	w.settleLink(w.ranks[from], w.ranks[to])
	if len(w.survivors()) != 3 {
		t.Errorf("%d ranks are left, want 3 of 4", len(w.survivors()))
	}
	w.waitForSteps(5)
	w.finish()
}

// attackFlap takes the link of a host down for a second at a time, and then for longer than the
// heartbeat timeout.
func attackFlap(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 4, testhost.IPv4)
	// QUIC and TCP double the pause before each retransmission. A pause can span several outages, up
	// to all eight seconds.
	const timeout = 9 * time.Second
	w := newWorld(t, rng, networkTransports(rng), fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", timeout.Seconds()))
	w.startOnHosts(n, arguments{})
	i := 1 + rng.IntN(3)
	h := n.Hosts[i]
	down, up := func() { h.Run("ip", "link", "set", "eth0", "down") }, func() { h.Run("ip", "link", "set", "eth0", "up") }
	if rng.IntN(2) == 0 {
		down, up = func() { setRules(t, h, dropRule(`iifname "eth0"`)) }, func() { setRules(t, h, "") }
	}
	for range 4 {
		down()
		time.Sleep(time.Second)
		up()
		time.Sleep(time.Second)
	}
	w.waitForSteps(5)
	w.ranks[i].markVictim()
	down()
	time.Sleep(timeout + 3*time.Second)
	up()
	w.waitForSize(3)
	w.waitForRemoval(w.ranks[i])
	w.waitForSteps(5)
	w.finish()
}

// attackMTU lowers the MTU of all links.
func attackMTU(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 3, testhost.IPv4|testhost.IPv6)
	for i, h := range n.Hosts {
		h.Run("ip", "link", "set", "eth0", "mtu", "1280")
		n.Bridge.Run("ip", "link", "set", fmt.Sprint("port", i), "mtu", "1280")
	}
	w := newWorld(t, rng, networkTransports(rng))
	w.startOnHosts(n, arguments{})
	w.waitForSteps(20)
	w.finish()
}

// attackBlackHole lowers the MTU of the links between hosts without the knowledge of the hosts.
func attackBlackHole(t *testing.T, rng *rand.Rand) {
	family := []testhost.Family{testhost.IPv4, testhost.IPv6}[rng.IntN(2)]
	n := testhost.New(t, 3, family)
	for i := range n.Hosts {
		// A bridge port drops longer frames and sends no ICMP message.
		n.Bridge.Run("ip", "link", "set", fmt.Sprint("port", i), "mtu", "1280")
	}
	w := newWorld(t, rng, "NEXAR_TRANSPORTS=quic")
	w.startOnHosts(n, arguments{})
	w.waitForSteps(20)
	w.finish()
}

// attackNoIPv6 disables IPv6 on the hosts.
func attackNoIPv6(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 3, testhost.IPv4)
	for _, h := range n.Hosts {
		h.Run("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
		if out := h.Run("ip", "-6", "addr"); strings.Contains(out, "inet6") {
			t.Fatalf("a host still has IPv6:\n%s", out)
		}
	}
	w := newWorld(t, rng, networkTransports(rng))
	w.startOnHosts(n, arguments{})
	w.waitForSteps(20)
	w.finish()
}

// attackOnlyIPv6 gives the hosts IPv6 addresses alone.
func attackOnlyIPv6(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, rng, networkTransports(rng))
	w.startOnHosts(testhost.New(t, 3, testhost.IPv6), arguments{})
	w.waitForSteps(20)
	w.finish()
}

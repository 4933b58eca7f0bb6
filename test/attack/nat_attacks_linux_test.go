package attack

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
)

// natAttacks are attacks on a rank behind a router that translates its address.
func natAttacks() []attack {
	return []attack{
		{"NAT rebinding, QUIC", "a rank with a source port that changes stays in the world over QUIC", 15 * time.Second, false, func(t *testing.T, rng *rand.Rand) { attackNAT(t, rng, "quic", true) }},
		{"NAT rebinding, TCP", "a rank with a source port that changes stays, or is the only one removed, over TCP", 20 * time.Second, false, func(t *testing.T, rng *rand.Rand) { attackNAT(t, rng, "tcp,quic", false) }},
	}
}

// A router hides a host behind its own address.
type router struct {
	t        *testing.T
	outside  *testhost.Host
	inside   *testhost.Host
	bindings int
}

// newRouter creates a host behind the last host of a network, which becomes its router.
func newRouter(t *testing.T, n *testhost.Network) *router {
	t.Helper()
	r := &router{t: t, outside: n.Hosts[len(n.Hosts)-1]}
	var err error
	if r.inside, err = testhost.NewHost(t); err != nil {
		t.Fatal(err)
	}
	r.outside.Run("ip", "link", "add", "lan0", "type", "veth", "peer", "name", "eth0", "netns", r.inside.Path())
	r.outside.Run("ip", "addr", "add", "192.168.77.1/24", "dev", "lan0")
	r.outside.Run("ip", "link", "set", "lan0", "up")
	r.outside.Run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
	r.inside.Run("ip", "link", "set", "lo", "up")
	r.inside.Run("ip", "addr", "add", "192.168.77.2/24", "dev", "eth0")
	r.inside.Run("ip", "link", "set", "eth0", "up")
	r.inside.Run("ip", "route", "add", "default", "via", "192.168.77.1")
	r.rebind()
	return r
}

// rebind has the router translate to other ports than before and forget all translations.
func (r *router) rebind() {
	r.t.Helper()
	first := 20000 + 1000*r.bindings
	r.bindings++
	text := fmt.Sprintf("add table ip attack\ndelete table ip attack\ntable ip attack {\nchain out {\ntype nat hook postrouting priority 100\n"+
		"oifname \"eth0\" meta l4proto { tcp, udp } masquerade to :%d-%d\n}\n}\n", first, first+999)
	_, err := r.outside.Try(text, "nft", "-f", "-")
	require.Have(r.t, "nat", err == nil, fmt.Sprintf("nft cannot translate addresses: %v", err))
	err = r.outside.In(flushConntrack)
	require.Have(r.t, "nat", err == nil, fmt.Sprintf("cannot flush the connection tracking: %v", err))
}

// flushConntrack deletes all entries of the connection tracking of this namespace.
func flushConntrack() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const deleteAll = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE, without a tuple
	b := make([]byte, unix.SizeofNlMsghdr+4)            // and struct nfgenmsg, which is zero
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], deleteAll)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 1024)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("netlink answer of %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// attackNAT changes the source port of the last rank, which dials all others.
func attackNAT(t *testing.T, rng *rand.Rand, list string, stays bool) {
	n := testhost.New(t, 4, testhost.IPv4)
	r := newRouter(t, n)
	w := newWorld(t, rng, "NEXAR_TRANSPORTS="+list)
	w.startSeed(n.Hosts[0], arguments{World: 4, Listen: ":" + seedPort})
	w.addrs = []string{net.JoinHostPort(n.Hosts[0].Addr().String(), seedPort)}
	for i, h := range []*testhost.Host{n.Hosts[0], n.Hosts[1], n.Hosts[2], r.inside} {
		w.startRank(h, arguments{}, "NEXAR_LISTEN=:"+nodePort, fmt.Sprint("NEXAR_RANK=", i))
	}
	w.waitForSteps(5)
	for _, p := range w.ranks[:3] {
		p.markSuspect() // each has a link to the rank behind the router
	}
	for range 3 {
		r.rebind()
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if stays {
			w.waitForSteps(5)
		}
	}
	w.settleLink(w.ranks[3])
	if stays && w.ranks[3].isVictim() {
		t.Error("the rank behind the router was removed")
	}
	if !stays && !w.ranks[3].isVictim() {
		// The next segment of an idle socket could still cause a reset.
		w.ranks[3].signal(os.Kill)
		w.waitForSize(3)
	}
	w.waitForSteps(5)
	w.finish()
}

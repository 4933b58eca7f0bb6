// Package sim is a simulated network of hosts. Its links delay, lose and reorder packets,
// hosts crash, and the network can be partitioned. In a testing/synctest bubble, a
// minute of simulated time takes milliseconds.
//
// A test creates a network, and listens on its hosts:
//
//	synctest.Test(t, func(t *testing.T) {
//		network := sim.New(sim.Config{Seed: 1, Delay: 20 * time.Millisecond, Loss: 0.02})
//		defer network.Close()
//		a, err := network.Host("a").Listen(7000)
//		b, err := network.Host("b").Listen(7000)
//		conn, err := a.Dial(ctx, "b:7000", "b:7000")
//		…
//		network.Partition("b")
//	})
//
// [Host.Listen] returns a transport.Transport over the links. Its addresses have the form
// "host:port", and are also its identities, unless [Host.ListenAs] names another one. [Host.PacketConn] returns a net.PacketConn
// for datagrams, for QUIC for example; each host has one IP address.
//
// # Links
//
// Each ordered pair of hosts has one link for all its traffic. Bytes leave one after the
// other at Link.Rate, and arrive after Link.Delay and up to Link.Jitter. A datagram is
// dropped if Link.Queue bytes wait before it. A lost piece of a pipe arrives a round trip
// and a millisecond later, and delays the later pieces of its pipe only. The link of a
// host to itself has no delay unless SetLink sets one.
//
// A pipe buffers Config.Window bytes before Write blocks. The reader makes room without
// delay, so the throughput is at most one window per one-way delay.
//
// While a link is down (Partition, Link.Down, PowerOff) it loses datagrams, and pipes,
// conns and dials wait until it is up again, without a timeout.
//
// # Failure
//
// [Network.Crash] ends the processes of a host: the conns of their peers end with
// ErrPeerGone after the delay of the link. [Network.PowerOff] ends them without a notice.
//
// # Determinism
//
// Config.Seed determines all random numbers, in a separate stream for each pipe, the
// notices of each conn, each dial, and each pair of datagram addresses. The loss and
// jitter of the i-th piece of a pipe, or the i-th datagram of a pair, depend on the seed,
// on i and on the settings of the link alone. Events that are due at the same instant
// happen in the order of their creation.
//
// The Go scheduler decides the rest: which of two goroutines that write to a link of
// limited rate at one instant sends first, which of two goroutines that dial the same
// address from the same transport at one instant dials first, and into which pieces a
// Write divides its bytes, since that depends on the reader. QUIC draws separate random
// its own. A test with one goroutine, in a bubble, is reproducible bit for bit.
//
// # Concurrency
//
// The methods of Network and Host may be called concurrently. For use in a bubble, call
// New in the bubble. The package runs no goroutine longer than it takes to deliver the
// events that are due.
package sim

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A Config has the seed of a network and the defaults of its links. The zero value is a
// perfect and infinitely fast network.
type Config struct {
	Seed int64 // of all random numbers

	// Links between different hosts. See [Link].
	Delay   time.Duration
	Jitter  time.Duration
	Rate    int64
	Loss    float64
	Reorder float64
	Corrupt float64
	Queue   int

	// Window is the maximal number of bytes of a pipe that are written but not yet
	// read. The default is 256 KiB.
	Window int
}

// A Link has the settings of the link from one host to another, in one direction. The zero
// value is a perfect and infinitely fast link.
type Link struct {
	Delay  time.Duration // one-way, after the last byte has left
	Jitter time.Duration // maximum of the uniformly distributed addition to Delay
	Rate   int64         // bytes per second; 0: unlimited
	Loss   float64       // share of pieces and datagrams that are lost; from 1 on the link is down

	// Reorder is the share of datagrams that arrive late, after two delays and a
	// millisecond. All other datagrams between two addresses, and all pieces of a
	// pipe, arrive in order.
	Reorder float64

	// Corrupt is the share of datagrams that arrive with one flipped bit, as if the
	// UDP checksum had missed it. A transport verifies its bytes, so a corrupted
	// piece of a pipe counts as lost.
	Corrupt float64

	// Queue is the number of bytes that may wait at a link of limited rate before
	// datagrams are dropped. The default is 256 KiB.
	Queue int

	Down bool // no traffic passes
}

// The defaults of Config.Window and of Link.Queue.
const (
	defaultWindowBytes = 256 << 10
	defaultQueueBytes  = 256 << 10
)

// A Network is a set of hosts and the links between them.
type Network struct {
	config Config

	// mu guards everything in the package, down to the pipes. Unexported
	// methods are called with mu held unless they say otherwise.
	mu     sync.Mutex
	clock  clock
	closed bool
	hosts  []*Host // in the order of their creation
	byName map[string]*Host
	links  []*link // in the order of their creation
	byEnds map[[2]*Host]*link
	dials  map[string]int // number of dials by both addresses, for their random streams
	groups int            // number of calls of Partition
	broken Broken
}

// New returns a network without hosts.
func New(config Config) *Network {
	if config.Window <= 0 {
		config.Window = defaultWindowBytes
	}
	n := &Network{
		config: config,
		byName: make(map[string]*Host),
		byEnds: make(map[[2]*Host]*link),
		dials:  make(map[string]int),
	}
	n.clock.mu = &n.mu
	return n
}

// Host returns the host of this name, and creates it if needed.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host(name)
}

// SetLink changes the links between two hosts, in both directions. Traffic in flight keeps
// its time of delivery.
func (n *Network) SetLink(a, b string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(a), n.host(b)).Link = l
	n.link(n.host(b), n.host(a)).Link = l
	n.resume()
}

// SetOneWay changes the link from one host to another, in this direction only.
func (n *Network) SetOneWay(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(from), n.host(to)).Link = l
	n.resume()
}

// Partition separates the given hosts from all others. They can still reach each other. A
// host is in the partition of the last call that named it.
func (n *Network) Partition(hosts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups++
	for _, name := range hosts {
		n.host(name).group = n.groups
	}
	n.resume()
}

// Heal ends all partitions.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.group = 0
	}
	n.resume()
}

// Crash ends the processes of a host: its transports, conns and PacketConns end with
// ErrClosed, and their peers get ErrPeerGone after the delay of the link. The host can
// listen again at once, as a restarted process would.
func (n *Network) Crash(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host(host).crash()
}

// Cut breaks the conns between two hosts, as a router that has lost its state does: both sides get
// ErrPeerGone at once, and bytes in flight are lost. The hosts can dial each other again.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	endAll(n.cut(a, b))
}

// CutAt is [Network.Cut] for one of the hosts alone, as if the notice to the other one were lost: its side of the conns
// stays open, and gets no answers. The returned function delivers the notice.
func (n *Network) CutAt(host, peer string) (tell func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	others := n.cut(host, peer)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		endAll(others)
	}
}

// A Cut says how conns from one host to another break.
type Cut struct {
	// After is the number of bytes of pipes in this direction that are still delivered. The conn of the next byte breaks.
	After int
	// All says that all conns between the hosts break then.
	All bool
	// From and To are the times after which the hosts notice. Until then their sides stay open, and get no answers. Without a notice, if the
	// time is negative, a side ends a second after its next bytes that nobody acknowledges.
	From, To time.Duration
}

// CutAfter breaks conns at a byte. Cuts of one direction come one after the other.
func (n *Network) CutAfter(from, to string, c Cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(n.host(from), n.host(to))
	l.cuts = append(l.cuts, &c)
}

// Broken counts what [Network.Cut], [Network.CutAt] and [Network.CutAfter] have broken.
type Broken struct {
	Conns int
	// Bytes were written to pipes of these conns, and never read.
	Bytes int
}

// Broken returns what was broken up to now.
func (n *Network) Broken() Broken {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.broken
}

// cut breaks the conns between two hosts at the first one, and returns the other sides.
func (n *Network) cut(host, peer string) (others []*conn) {
	for _, c := range n.conns(host, peer) {
		n.note(c)
		c.end(transport.ErrPeerGone)
		others = append(others, c.peer)
	}
	return others
}

// conns returns the open sides at the first of two hosts of the conns between them.
func (n *Network) conns(host, peer string) (list []*conn) {
	ports := n.host(host).endpoints
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		for _, c := range byNumber(ports[port].conns) {
			if c.peer.owner.host == n.host(peer) {
				list = append(list, c)
			}
		}
	}
	return list
}

// note counts a conn that breaks, unless one of its sides has ended.
func (n *Network) note(c *conn) {
	if c.err != nil || c.peer.err != nil {
		return
	}
	n.broken.Conns++
	for _, side := range []*conn{c, c.peer} {
		for p := range side.pipes {
			n.broken.Bytes += p.unread
		}
	}
}

// endAll ends conns with ErrPeerGone.
func endAll(conns []*conn) {
	for _, c := range conns {
		c.end(transport.ErrPeerGone)
	}
}

// PowerOff is Crash without a notice to the peers. Until Restart the host cannot listen,
// and cannot be reached.
func (n *Network) PowerOff(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.host(host)
	h.off = true
	h.crash()
}

// Restart ends PowerOff. Peers with a conn to the host now get ErrPeerGone.
func (n *Network) Restart(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host(host).off = false
	n.resume()
}

// Close ends all transports, conns and PacketConns, and stops the clock.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, h := range n.hosts {
		h.crash()
	}
	n.clock.stop()
	return nil
}

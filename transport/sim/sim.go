// Package sim is a simulated network: hosts joined by links that delay, lose
// and reorder, that can be cut, and hosts that can crash. In a testing/synctest
// bubble a minute of it takes milliseconds.
//
// Most people make a network and some hosts, and listen on them:
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
// Host.Listen gives a transport.Transport whose pipes obey the links. Its
// addresses have the form "host:port", and they are also its identities.
// Host.PacketConn gives a net.PacketConn for datagrams, over which for example
// QUIC runs; its addresses are made up, one IP for each host.
//
// # Links
//
// Every ordered pair of hosts has a link of its own, which all its traffic
// shares: bytes leave one after the other at Link.Rate, and arrive Link.Delay
// and up to Link.Jitter later. A lost datagram is lost, and so is one that
// finds Link.Queue bytes waiting before it. A lost piece of a pipe arrives a
// round trip and a millisecond later instead, and holds up what follows it in
// its own pipe alone. A host has a link to itself too, without delay unless
// SetLink says otherwise.
//
// A pipe takes Config.Window bytes before Write blocks, and makes room as soon
// as its reader has read, without a way back: throughput is at most a window
// per one-way delay.
//
// Across a cut (Partition, Link.Down, Network.PowerOff) datagrams are lost, and
// pipes, conns and dials wait. They go on when the cut is mended, however long
// it has lasted: nothing here gives up.
//
// # Failure
//
// Crash ends a host's processes: peers find their conns ended with ErrPeerGone
// as soon as the news has travelled. PowerOff ends them and tells nobody.
//
// # What is deterministic
//
// Chance is drawn from Config.Seed, in a separate stream for each pipe, for the
// notices of each conn, for each dial, and for each pair of datagram
// addresses. What is lost, and how much jitter there is, for the i-th piece of
// a pipe or datagram of a pair depends on the seed, on its number and on the
// settings of the link alone, whatever other goroutines do. What falls due at
// the same instant happens in an order that the same calls bring about again.
//
// Not deterministic is what the Go scheduler decides: of two goroutines that
// write at one instant, either may come first at a link of limited rate, and
// gets its bytes through first; of two goroutines that dial the same address
// from the same transport at one instant, either may be the first; and the
// pieces into which Write cuts its bytes depend on how far the reader has got.
// Nor are the random numbers of the programs on the hosts: QUIC draws its own.
// A driver of one goroutine, in a bubble, replays bit for bit.
//
// # Concurrency
//
// All methods of Network and Host may be called from several goroutines. In a
// bubble, New has to be called inside it. Nothing here runs a goroutine for
// longer than it takes to deliver what is due.
package sim

import (
	"sync"
	"time"
)

// A Config says how a network behaves where SetLink does not say otherwise.
// The zero value is a network that is perfect and infinitely fast.
type Config struct {
	Seed int64 // of everything random

	// The links between different hosts. See Link.
	Delay   time.Duration
	Jitter  time.Duration
	Rate    int64
	Loss    float64
	Reorder float64
	Corrupt float64
	Queue   int

	// Window is how many bytes a pipe holds that are written but not read.
	// The default is 256 KiB.
	Window int
}

// A Link is the way from one host to another, in one direction. The zero value
// is perfect and infinitely fast.
type Link struct {
	Delay  time.Duration // from here to there, after the last byte has left
	Jitter time.Duration // the most that is added to Delay, evenly distributed
	Rate   int64         // bytes per second; 0: no limit
	Loss   float64       // the part of the pieces and datagrams that is lost; from 1 on the link is down

	// Reorder is the part of the datagrams that are overtaken: they take as
	// long as two delays and a millisecond. Otherwise datagrams between two
	// addresses keep their order. Pipes always do.
	Reorder float64

	// Corrupt is the part of the datagrams that arrive with one flipped bit, as
	// if the checksum of UDP had missed it. Pipes stand for transports that
	// verify their bytes, so a corrupted piece of a pipe counts as lost.
	Corrupt float64

	// Queue is how many bytes may wait at a link of limited rate before
	// datagrams are dropped. The default is 256 KiB.
	Queue int

	Down bool // nothing gets through
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
	dials  map[string]int // by both addresses, to tell their streams apart
	groups int            // how many partitions there have been
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

// Host returns the host of that name, which need not exist yet.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host(name)
}

// SetLink changes the links between two hosts, in both directions. What is
// under way keeps its time of arrival.
func (n *Network) SetLink(a, b string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(a), n.host(b)).Link = l
	n.link(n.host(b), n.host(a)).Link = l
	n.resume()
}

// SetOneWay changes the link from one host to another, and not the way back.
func (n *Network) SetOneWay(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(n.host(from), n.host(to)).Link = l
	n.resume()
}

// Partition cuts the given hosts off from all others. Among themselves they
// still reach each other. A host is in one part at a time: that of the last
// call that named it.
func (n *Network) Partition(hosts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups++
	for _, name := range hosts {
		n.host(name).group = n.groups
	}
	n.resume()
}

// Heal undoes all calls of Partition.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range n.hosts {
		h.group = 0
	}
	n.resume()
}

// Crash kills what runs on a host: its transports, conns and PacketConns end
// with ErrClosed, and their peers see ErrPeerGone after the delay of the link.
// New ones may be made at once, as by a process that is started again.
func (n *Network) Crash(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.host(host).crash()
}

// PowerOff is Crash without anybody being told. Until Restart nothing can be
// made on the host, and nothing reaches it.
func (n *Network) PowerOff(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.host(host)
	h.off = true
	h.crash()
}

// Restart ends PowerOff. Peers that still believe in a conn to the host now
// learn that it is gone.
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

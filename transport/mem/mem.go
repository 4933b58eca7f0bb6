// Package mem connects ranks of one process. No byte leaves the memory of the process,
// and the package runs no goroutine.
//
// A program creates a network, and listens once for each rank:
//
//	network := mem.NewNetwork()
//	a, err := network.Listen("a")
//	b, err := network.Listen("b")
//	conn, err := a.Dial(ctx, "b", "b")
//
// An address is a name. It is also the identity: Conn.Peer returns the name of the
// other side, and Dial fails with ErrIdentity for any other one.
//
// A write of up to 64 KiB is copied into the ring of the pipe if it fits, and returns at
// once. A longer one lends its slice to the reader and blocks until the reader has
// consumed it, so that ReadFunc shows the memory of the sender, and the bytes are copied
// at most once. A pipe allocates its ring at the first write, with 4 KiB.
//
// A Write that is interrupted by a deadline, by Close or by the end of the conn
// withdraws its slice. It first waits for the end of the current view, which covers at
// most 1 MiB. The function that gets the view must therefore not wait for that Write.
//
// A grant of remote memory is a Go slice: WriteRemote copies into it, and Revoke waits
// for a copy of at most 1 MiB.
//
// The package works inside a testing/synctest bubble.
package mem

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/transport"
)

var (
	errNoName       = errors.New("mem: listen: the name must not be empty")
	errReaderClosed = fmt.Errorf("mem: the reader closed the pipe: %w", transport.ErrPeerClosed)
)

// A Network is a set of names that can reach each other. Its methods may be called
// concurrently.
type Network struct {
	futexes futexes
	lastKey atomic.Uint64 // of a grant of remote memory

	mu        sync.Mutex
	endpoints map[string]*endpoint
	killed    map[string]*endpoint // that are not closed
	areaCount int                  // of each endpoint that listens from now on
	areaSize  int
}

// NewNetwork returns a network without endpoints.
func NewNetwork() *Network {
	return &Network{endpoints: make(map[string]*endpoint), killed: make(map[string]*endpoint)}
}

// Listen returns the transport that listens at addr. It fails while another transport
// has that name, until Close or Kill.
func (n *Network) Listen(addr string) (transport.Transport, error) {
	if addr == "" {
		return nil, errNoName
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[addr] != nil {
		return nil, fmt.Errorf("mem: listen at %q: the name is in use", addr)
	}
	e := &endpoint{
		network: n,
		name:    addr,
		backlog: make(chan *conn, maxBacklog),
		closed:  make(chan struct{}),
		left:    make(chan struct{}),
		conns:   make(map[*conn]struct{}),
		areas:   newAreas(n.areaCount, n.areaSize),
	}
	n.endpoints[addr] = e
	return e, nil
}

// Kill ends the transport at addr like the death of its process: the conns of its peers end
// with ErrPeerGone, and its own calls return ErrClosed. It does nothing if no transport listens
// at addr.
func (n *Network) Kill(addr string) {
	if e := n.lookup(addr); e != nil {
		// The conns end one after another. After the first end, the killed side must not be
		// able to close another one regularly.
		e.killed.Store(true)
		n.mu.Lock()
		n.killed[addr] = e
		n.mu.Unlock()
		e.end(transport.ErrPeerGone)
	}
}

// forgetKilled notes that a transport is closed.
func (n *Network) forgetKilled(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.killed[e.name] == e {
		delete(n.killed, e.name)
	}
}

// lookup returns the endpoint at addr, or nil.
func (n *Network) lookup(addr string) *endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.endpoints[addr]
}

// forget makes the name of e available, unless another endpoint has taken it.
func (n *Network) forget(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[e.name] == e {
		delete(n.endpoints, e.name)
	}
}

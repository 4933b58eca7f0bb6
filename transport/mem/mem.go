// Package mem connects ranks of one process. Nothing leaves the memory of the
// process, and no goroutine runs on its behalf.
//
// Most people call NewNetwork once and Listen once for each rank:
//
//	network := mem.NewNetwork()
//	a, err := network.Listen("a")
//	b, err := network.Listen("b")
//	conn, err := a.Dial(ctx, "b", "b")
//
// An address is a plain name, and the name is also the identity: Conn.Peer is
// the name of the other side, and Dial refuses any other with ErrIdentity.
//
// A write of up to 64 KiB is copied into a ring of the pipe, if it fits, and
// returns at once. A larger one lends its slice to the reader and blocks until
// the reader has consumed it, so that ReadFunc shows the sender's own memory
// and the bytes are copied once in all. An idle pipe has no ring, and a ring
// starts at 4 KiB.
//
// A Write that is interrupted, by a deadline, by Close or by the end of the
// conn, takes its slice back. It waits until no view of that slice is in use,
// and a view covers at most 1 MiB of it. The view itself must therefore never
// wait for that Write to return.
//
// Everything here works inside a testing/synctest bubble.
package mem

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/transport"
)

var (
	errNoName     = errors.New("mem: listen: the empty string is no address")
	errReaderLeft = fmt.Errorf("mem: the reader closed the pipe: %w", transport.ErrPeerClosed)
)

// A Network is a set of names that reach each other. All its methods may be
// called from several goroutines.
type Network struct {
	beds beds

	mu        sync.Mutex
	endpoints map[string]*endpoint
	areas     int // of each endpoint that will listen
	areaSize  int
}

// NewNetwork returns a network on which nobody listens yet.
func NewNetwork() *Network {
	return &Network{endpoints: make(map[string]*endpoint)}
}

// Listen returns the transport that listens at addr. Every name can be taken
// once; Close and Kill make it free again.
func (n *Network) Listen(addr string) (transport.Transport, error) {
	if addr == "" {
		return nil, errNoName
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[addr] != nil {
		return nil, fmt.Errorf("mem: listen at %q: the name is taken", addr)
	}
	e := &endpoint{
		network: n,
		name:    addr,
		backlog: make(chan *conn, backlogMax),
		closed:  make(chan struct{}),
		left:    make(chan struct{}),
		conns:   make(map[*conn]struct{}),
		areas:   newAreas(n.areas, n.areaSize),
	}
	n.endpoints[addr] = e
	return e, nil
}

// Kill ends the transport at addr as the death of its process would: its
// peers find their conns ended with ErrPeerGone, and its own calls return
// ErrClosed. If nobody listens there it does nothing.
func (n *Network) Kill(addr string) {
	if e := n.lookup(addr); e != nil {
		// Its conns end one by one. Who has seen one end cannot say goodbye on another.
		e.killed.Store(true)
		e.end(transport.ErrPeerGone)
	}
}

// lookup returns the endpoint at addr, or nil.
func (n *Network) lookup(addr string) *endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.endpoints[addr]
}

// forget makes the name of e free, unless someone else has it by now.
func (n *Network) forget(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[e.name] == e {
		delete(n.endpoints, e.name)
	}
}

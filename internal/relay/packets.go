package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
)

// An address is that of a node, and the salt of the paths to it.
type address struct {
	node membership.NodeID
	salt uint8
	via  membership.NodeID // the neighbor that has delivered the packet with the address
}

func (*address) Network() string { return "relay" }

// String returns the same for all addresses: no relay can make a connection move to another one (see network in package quic).
func (*address) String() string { return "relay" }

// text returns what Resolve parses.
func (a *address) text() string { return fmt.Sprintf("%v/%d", a.node, a.salt) }

// packets are the [net.PacketConn] for QUIC over relays.
type packets struct {
	endpoint *Endpoint

	mu        sync.Mutex // guards the fields below
	arrived   sync.Cond  // frames, the deadline or the end
	taken     sync.Cond  // a frame has been taken
	frames    []delivered
	deadline  deadline.Deadline
	closed    bool
	questions map[uint64]chan struct{}
}

// A delivered frame has packets for this node.
type delivered struct {
	whole   []byte
	payload []byte // the rest of it
	from    *address
}

const (
	// framesMax is the number of delivered frames that wait for QUIC. Then neighbors wait: QUIC waits for nobody to read them.
	framesMax = 64
	// roomTime is the longest time that QUIC waits to send a packet to a slow neighbor.
	roomTime = 50 * time.Millisecond
	// roomMin is the number of bytes of this node that wait for a neighbor at most, unless roomTime has passed. A full queue would lose packets.
	roomMin = forward.QueueMax / 4
	// answerTime is the longest time for an answer over another path.
	answerTime = time.Second
	// pathsAsked is the number of paths on which Answers asks.
	pathsAsked = 8
)

func newPackets(e *Endpoint) *packets {
	p := &packets{endpoint: e, questions: make(map[uint64]chan struct{})}
	p.arrived.L, p.taken.L = &p.mu, &p.mu
	p.deadline = deadline.Deadline{L: &p.mu, Wake: p.arrived.Broadcast}
	return p
}

// deliver gives QUIC the packets of a frame. It waits while too many frames wait.
func (p *packets) deliver(payload []byte, from *address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.frames) >= framesMax && !p.closed {
		p.taken.Wait()
	}
	if p.closed {
		return
	}
	p.frames = append(p.frames, delivered{payload, payload, from})
	p.arrived.Signal()
}

// ReadFrom implements [net.PacketConn].
func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closed:
			return 0, nil, net.ErrClosed
		case p.deadline.Passed():
			return 0, nil, os.ErrDeadlineExceeded
		case len(p.frames) == 0:
			p.arrived.Wait()
			continue
		}
		f := &p.frames[0]
		packet, rest := forward.CutPacket(f.payload)
		from := f.from
		n := copy(b, packet)
		if f.payload = rest; len(rest) == 0 {
			p.endpoint.node.Free(f.whole)
			p.frames[0] = delivered{}
			if p.frames = p.frames[1:]; len(p.frames) == framesMax-1 {
				p.taken.Broadcast()
			}
		}
		if len(packet) > 0 {
			return n, from, nil
		}
	}
}

// WriteTo implements [net.PacketConn]. A packet that cannot be sent is lost.
func (p *packets) WriteTo(b []byte, addr net.Addr) (int, error) {
	a := addr.(*address)
	p.endpoint.sendPacket(forward.Frame{Kind: forward.Packets, Salt: a.salt, Source: p.endpoint.cfg.Self, Destination: a.node}, b)
	return len(b), nil
}

// Close implements [net.PacketConn].
func (p *packets) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.deadline.Set(time.Time{})
	p.arrived.Broadcast()
	p.taken.Broadcast()
	return nil
}

// LocalAddr implements [net.PacketConn].
func (p *packets) LocalAddr() net.Addr { return &address{node: p.endpoint.cfg.Self} }

// SetReadDeadline implements [net.PacketConn].
func (p *packets) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline.Set(t)
	return nil
}

// SetDeadline implements [net.PacketConn].
func (p *packets) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetWriteDeadline implements [net.PacketConn]. WriteTo needs none.
func (p *packets) SetWriteDeadline(time.Time) error { return nil }

// Resolve parses the text of an address.
func (p *packets) Resolve(addr string) (net.Addr, error) {
	node, salt, _ := strings.Cut(addr, "/")
	id, err := membership.ParseNodeID(node)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(salt, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("relay: address %q: want NODE/SALT with a salt up to 255", addr)
	}
	return &address{node: id, salt: uint8(number)}, nil
}

// Node returns the NodeID of an address.
func (p *packets) Node(addr net.Addr) string { return addr.(*address).node.String() }

// Source returns the neighbor that has delivered the packet with the address.
func (p *packets) Source(addr net.Addr) netip.Addr { return netip.AddrFrom16(addr.(*address).via) }

// Answers asks the node at an address for an answer, over other paths. The next Dial takes the first one with an answer.
func (p *packets) Answers(ctx context.Context, addr net.Addr) bool {
	a := addr.(*address)
	number, answered := rand.Uint64(), make(chan struct{})
	p.mu.Lock()
	p.questions[number] = answered
	p.mu.Unlock()
	for i := range uint8(pathsAsked) {
		change := i + 1 // the other next hop of this node, of the peer, and of both
		if change > 3 {
			change = uint8(1 + rand.IntN(255))
		}
		p.endpoint.send(forward.Frame{
			Kind: forward.Question, Salt: a.salt ^ change, Source: p.endpoint.cfg.Self, Destination: a.node,
			Payload: binary.BigEndian.AppendUint64(nil, number),
		})
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	select {
	case <-answered:
		return true
	case <-limited.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.questions, number)
		return false
	}
}

// answer handles an answer of a node that has come back with a salt.
func (p *packets) answer(node membership.NodeID, salt uint8, payload []byte) {
	if len(payload) != 8 {
		return
	}
	number := binary.BigEndian.Uint64(payload)
	p.mu.Lock()
	answered := p.questions[number]
	delete(p.questions, number)
	p.mu.Unlock()
	if answered != nil {
		p.endpoint.prefer(node, salt)
		close(answered)
	}
}

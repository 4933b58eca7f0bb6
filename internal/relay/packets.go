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
	frames    []delivered
	waiting   map[membership.NodeID]int // frames, by the neighbor that has delivered them
	deadline  deadline.Deadline
	closed    bool
	questions map[uint64]question
}

// A delivered frame has packets for this node.
type delivered struct {
	whole   []byte
	payload []byte // the rest of it
	from    *address
}

const (
	// framesMax is the number of frames of a neighbor that wait for QUIC, which waits for nobody to read them.
	framesMax = 64
	// roomTime is the longest time that QUIC waits to send a packet to a slow neighbor.
	roomTime = 50 * time.Millisecond
	// roomMin is the memory of the frames of this node that wait for a neighbor from which on packets wait. A full queue would lose them.
	roomMin = forward.QueueMax / 4
	// answerTime is the longest time for an answer over another path.
	answerTime = time.Second
	// moreTime is the time for answers over other paths after the first one.
	moreTime = 50 * time.Millisecond
	// numberSize is the length of the payload of a question and its answer.
	numberSize = 8
	// pathsAsked is the number of paths on which Answers asks.
	pathsAsked = 8
)

func newPackets(e *Endpoint) *packets {
	p := &packets{endpoint: e, waiting: make(map[membership.NodeID]int), questions: make(map[uint64]question)}
	p.arrived.L = &p.mu
	p.deadline = deadline.Deadline{L: &p.mu, Wake: p.arrived.Broadcast}
	return p
}

// deliver gives QUIC the packets of a frame. They are lost while too many frames of the same neighbor wait.
func (p *packets) deliver(payload []byte, from *address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.waiting[from.via] >= framesMax {
		p.endpoint.node.Free(payload)
		return
	}
	p.waiting[from.via]++
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
			p.frames = p.frames[1:]
			if p.waiting[from.via]--; p.waiting[from.via] == 0 {
				delete(p.waiting, from.via)
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

// A question is one that has no answer yet.
type question struct {
	node     membership.NodeID
	salt     uint8
	answered chan<- uint8 // gets the salt
}

// Answers asks the node at an address for answers, over other paths. The next Dial takes one of the paths with an answer at random: a relay may pass
// questions on, and nothing else.
func (p *packets) Answers(ctx context.Context, addr net.Addr) bool {
	a := addr.(*address)
	answered := make(chan uint8, pathsAsked)
	numbers := make([]uint64, pathsAsked)
	for i := range numbers {
		change := uint8(i + 1) // the other next hop of this node, of the peer, and of both
		if change > 3 {
			change = uint8(1 + rand.IntN(255))
		}
		numbers[i] = rand.Uint64()
		p.mu.Lock()
		p.questions[numbers[i]] = question{a.node, a.salt ^ change, answered}
		p.mu.Unlock()
		p.endpoint.send(forward.Frame{
			Kind: forward.Question, Salt: a.salt ^ change, Source: p.endpoint.cfg.Self, Destination: a.node,
			Payload: binary.BigEndian.AppendUint64(nil, numbers[i]),
		})
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var salts []uint8
	var enough <-chan time.Time
	for isOver := false; !isOver; {
		select {
		case salt := <-answered:
			if salts = append(salts, salt); len(salts) == 1 {
				enough = time.After(moreTime)
			}
		case <-enough:
			isOver = true
		case <-limited.Done():
			isOver = true
		}
	}
	p.mu.Lock()
	for _, number := range numbers {
		delete(p.questions, number)
	}
	p.mu.Unlock()
	if len(salts) == 0 {
		return false
	}
	p.endpoint.prefer(a.node, salts[rand.IntN(len(salts))])
	return true
}

// answer handles an answer of a node.
func (p *packets) answer(node membership.NodeID, payload []byte) {
	number := binary.BigEndian.Uint64(payload)
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, isAsked := p.questions[number]; isAsked && q.node == node {
		delete(p.questions, number)
		q.answered <- q.salt
	}
}

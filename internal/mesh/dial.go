package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/transport"
)

const (
	// addrTimeout is how long one of several addresses of a node is tried
	// before the next. A node with one address is given all the time there
	// is: on a busy host handshakes are slow.
	addrTimeout = 5 * time.Second
	// dialTimeout is how long a node is tried before it counts as unreachable.
	// It has said to the seed that it is there, so something is wrong with its
	// address, or in between.
	dialTimeout = 30 * time.Second
	// dialsMax is how many links a node makes at the same time. More would not
	// be faster: when many nodes start on few processors, handshakes that take
	// turns are done before those that are all under way time out.
	dialsMax = 4
	// A node that cannot be reached is tried again after redialFirst, then
	// after twice that, up to redialMax.
	redialFirst = 50 * time.Millisecond
	redialMax   = 2 * time.Second
)

// shares divides the time until ctx ends: the first half is for dialing, and a
// quarter more for those who wait to be dialed, as they know less of what is
// wrong. In the rest the others can still be told.
func shares(ctx context.Context) (dialing, waiting context.Context, cancel context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, ctx, cancel
	}
	left := time.Until(end)
	waiting, cancelWaiting := within(ctx, left*3/4)
	dialing, cancelDialing := within(waiting, left/2)
	return dialing, waiting, func() { cancelDialing(); cancelWaiting() }
}

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not within %v", d.Round(time.Millisecond)))
}

// dial links this node to a rank before it. It tries all addresses of the
// node in turn, again and again, until ctx ends. That someone else answers at
// one of them proves nothing: other hosts may have the same private address.
func (m *Mesh) dial(ctx context.Context, rank int) error {
	ctx, cancel := within(ctx, dialTimeout)
	defer cancel()
	n := m.cfg.View.Nodes[rank]
	addrs := n.AddrsFrom(m.cfg.View.Nodes[m.rank].Host)
	if len(addrs) == 0 {
		return &UnreachableError{Rank: rank, Node: n.ID, Addrs: n.Addrs, Err: errors.New("no address that leads there from another host")}
	}
	var last error
	for wait := redialFirst; ; wait = min(2*wait, redialMax) {
		others := 0
		for _, addr := range addrs {
			c, err := m.dialAddr(ctx, addr, n.ID, len(addrs) == 1)
			if err == nil {
				err = m.add(ctx, c, rank)
			}
			if err == nil {
				return nil
			}
			if last == nil || ctx.Err() == nil {
				last = err
			}
			if errors.Is(err, transport.ErrIdentity) {
				others++
			}
		}
		if others == len(addrs) {
			return &UnreachableError{Rank: rank, Node: n.ID, Addrs: addrs, Err: last}
		}
		select {
		case <-ctx.Done():
			return &UnreachableError{Rank: rank, Node: n.ID, Addrs: addrs, Err: last}
		case <-time.After(wait):
		}
	}
}

func (m *Mesh) dialAddr(ctx context.Context, addr string, id member.NodeID, only bool) (transport.Conn, error) {
	if only {
		return m.cfg.Transport.Dial(ctx, addr, id.String())
	}
	ctx, cancel := context.WithTimeout(ctx, addrTimeout)
	defer cancel()
	return m.cfg.Transport.Dial(ctx, addr, id.String())
}

func list(addrs []string) string {
	if len(addrs) == 0 {
		return "no address"
	}
	return strings.Join(addrs, ", ")
}

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/tcp"
)

// An addressCheck finds out whether a node listens at an address, over QUIC or TCP.
type addressCheck struct {
	node membership.NodeID
	stop context.CancelFunc // ends all attempts

	mu      sync.Mutex
	reached bool
	wrong   map[string]membership.NodeID // other nodes that have answered, by transport
	reasons []string                     // why the attempts have failed, one for each transport
}

// checkAddress returns nil if a node answers at an address, or if this process and the node have neither
// QUIC nor TCP in common. Otherwise it tries until ctx ends or other nodes answer, and returns
// the reason.
func (s *sockets) checkAddress(ctx context.Context, addr string, node membership.Node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &addressCheck{node: node.ID, stop: cancel, wrong: make(map[string]membership.NodeID)}
	var dialing sync.WaitGroup
	if _, ok := node.Endpoint(quicName); ok && s.endpoint != nil {
		dialing.Go(func() {
			p.dial(ctx, "UDP", func() (transport.Conn, error) { return s.endpoint.Dial(ctx, addr, p.credentials("UDP").Client("")) })
		})
	}
	if _, ok := node.Endpoint(tcpName); ok && s.use.allows(tcpName) {
		t, err := tcp.Listen(tcp.Config{DialOnly: true, Anonymous: true, MaxPipes: joinPipesMax, Log: s.log}, p.credentials("TCP"))
		if err != nil {
			return err
		}
		defer t.Close()
		dialing.Go(func() {
			p.dial(ctx, "TCP", func() (transport.Conn, error) { return t.Dial(ctx, addr, "") })
		})
	}
	dialing.Wait()
	if p.reached || len(p.reasons) == 0 {
		return nil
	}
	return errors.New(strings.Join(p.reasons, ", "))
}

// credentials returns the credentials for a transport. An answer of the node ends the whole check.
func (p *addressCheck) credentials(over string) *pki.AddressCheck {
	return pki.NewAddressCheck(func(id membership.NodeID) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if id == p.node {
			p.reached = true
			p.stop()
		} else {
			p.wrong[over] = id
		}
	})
}

// answered returns the other node that has answered over a transport.
func (p *addressCheck) answered(over string) (id membership.NodeID, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, ok = p.wrong[over]
	return id, ok
}

// dial dials until ctx ends, another node answers, or the address has refused connections for a third of handshake.ReachTimeout: the node may
// not listen yet. Each attempt ends with an error.
func (p *addressCheck) dial(ctx context.Context, over string, dial func() (transport.Conn, error)) {
	reason := "no answer"
	for start := time.Now(); ; {
		_, err := dial()
		if ctx.Err() == nil || errors.Is(err, syscall.ECONNREFUSED) {
			reason = refusalReason(err)
		}
		if id, ok := p.answered(over); ok {
			reason = fmt.Sprintf("node %v answers there", id)
			break
		}
		if errors.Is(err, syscall.ECONNREFUSED) && time.Since(start) > handshake.ReachTimeout/3 || !handshake.Sleep(ctx, 2*handshake.PauseMin) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reasons = append(p.reasons, over+": "+reason)
}

func refusalReason(err error) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "nothing listens there"
	}
	return err.Error()
}

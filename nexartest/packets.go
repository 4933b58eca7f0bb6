package nexartest

import (
	"net"
	"sync"
)

// packets is the socket of a node. Its reads and writes block while the node is stopped.
type packets struct {
	net.PacketConn

	mu      sync.Mutex
	stopped chan struct{} // closed by resume; nil while the node runs
}

func (p *packets) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == nil {
		p.stopped = make(chan struct{})
	}
}

func (p *packets) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != nil {
		close(p.stopped)
		p.stopped = nil
	}
}

// wait returns when the node is not stopped.
func (p *packets) wait() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := p.PacketConn.ReadFrom(b)
	p.wait()
	return n, addr, err
}

func (p *packets) WriteTo(b []byte, addr net.Addr) (int, error) {
	p.wait()
	return p.PacketConn.WriteTo(b, addr)
}

// SetReadBuffer does nothing. quic-go expects it of a UDP socket.
func (p *packets) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing. quic-go expects it of a UDP socket.
func (p *packets) SetWriteBuffer(int) error { return nil }

package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A socket is a TCP connection: a *net.TCPConn, or a connection of a listener that has
// read its first bytes.
type socket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

// hostTimeout is the time after which a host that does not answer counts as gone. It reports false if Config.IdleTimeout disables it.
func (t *Transport) hostTimeout() (limit time.Duration, ok bool) {
	return max(t.cfg.IdleTimeout, 15*time.Second), t.cfg.IdleTimeout >= 0
}

// setKeepAlive makes the kernel detect that the host of the peer is gone. It is only for
// control sockets: on a pipe, a paused reader would look like a dead host.
func (t *Transport) setKeepAlive(sock socket) {
	limit, ok := t.hostTimeout()
	if !ok {
		_ = sock.SetKeepAliveConfig(net.KeepAliveConfig{})
		return
	}
	// on a lossy path, so many consecutive keepalive probes are not lost
	const probes = 10
	interval := (limit / 15).Truncate(time.Second)
	_ = sock.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: limit - probes*interval, Interval: interval, Count: probes,
	})
}

// A pipeSocket is the socket of one pipe, or of two paired ones.
type pipeSocket struct {
	socket
	raw     syscall.RawConn
	tls     *tls.Conn   // nil without TLS
	records *recordConn // under tls
	flight  *flight     // on socket; nil after the handshake
	dirs    directions
}

func newPipeSocket(f *flight) *pipeSocket { return &pipeSocket{socket: f.socket, flight: f} }

// A recordConn is the net.Conn under a tls.Conn. It collects written records so that they
// can be sent in parts: a tls.Conn fails for good after a write that a deadline has
// interrupted.
type recordConn struct {
	socket
	in      recordCounter // read by tls
	partial atomic.Uint64 // bytes that tls has read, if the last record is incomplete; otherwise 0

	readBytes uint64

	mu         sync.Mutex
	src        io.Reader // the socket, or a reader in front of it
	collecting bool
	out        []byte
	discarding bool // after the handshake
}

// collect appends written records to out until collected is called.
func (h *recordConn) collect(out []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.collecting, h.out = true, out
}

func (h *recordConn) collected() (out []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, h.collecting, h.out = h.out, false, nil
	return out
}

// source returns the reader that tls reads from.
func (h *recordConn) source() io.Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.src
}

func (h *recordConn) setSource(r io.Reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.src = r
}

// discardWrites discards the responses of tls from now on, such as alerts. They would be mixed
// into the stream of the other pipe, or stay unread in a socket that the peer never reads, and
// reset it when it is closed.
func (h *recordConn) discardWrites() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.discarding = true
}

func (h *recordConn) Read(p []byte) (n int, err error) {
	n, err = h.source().Read(p)
	h.in.count(p[:n])
	h.readBytes += uint64(n)
	if h.in.partial() {
		h.partial.Store(h.readBytes)
	} else {
		h.partial.Store(0)
	}
	return n, err
}

func (h *recordConn) Write(p []byte) (int, error) {
	h.mu.Lock()
	if h.collecting {
		defer h.mu.Unlock()
		h.out = append(h.out, p...)
		return len(p), nil
	}
	mute := h.discarding
	h.mu.Unlock()
	if mute {
		return len(p), nil
	}
	return h.socket.Write(p)
}

// startTLS makes the TLS handshake. side is tls.Client or tls.Server.
func (ps *pipeSocket) startTLS(side func(net.Conn, *tls.Config) *tls.Conn, conf *tls.Config) error {
	ps.records = &recordConn{socket: ps.flight, src: ps.flight}
	ps.tls = side(ps.records, conf)
	return ps.flight.handshake(ps.tls)
}

// netConn returns the connection that carries the handshake of the pipe.
func (ps *pipeSocket) netConn() net.Conn {
	if ps.tls != nil {
		return ps.tls
	}
	return ps.flight
}

func (ps *pipeSocket) prover(key [32]byte, said claim) (*prover, error) {
	p := &prover{key: key, claim: said}
	if ps.tls == nil {
		return p, nil
	}
	state := ps.tls.ConnectionState()
	var err error
	p.session, err = state.ExportKeyingMaterial(labelPipe, nil, 32)
	return p, err
}

// finishHandshake prepares the socket for the data of its pipe.
func (ps *pipeSocket) finishHandshake() (err error) {
	ps.dirs.users = 1
	if err := ps.flight.end(); err != nil {
		return err
	}
	ps.flight = nil
	if ps.records != nil {
		ps.records.socket = ps.socket
		ps.records.setSource(ps.socket)
		ps.records.discardWrites()
	}
	ps.raw, err = ps.SyscallConn()
	if err == nil {
		err = ps.SetDeadline(time.Time{})
	}
	return err
}

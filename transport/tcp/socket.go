package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// A socket is a TCP connection: a *net.TCPConn, or one of a listener that has
// looked at its first bytes.
type socket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

// guard makes the kernel notice that the host of the peer is gone. It is for
// control sockets: on the socket of a pipe, a reader that has paused for long
// would look the same as a host that is gone.
func (t *Transport) setKeepAlive(sock socket) {
	limit := t.cfg.IdleTimeout
	if limit < 0 {
		sock.SetKeepAliveConfig(net.KeepAliveConfig{})
		return
	}
	// So many probes do not get lost one after the other where some packets do.
	const probes = 10
	limit = max(limit, 15*time.Second)
	interval := (limit / 15).Truncate(time.Second)
	sock.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: limit - probes*interval, Interval: interval, Count: probes,
	})
	setUserTimeout(sock, limit)
}

// A channel is the socket of a pipe, or of two: plain, or with TLS on it.
type pipeSocket struct {
	socket
	raw     syscall.RawConn
	tls     *tls.Conn   // nil if the pipe is plain
	records *recordConn // what tls reads from and writes to
	halves  halves
}

// A holder keeps what crypto/tls writes, so that it can be sent piece by piece:
// a tls.Conn does not survive a write that a deadline has interrupted.
type recordConn struct {
	socket
	in recordCounter // to tls

	// How many bytes of the streams of TLS the handshake has taken. Pipes count on
	// from there.
	readBytes, writtenBytes uint64

	mu         sync.Mutex
	src        io.Reader // the socket, or what stands before it
	collecting bool
	out        []byte
	discarding bool // the handshake is over
}

// hold keeps what is written behind out, until letGo.
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

// stands is what stands before the socket.
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

// silence drops from now on what TLS has to answer, an alert perhaps. It would get
// in between what the other pipe of the socket sends, or be left unread in a socket
// that nothing is read from, and do harm there when that is closed.
func (h *recordConn) discardWrites() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.discarding = true
}

func (h *recordConn) Read(p []byte) (n int, err error) {
	n, err = h.source().Read(p)
	h.in.count(p[:n])
	h.readBytes += uint64(n)
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
	n, err := h.socket.Write(p)
	h.writtenBytes += uint64(n)
	return n, err
}

// seal makes TLS of a channel, as side says: tls.Client or tls.Server.
func (ps *pipeSocket) startTLS(side func(net.Conn, *tls.Config) *tls.Conn, conf *tls.Config) error {
	ps.records = &recordConn{socket: ps.socket, src: ps.socket}
	ps.tls = side(ps.records, conf)
	return ps.tls.Handshake()
}

// stream is what the two sides prove themselves on.
func (ps *pipeSocket) netConn() net.Conn {
	if ps.tls != nil {
		return ps.tls
	}
	return ps.socket
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

// ready ends the handshake: from here on the channel carries what users write.
func (ps *pipeSocket) finishHandshake() (err error) {
	ps.halves.users = 1
	if ps.records != nil {
		ps.records.discardWrites()
	}
	ps.raw, err = ps.SyscallConn()
	if err == nil {
		err = ps.SetDeadline(time.Time{})
	}
	return err
}

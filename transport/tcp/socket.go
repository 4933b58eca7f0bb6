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
func (t *Transport) guard(sock socket) {
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
	limitUnanswered(sock, limit)
}

// A channel is the socket of a pipe, or of two: plain, or with TLS on it.
type channel struct {
	socket
	raw    syscall.RawConn
	tls    *tls.Conn // nil if the pipe is plain
	held   *holder   // what tls reads from and writes to
	halves halves
}

// A holder keeps what crypto/tls writes, so that it can be sent piece by piece:
// a tls.Conn does not survive a write that a deadline has interrupted.
type holder struct {
	socket
	given records // to tls

	// How many bytes of the streams of TLS the handshake has taken. Pipes count on
	// from there.
	taken, written uint64

	mu    sync.Mutex
	under io.Reader // the socket, or what stands before it
	holds bool
	out   []byte
	mute  bool // the handshake is over
}

// hold keeps what is written behind out, until letGo.
func (h *holder) hold(out []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds, h.out = true, out
}

func (h *holder) letGo() (out []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out, h.holds, h.out = h.out, false, nil
	return out
}

// stands is what stands before the socket.
func (h *holder) stands() io.Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.under
}

func (h *holder) putBefore(r io.Reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.under = r
}

// silence drops from now on what TLS has to answer, an alert perhaps. It would get
// in between what the other pipe of the socket sends, or be left unread in a socket
// that nothing is read from, and do harm there when that is closed.
func (h *holder) silence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mute = true
}

func (h *holder) Read(p []byte) (n int, err error) {
	n, err = h.stands().Read(p)
	h.given.count(p[:n])
	h.taken += uint64(n)
	return n, err
}

func (h *holder) Write(p []byte) (int, error) {
	h.mu.Lock()
	if h.holds {
		defer h.mu.Unlock()
		h.out = append(h.out, p...)
		return len(p), nil
	}
	mute := h.mute
	h.mu.Unlock()
	if mute {
		return len(p), nil
	}
	n, err := h.socket.Write(p)
	h.written += uint64(n)
	return n, err
}

// seal makes TLS of a channel, as side says: tls.Client or tls.Server.
func (ch *channel) seal(side func(net.Conn, *tls.Config) *tls.Conn, conf *tls.Config) error {
	ch.held = &holder{socket: ch.socket, under: ch.socket}
	ch.tls = side(ch.held, conf)
	return ch.tls.Handshake()
}

// stream is what the two sides prove themselves on.
func (ch *channel) stream() net.Conn {
	if ch.tls != nil {
		return ch.tls
	}
	return ch.socket
}

func (ch *channel) prover(key [32]byte, said claim) (*prover, error) {
	p := &prover{key: key, claim: said}
	if ch.tls == nil {
		return p, nil
	}
	state := ch.tls.ConnectionState()
	var err error
	p.session, err = state.ExportKeyingMaterial(labelPipe, nil, 32)
	return p, err
}

// ready ends the handshake: from here on the channel carries what users write.
func (ch *channel) ready() (err error) {
	ch.halves.used = 1
	if ch.held != nil {
		ch.held.silence()
	}
	ch.raw, err = ch.SyscallConn()
	if err == nil {
		err = ch.SetDeadline(time.Time{})
	}
	return err
}

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport/quic"
)

// A flooder begins connections and then stays silent. It uses as little processor time as
// possible, since it shares the processors with its target.
type flooder struct {
	from  net.IP
	addr  string
	stop  []func()
	dials sync.WaitGroup
	room  chan struct{} // has a token for each dial in progress

	mu      sync.Mutex
	sockets []net.Conn // kept open, oldest first
}

// floodKinds returns the kinds of silent handshakes of a flooder. "initial" answers no packet, as a
// sender with a forged address; "handshake" completes QUIC handshakes; "connect" and "hello" are
// TCP connections without and with a ClientHello.
func floodKinds() []string { return []string{"initial", "handshake", "connect", "hello"} }

// flood makes N silent handshakes a second, of one kind or of all kinds in turn, from its own
// address for the given duration, and reports their number. The duration begins when the packets to be sent are
// captured. With a window length, it does so only in
// those windows of the clock with a number of the parity of the tag.
func flood(ctx context.Context, _ *workerState, o command, r *result) error {
	f := &flooder{from: net.ParseIP(o.From), addr: o.Addr, room: make(chan struct{}, o.N)} // A dial takes at most a second.
	defer f.close()
	kinds := floodKinds()
	if o.Op != "all" {
		kinds = []string{o.Op}
	}
	var sends []func(ctx context.Context)
	for _, kind := range kinds {
		send, err := f.sender(kind)
		if err != nil {
			return err
		}
		sends = append(sends, send)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	const tick = 5 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	due, last := 0.0, time.Now()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		now := time.Now()
		if o.Window == 0 || windowOf(now, o.Window)%2 == o.Tag%2 {
			due += now.Sub(last).Seconds() * float64(o.N)
		}
		for last = now; due >= 1 && ctx.Err() == nil; due-- {
			sends[r.Rounds%len(sends)](ctx)
			r.Rounds++
		}
	}
	return nil
}

// windowOf returns the number of the time window of the given length, the same in all processes.
func windowOf(at time.Time, length time.Duration) int { return int(at.UnixNano() / int64(length)) }

func (f *flooder) close() {
	f.dials.Wait()
	for _, stop := range f.stop {
		stop()
	}
	for _, sock := range f.sockets {
		sock.Close()
	}
}

func (f *flooder) sender(kind string) (func(ctx context.Context), error) {
	switch kind {
	case "initial":
		return f.initials()
	case "handshake":
		return f.handshakes()
	case "connect":
		return f.connects(nil), nil
	case "hello":
		hello, err := captureHello()
		return f.connects(hello), err
	}
	return nil, fmt.Errorf("flood of %q: want one of %q", kind, floodKinds())
}

// initials replays the first packets of clients that were captured before.
func (f *flooder) initials() (func(ctx context.Context), error) {
	flights, err := captureFlights(2000)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(f.addr)
	if err != nil {
		return nil, err
	}
	sock, err := net.DialUDP("udp", &net.UDPAddr{IP: f.from}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	f.stop = append(f.stop, func() { sock.Close() })
	next := 0
	return func(context.Context) {
		for _, packet := range flights[next%len(flights)] {
			sock.Write(packet)
		}
		next++
	}, nil
}

// handshakes completes handshakes that are answered within a second, and holds the connections.
func (f *flooder) handshakes() (func(ctx context.Context), error) {
	end, err := quic.Listen(quic.Config{Addr: net.JoinHostPort(f.from.String(), "0"), Heartbeat: -1, NoWatch: true})
	if err != nil {
		return nil, err
	}
	f.stop = append(f.stop, func() { end.Close() })
	return func(ctx context.Context) {
		f.dial(ctx, func(ctx context.Context) { end.Dial(ctx, f.addr, pki.Joining{}.Client("")) }) // any outcome is fine
	}, nil
}

// dial runs a dial, unless the machine is too busy to end earlier ones.
func (f *flooder) dial(ctx context.Context, do func(ctx context.Context)) {
	select {
	case f.room <- struct{}{}:
	default:
		return
	}
	f.dials.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		do(ctx)
		<-f.room
	})
}

// connects dials the TCP port, sends data and keeps a few hundred connections.
func (f *flooder) connects(say []byte) func(ctx context.Context) {
	return func(ctx context.Context) {
		f.dial(ctx, func(ctx context.Context) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: f.from}}
			sock, err := d.DialContext(ctx, "tcp", f.addr)
			if err != nil {
				return
			}
			sock.(*net.TCPConn).SetLinger(0)
			sock.Write(say)
			f.keep(sock)
		})
	}
}

func (f *flooder) keep(sock net.Conn) {
	const most = 400
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sockets = append(f.sockets, sock); len(f.sockets) > most {
		f.sockets[0].Close()
		f.sockets = f.sockets[1:]
	}
}

// captureFlights returns the first one or two packets of each of n clients.
func captureFlights(n int) (flights [][][]byte, err error) {
	rec := &captureConn{closed: make(chan struct{}), flights: make(map[string][][]byte)}
	end, err := quic.Listen(quic.Config{PacketConn: rec, Heartbeat: -1, HandshakeTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer end.Close()
	for i := 0; i < n; i += 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		var dials sync.WaitGroup
		for range 100 {
			dials.Go(func() { end.Dial(ctx, "127.0.0.1:9", pki.Joining{}.Client("")) })
		}
		dials.Wait()
		cancel()
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, flight := range rec.flights {
		flights = append(flights, flight)
	}
	if len(flights) == 0 {
		return nil, errors.New("the captured clients have sent nothing")
	}
	return flights, nil
}

// A captureConn keeps the packets written to it, by the connection ID that the client has chosen
// for the server. It receives nothing.
type captureConn struct {
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	flights map[string][][]byte
}

func (r *captureConn) WriteTo(p []byte, _ net.Addr) (int, error) {
	const lengthAt = 5 // offset of the length of the ID, after the type and the version (RFC 8999)
	if len(p) > lengthAt && len(p) > lengthAt+int(p[lengthAt]) {
		id := string(p[lengthAt : lengthAt+1+int(p[lengthAt])])
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.flights[id]) < 2 {
			r.flights[id] = append(r.flights[id], bytes.Clone(p))
		}
	}
	return len(p), nil
}

func (r *captureConn) ReadFrom([]byte) (int, net.Addr, error) {
	<-r.closed
	return 0, nil, net.ErrClosed
}

func (r *captureConn) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

func (r *captureConn) LocalAddr() net.Addr                { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9} }
func (r *captureConn) SetDeadline(t time.Time) error      { return r.SetReadDeadline(t) }
func (r *captureConn) SetWriteDeadline(t time.Time) error { return nil }

// SetReadDeadline ends reading: quic-go sets a deadline when it is closed.
func (r *captureConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		r.Close()
	}
	return nil
}

// captureHello returns the first bytes of a node on a TCP control socket of transport/tcp.
func captureHello() ([]byte, error) {
	here, there := net.Pipe()
	defer there.Close()
	go tls.Client(here, &tls.Config{ServerName: "nexar", MinVersion: tls.VersionTLS13}).Handshake() // ends with the pipe
	b := make([]byte, 16<<10)
	n, err := there.Read(b)
	return append([]byte("tnexar1c"), b[:n]...), err
}

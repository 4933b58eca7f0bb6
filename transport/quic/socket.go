package quic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
)

// bind opens the UDP socket and, if possible and not disabled, a TCP port with the same
// number.
func bind(cfg Config) (net.PacketConn, net.Listener, error) {
	packets := cfg.PacketConn
	if packets == nil {
		addr, anyPort, err := listenAddr(cfg.Addr)
		if err != nil {
			return nil, nil, fmt.Errorf("quic: listen at %q: %w", cfg.Addr, err)
		}
		if anyPort && !cfg.NoWatch {
			return bindAnyPort(cfg, addr)
		}
		if packets, err = net.ListenPacket("udp", addr); err != nil {
			return nil, nil, fmt.Errorf("quic: %w", err)
		}
	}
	if _, isUDP := packets.(*net.UDPConn); !isUDP || cfg.NoWatch {
		return packets, nil, nil
	}
	listener, err := listenTCP(packets.LocalAddr().String())
	if err != nil {
		logNoWatch(cfg, err)
	}
	return packets, listener, nil
}

// bindAnyPort opens a UDP and a TCP port with the same number, which the kernel chooses. TCP is
// first, since connections use up TCP ports: on a busy machine, the TCP port of a free UDP port is
// often in use, and rarely the other way round.
func bindAnyPort(cfg Config, addr string) (net.PacketConn, net.Listener, error) {
	var failure error
	for range 8 {
		listener, err := listenTCP(addr)
		if err != nil {
			failure = err
			break
		}
		packets, err := net.ListenPacket("udp", listener.Addr().String())
		if err == nil {
			return packets, listener, nil
		}
		listener.Close()
		failure = err
	}
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("quic: %w", err)
	}
	logNoWatch(cfg, failure)
	return packets, nil, nil
}

func listenAddr(addr string) (full string, anyPort bool, err error) {
	if addr == "" {
		return ":0", true, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", false, err
	}
	if port == "" {
		port = "0"
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", false, fmt.Errorf("port %q: must be a number up to 65535", port)
	}
	return net.JoinHostPort(host, port), number == 0, nil
}

func listenTCP(addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: watchKeepAlive()}
	return lc.Listen(context.Background(), "tcp", addr)
}

func logNoWatch(cfg Config, err error) {
	cfg.Log.Info("quic: no TCP port beside the UDP port: peers detect the death of this process only by its silence",
		"err", err)
}

// watchKeepAlive makes the kernel detect the failure of a host, and keeps the connection
// alive in middleboxes.
func watchKeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4}
}

// prepare enlarges the buffers of a UDP socket and makes it tolerate failing sends.
func (e *Endpoint) prepare(packets net.PacketConn) net.PacketConn {
	if n, ok := packets.(network); ok {
		return &filteredNetwork{n, newInitialFilter(&e.handshakes)}
	}
	udp, ok := packets.(*net.UDPConn)
	if !ok {
		return packets
	}
	e.warnOfBuffers = enlarge(udp, bufferBytes, e.cfg)
	return &socket{UDPConn: udp, dials: &e.dials, batch: newBatchReader(udp), initials: newInitialFilter(&e.handshakes)}
}

// bufferBytes is the buffer size that quic-go recommends, so that bursts are not lost
// before the process runs.
const bufferBytes = 7_500_000

// enlarge sets the largest buffers that the system allows. It returns a function that logs, once, how to allow more if they are
// small. Between processes that share memory no packets are sent, so the first connection between nodes calls it.
func enlarge(udp *net.UDPConn, bytes int, cfg Config) (warn func()) {
	_ = udp.SetReadBuffer(bytes)
	_ = udp.SetWriteBuffer(bytes)
	read, write, err := forceBuffers(udp, bytes)
	if err != nil {
		cfg.Log.Debug("quic: the size of the socket buffers is unknown", "err", err)
	}
	// quic-go would print the same to standard error at every start.
	const silence = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"
	if _, set := os.LookupEnv(silence); !set {
		os.Setenv(silence, "true")
	}
	return sync.OnceFunc(func() {
		level := slog.LevelWarn
		if cfg.OthersWarn {
			level = slog.LevelInfo
		}
		if err == nil && (read < bytes || write < bytes) {
			cfg.Log.Log(context.Background(), level, "quic: the system allows only small UDP buffers, so bursts will lose packets",
				"readBytes", read, "writeBytes", write, "wantedBytes", bytes, "raise", raiseBuffers)
		}
	})
}

// A socket is a UDP socket that treats packets that cannot be sent as lost. quic-go ends a
// connection at the first error of a send, but routes recover, and firewalls occasionally drop
// a packet.
type socket struct {
	*net.UDPConn
	dials    *dials
	batch    batchReader
	initials *initialFilter
}

func (s *socket) WriteMsgUDP(p, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = s.UDPConn.WriteMsgUDP(p, oob, addr)
	switch {
	case err == nil:
	case dropped(err):
		return len(p), len(oob), nil
	case unreachable(err):
		s.dials.unreachable(eyeballs.AddrPort(addr), err)
		return len(p), len(oob), nil
	}
	return n, oobn, err
}

// dropped reports whether a failed send counts as a lost packet.
func dropped(err error) bool { return isAny(err, errnosDropped[:]) }

// unreachable reports whether a send failed since the address is unreachable now.
func unreachable(err error) bool { return isAny(err, errnosUnreachable[:]) }

// refused reports whether a TCP dial was refused by the kernel of the host.
func refused(err error) bool { return errors.Is(err, errnoRefused) }

func isAny[E error](err error, targets []E) bool {
	return slices.ContainsFunc(targets, func(target E) bool { return errors.Is(err, target) })
}

package quic

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
)

// A watch is an idle TCP connection beside a QUIC connection. The kernel of the peer closes it
// when the peer's process ends for any reason.
//
// A middlebox may close it too. So when it ends before the QUIC connection, the address is
// asked again at once. If the kernel there refuses, or another process answers that it does not
// know the connection, the peer is gone. Without an answer, heartbeats decide. A refusal is
// only conclusive from an address that has known the connection before, since firewalls refuse
// as well. A process may also end before it is watched. So a refusal from any other address
// makes this side send packets over the QUIC connection, which a live peer acknowledges.
//
// The messages, 33 bytes in one direction, 16 back and 16 at the end, are derived from the TLS
// session of the QUIC connection and cannot be forged. An observer can replay them, and learns
// only whether the connection still exists.

const (
	watchMagic = "nexarw1\n"
	watchLabel = "EXPORTER-nexar-watch"

	// watchTimeout is the time that either side waits for a message.
	watchTimeout = 2 * time.Second

	// watchDelay is the time that the side that was dialed waits to be watched.
	watchDelay = 300 * time.Millisecond

	// watchRetry is the time between attempts while the peer does not answer.
	watchRetry = 5 * time.Second
)

// Purposes of a watchHello.
const (
	askStay = 's' // to keep the TCP connection as a watch
	askOnce = 'o' // to ask once
)

type (
	watchID    [8]byte
	watchProof [16]byte
)

// watchKeys are secrets of the two ends of a connection.
type watchKeys struct {
	localID, peerID       watchID    // find the connection at either end
	hello, known          watchProof // question and answer
	localLeave, peerLeave watchProof // sent by the side that closes in order
}

func deriveWatchKeys(state tls.ConnectionState, dialed bool) (*watchKeys, error) {
	secret, err := state.ExportKeyingMaterial(watchLabel, nil, 2*8+4*16)
	if err != nil {
		return nil, err
	}
	k := new(watchKeys)
	for _, part := range [][]byte{k.localID[:], k.peerID[:], k.hello[:], k.known[:], k.localLeave[:], k.peerLeave[:]} {
		secret = secret[copy(part, secret):]
	}
	if !dialed {
		k.localID, k.peerID = k.peerID, k.localID
		k.localLeave, k.peerLeave = k.peerLeave, k.localLeave
	}
	return k, nil
}

// A watchHello is the first message of the side that asks.
type watchHello struct {
	want byte
	id   watchID
	word watchProof
}

const watchHelloBytes = len(watchMagic) + 1 + 8 + 16

func (h watchHello) append(b []byte) []byte {
	b = append(b, watchMagic...)
	b = append(b, h.want)
	b = append(b, h.id[:]...)
	return append(b, h.word[:]...)
}

func readWatchHello(r io.Reader) (h watchHello, err error) {
	var b [watchHelloBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, err
	}
	rest := b[len(watchMagic):]
	h.want = rest[0]
	copy(h.id[:], rest[1:])
	copy(h.word[:], rest[1+8:])
	if string(b[:len(watchMagic)]) != watchMagic || h.want != askStay && h.want != askOnce {
		return h, errors.New("not a watch")
	}
	return h, nil
}

func (p watchProof) equal(q watchProof) bool { return subtle.ConstantTimeCompare(p[:], q[:]) == 1 }

// An answer is the result of asking an address about a connection.
type answer int

const (
	answerKnown   answer = iota // the connection is alive
	answerUnknown               // another process answers
	answerRefused               // the port is closed
	answerCut                   // closed without an answer, as a dying process does: ask again
	answerSilent                // no answer
	answerNowhere               // no answer of the kernel either
)

// ask asks the peer's address about this connection. With askStay it returns the open TCP
// connection if the connection is known.
func (c *Conn) ask(want byte) (answer, net.Conn) {
	d := net.Dialer{Timeout: watchTimeout, KeepAliveConfig: watchKeepAlive()}
	if ip := eyeballs.AddrPort(c.end.packets.LocalAddr()).Addr(); ip.IsValid() && !ip.IsUnspecified() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	sock, err := d.DialContext(c.qc.Context(), "tcp", c.remote)
	switch {
	case refused(err):
		return answerRefused, nil
	case os.IsTimeout(err):
		return answerNowhere, nil
	case err != nil:
		c.end.watch.files.Note(err)
		return answerSilent, nil
	}
	got := c.question(sock, want)
	if got == answerKnown && want == askStay {
		return got, sock
	}
	sock.Close()
	return got, nil
}

func (c *Conn) question(sock net.Conn, want byte) answer {
	sock.SetDeadline(time.Now().Add(watchTimeout))
	hello := watchHello{want: want, id: c.keys.peerID, word: c.keys.hello}
	if _, err := sock.Write(hello.append(nil)); err != nil {
		return answerCut
	}
	var word watchProof
	_, err := io.ReadFull(sock, word[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return answerSilent
	case err != nil:
		return answerCut
	case !word.equal(c.keys.known):
		return answerUnknown
	}
	sock.SetDeadline(time.Time{})
	c.hasAnswered.Store(true)
	return answerKnown
}

// Watch starts to watch the process of the peer, so that its end is detected at once and
// not only by its silence. It does not block. It has no effect if the connection is watched
// already, by either side, or if one of the sides has no TCP port.
//
// The side that dialed watches first: after it was asked, the other side knows an address
// that can be asked. If that side is not asked, since the peer is dead already or cannot
// reach its TCP port, it watches by itself.
func (c *Conn) Watch() {
	switch {
	case c.keys == nil || c.isWatched():
	case c.dialed:
		c.startWatch()
	default:
		time.AfterFunc(watchDelay, func() {
			if !c.isWatched() {
				c.startWatch()
			}
		})
	}
}

// isWatched reports whether one of the sides watches the process of the other one.
func (c *Conn) isWatched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sockets) > 0
}

func (c *Conn) startWatch() {
	if c.watching.CompareAndSwap(false, true) {
		c.spawn(c.watch)
	}
}

func (c *Conn) watch() {
	sock := c.firstWatch()
	for sock != nil {
		since := time.Now()
		if c.holdWatch(sock) {
			return
		}
		if time.Since(since) < time.Second {
			// A middlebox cuts every watch. Ask at a slower rate.
			if c.checkPeer(askOnce); !c.sleep(time.Second) {
				return
			}
		}
		sock = c.checkPeer(askStay)
	}
}

// firstWatch opens the first watch. The peer may not have registered the connection yet,
// or have too many unauthenticated connections now.
func (c *Conn) firstWatch() net.Conn {
	for pause := 5 * time.Millisecond; pause < 10*time.Second; pause *= 2 {
		got, sock := c.ask(askStay)
		if got == answerKnown {
			return sock
		}
		if got == answerRefused {
			c.requireAnswer()
			break
		}
		if !c.sleep(pause) {
			break
		}
	}
	c.watching.Store(false) // so that Watch can try again
	c.end.cfg.Log.Debug("quic: the peer has no TCP port to watch", "peer", c.peer, "addr", c.remote)
	return nil
}

// askAgain is ask, but asks twice before it returns answerUnknown. Messages are not
// protected, so a single damaged segment looks like an unknown connection.
func (c *Conn) askAgain(want byte) (answer, net.Conn) {
	got, sock := c.ask(want)
	if got == answerUnknown && c.sleep(cutPause) {
		got, sock = c.ask(want)
	}
	return got, sock
}

// A dying process may close before its kernel refuses.
const (
	cutsMax  = 100
	cutPause = 5 * time.Millisecond
)

// checkPeer asks about the peer after a watch was cut, and ends the connection if the peer is gone. With askStay it asks until the peer has answered,
// and returns the new watch.
func (c *Conn) checkPeer(want byte) net.Conn {
	for cuts := 0; ; cuts++ {
		pause := watchRetry
		switch got, sock := c.askAgain(want); got {
		case answerKnown:
			return sock
		case answerRefused, answerUnknown:
			c.declareGone(got)
			return nil
		case answerCut:
			if cuts < cutsMax {
				pause = cutPause
			}
		}
		if pause == watchRetry && want == askOnce || !c.sleep(pause) {
			return nil
		}
	}
}

const (
	doubtPause = 250 * time.Millisecond
	doubtTries = 12
)

// requireAnswer ends the connection if the peer acknowledges none of a few packets.
func (c *Conn) requireAnswer() {
	if !c.sleep(doubtPause) {
		return // all that the peer sent before its end has arrived
	}
	before := c.qc.ConnectionStats().PacketsReceived
	for range doubtTries {
		if c.qc.SendDatagram([]byte{0}) != nil || !c.sleep(doubtPause) {
			return
		}
		if c.qc.ConnectionStats().PacketsReceived > before {
			return
		}
	}
	c.declareGone(answerRefused)
}

// holdWatch keeps a watch open until it ends. It reports whether the connection has ended
// with it.
func (c *Conn) holdWatch(sock net.Conn) (over bool) {
	if !c.attach(sock) {
		c.closeWatch(sock)
		return true
	}
	defer sock.Close()
	defer c.detach(sock)
	var word watchProof
	if _, err := io.ReadFull(sock, word[:]); err == nil && word.equal(c.keys.peerLeave) {
		// The peer has closed in order. Its CONNECTION_CLOSE is on the way, unless it was
		// lost.
		if c.sleep(100 * time.Millisecond) {
			c.finish(codeLeft, "its closing packet got lost")
		}
		return true
	}
	return c.qc.Context().Err() != nil
}

// serveHold is holdWatch for the side that was asked. If the other side is alive it asks
// again, so this side only determines whether it is. It trusts a refusal if the address
// has known the connection before.
func (c *Conn) serveHold(sock net.Conn) {
	c.mu.Lock()
	full := len(c.sockets) >= socketsMax
	c.mu.Unlock()
	if full {
		return
	}
	got, _ := c.ask(askOnce)
	switch over := c.holdWatch(sock); {
	case over:
	case got == answerKnown:
		c.checkPeer(askOnce)
	default:
		c.requireAnswer()
	}
}

// declareGone ends the connection, unless a CONNECTION_CLOSE of the peer is being read.
func (c *Conn) declareGone(got answer) {
	if !c.sleep(10 * time.Millisecond) {
		return
	}
	why := "its process ended without Close"
	if got == answerUnknown {
		why = "the process there does not know the connection"
	}
	c.finish(codeGone, fmt.Sprintf("%s (TCP %s)", why, c.remote))
}

// sleep waits, and reports whether the connection is still open.
func (c *Conn) sleep(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.qc.Context(), d)
	defer cancel()
	<-ctx.Done()
	return c.qc.Context().Err() == nil
}

// socketsMax is the number of watches of a connection: one opened by each side, and others that
// replace watches with an undetected end.
const socketsMax = 4

func (c *Conn) attach(sock net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.sockets = append(c.sockets, sock)
	return true
}

func (c *Conn) detach(sock net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sockets = slices.DeleteFunc(c.sockets, func(s net.Conn) bool { return s == sock })
}

// closeWatch closes a watch. If this side has closed the connection in order, it notifies the
// peer.
func (c *Conn) closeWatch(sock net.Conn) {
	if closedHere(context.Cause(c.qc.Context())) {
		sock.SetWriteDeadline(time.Now().Add(watchTimeout))
		_, _ = sock.Write(c.keys.localLeave[:])
	}
	sock.Close()
}

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
	"time"
)

// A watch is an idle TCP connection beside a QUIC connection. The kernel of
// the peer closes it when the peer's process ends, however it ends.
//
// But a middlebox may close it too. So when it ends without the QUIC
// connection having been closed, the address is asked again, at once: if the
// kernel there refuses, or a process there does not know the connection, the
// peer is gone. If nothing answers, that is silence, and heartbeats decide.
// A refusal counts by itself only from an address that has known the connection
// before, because a firewall refuses as well. A process may also end before it
// is watched; so a refusal from any other address raises a doubt, which a packet
// over the QUIC connection settles: who lives acknowledges it.
//
// What is said on it is 33 bytes one way and 16 back, and 16 more at the end,
// all derived from the TLS session of the QUIC connection, so nobody else can
// say it. One who reads along can repeat it, and learns by that whether the
// connection still lives.

const (
	watchMagic = "nexarw1\n"
	watchLabel = "EXPORTER-nexar-watch"

	// watchTimeout is how long either side waits for a word of the other.
	watchTimeout = 2 * time.Second

	// unasked is how long one who was dialed waits to be watched.
	unasked = 300 * time.Millisecond

	// watchRest is the pause between attempts while the peer is silent.
	watchRest = 5 * time.Second
)

// What the one who asks wants.
const (
	askStay = 's' // to watch: the connection is to stay open
	askOnce = 'o' // only to know
)

type (
	watchID    [8]byte
	watchProof [16]byte
)

// watchKeys are what the two ends of a connection know and nobody else does.
type watchKeys struct {
	mine, peers       watchID    // find the connection at either end
	hello, known      watchProof // question and answer
	myLeave, hisLeave watchProof // said by the one who closes in order
}

func deriveWatchKeys(state tls.ConnectionState, dialed bool) (*watchKeys, error) {
	secret, err := state.ExportKeyingMaterial(watchLabel, nil, 2*8+4*16)
	if err != nil {
		return nil, err
	}
	k := new(watchKeys)
	for _, part := range [][]byte{k.mine[:], k.peers[:], k.hello[:], k.known[:], k.myLeave[:], k.hisLeave[:]} {
		secret = secret[copy(part, secret):]
	}
	if !dialed {
		k.mine, k.peers = k.peers, k.mine
		k.myLeave, k.hisLeave = k.hisLeave, k.myLeave
	}
	return k, nil
}

// A watchHello is what the one who asks says first.
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

// An answer is what an address has to say about a connection.
type answer int

const (
	answerKnown   answer = iota // it is alive
	answerUnknown               // another process is there
	answerRefused               // nobody is there
	answerCut                   // it hung up, as a dying process does: ask again
	answerSilent                // nothing can be said
)

// ask asks the peer's address about this connection. With askStay, the TCP
// connection of a known one is returned, and stays open.
func (c *Conn) ask(want byte) (answer, net.Conn) {
	d := net.Dialer{Timeout: watchTimeout, KeepAliveConfig: watchKeepAlive()}
	if ip := addrPort(c.end.packets.LocalAddr()).Addr(); ip.IsValid() && !ip.IsUnspecified() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0))
	}
	sock, err := d.DialContext(c.qc.Context(), "tcp", c.remote)
	switch {
	case refused(err):
		return answerRefused, nil
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
	hello := watchHello{want: want, id: c.keys.peers, word: c.keys.hello}
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
	return answerKnown
}

// Watch begins to watch the peer's process, if it is not watched already: its
// end is then known at once, and not only by its silence. It returns at once,
// and does nothing where one of the two has no TCP port to be reached at.
func (c *Conn) Watch() {
	if c.keys != nil && c.watching.CompareAndSwap(false, true) {
		c.spawn(c.watch)
	}
}

// beginWatch lets the one who has dialed watch first: once the other has been
// asked, it knows whom to ask. If nobody asks, because who has dialed is dead
// already, or cannot reach this side's TCP port, it watches unasked.
func (c *Conn) beginWatch(dialed bool) {
	if dialed {
		c.Watch()
		return
	}
	time.AfterFunc(unasked, func() {
		c.mu.Lock()
		asked := len(c.sockets) > 0
		c.mu.Unlock()
		if !asked {
			c.Watch()
		}
	})
}

func (c *Conn) watch() {
	sock := c.firstWatch()
	for sock != nil {
		since := time.Now()
		if c.hold(sock) {
			return
		}
		if time.Since(since) < time.Second {
			// Something between cuts it again and again. Ask, but do not hurry.
			if c.judge(); !c.pause(time.Second) {
				return
			}
		}
		if sock = c.watchAgain(); sock == nil {
			return
		}
	}
}

// firstWatch opens the first watch. The peer may not have got round yet to
// taking note of the connection, or have to bear too many strangers just now.
func (c *Conn) firstWatch() net.Conn {
	for pause := 5 * time.Millisecond; pause < 10*time.Second; pause *= 2 {
		got, sock := c.ask(askStay)
		if got == answerKnown {
			return sock
		}
		if got == answerRefused {
			c.doubt()
			break
		}
		if !c.pause(pause) {
			break
		}
	}
	c.watching.Store(false) // so that Watch can try again
	c.end.cfg.Log.Debug("quic: the peer has no TCP port to watch", "peer", c.peer, "addr", c.remote)
	return nil
}

// watchAgain opens a watch after one was cut, or ends the connection.
func (c *Conn) watchAgain() net.Conn {
	for cuts := 0; ; {
		got, sock := c.askAgain(askStay)
		pause := watchRest
		switch got {
		case answerKnown:
			return sock
		case answerRefused, answerUnknown:
			c.declareGone(got)
			return nil
		case answerCut:
			if cuts++; cuts < cutsMax {
				pause = cutPause
			}
		}
		if !c.pause(pause) {
			return nil
		}
	}
}

// askAgain is ask that asks a second time before it reports answerUnknown. Questions and
// answers go in the clear, so a single damaged segment looks like an unknown connection.
func (c *Conn) askAgain(want byte) (answer, net.Conn) {
	got, sock := c.ask(want)
	if got == answerUnknown && c.pause(cutPause) {
		got, sock = c.ask(want)
	}
	return got, sock
}

// A dying process may hang up before its kernel begins to refuse.
const (
	cutsMax  = 100
	cutPause = 5 * time.Millisecond
)

// judge asks once about the peer, and ends the connection if it is gone.
func (c *Conn) judge() {
	for range cutsMax {
		got, _ := c.askAgain(askOnce)
		switch got {
		case answerRefused, answerUnknown:
			c.declareGone(got)
			return
		case answerKnown, answerSilent:
			return
		}
		if !c.pause(cutPause) {
			return
		}
	}
}

const (
	doubtPause = 250 * time.Millisecond
	doubtTries = 12
)

// doubt ends the connection if the peer answers none of a few packets.
func (c *Conn) doubt() {
	if !c.pause(doubtPause) {
		return // What a peer sent before its end has come by now.
	}
	before := c.qc.ConnectionStats().PacketsReceived
	for range doubtTries {
		if c.qc.SendDatagram([]byte{0}) != nil || !c.pause(doubtPause) {
			return
		}
		if c.qc.ConnectionStats().PacketsReceived > before {
			return
		}
	}
	c.declareGone(answerRefused)
}

// hold keeps a watch open until it ends. It reports whether the connection has
// ended with it.
func (c *Conn) hold(sock net.Conn) (over bool) {
	if !c.attach(sock) {
		c.hangUp(sock)
		return true
	}
	defer sock.Close()
	defer c.detach(sock)
	var word watchProof
	if _, err := io.ReadFull(sock, word[:]); err == nil && word.equal(c.keys.hisLeave) {
		// The peer has closed in order. Its QUIC packet that says the same is
		// on its way, if it has not got lost.
		if c.pause(100 * time.Millisecond) {
			c.finish(codeLeft, "its closing packet got lost")
		}
		return true
	}
	return c.qc.Context().Err() != nil
}

// serveHold is hold for the side that was asked. The other one will come again
// if it lives; this one only has to know whether it does. It trusts a refusal
// if the address has known the connection before.
func (c *Conn) serveHold(sock net.Conn) {
	c.mu.Lock()
	full := len(c.sockets) >= socketsMax
	c.mu.Unlock()
	if full {
		return
	}
	got, _ := c.ask(askOnce)
	switch over := c.hold(sock); {
	case over:
	case got == answerKnown:
		c.judge()
	default:
		c.doubt()
	}
}

// declareGone ends the connection, unless a packet of the peer that does so in
// order is just being read.
func (c *Conn) declareGone(got answer) {
	if !c.pause(10 * time.Millisecond) {
		return
	}
	why := "its process has ended"
	if got == answerUnknown {
		why = "the process there does not know the connection"
	}
	c.finish(codeGone, fmt.Sprintf("%s (TCP %s)", why, c.remote))
}

// pause waits, and reports whether the connection still lives.
func (c *Conn) pause(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.qc.Context(), d)
	defer cancel()
	<-ctx.Done()
	return c.qc.Context().Err() == nil
}

// socketsMax is how many watches a peer gets for a connection: one opened by
// each side, and others that take the place of some not yet known to be cut.
const socketsMax = 4

func (c *Conn) attach(sock net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.sockets = append(c.sockets, sock)
	return true
}

func (c *Conn) detach(sock net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.sockets {
		if s == sock {
			c.sockets = append(c.sockets[:i], c.sockets[i+1:]...)
			return
		}
	}
}

// hangUp closes a watch. If this side has closed the connection, in order, the
// peer is told.
func (c *Conn) hangUp(sock net.Conn) {
	if closedHere(context.Cause(c.qc.Context())) {
		sock.SetWriteDeadline(time.Now().Add(watchTimeout))
		sock.Write(c.keys.myLeave[:])
	}
	sock.Close()
}

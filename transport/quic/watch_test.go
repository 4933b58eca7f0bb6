package quic

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

const soon = 30 * time.Second // generous ceiling for immediate effects

// awaitDone waits for the end of a conn.
func awaitDone(t *testing.T, c transport.Conn) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(soon):
		t.Fatalf("the conn has not ended after %v", soon)
	}
}

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > soon {
			t.Fatalf("%s did not happen within %v", what, soon)
		}
	}
}

// awaitWatch waits until the conn is watched.
func awaitWatch(t *testing.T, c *Conn) {
	t.Helper()
	eventually(t, "the watch", func() bool { return len(c.watchSockets()) > 0 })
}

func (c *Conn) watchSockets() []net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]net.Conn(nil), c.sockets...)
}

// TestWatchCut checks that the peer is asked when a middlebox cuts the watch, and that
// the connection continues, watched again.
func TestWatchCut(t *testing.T) {
	t.Parallel()
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	awaitWatch(t, dialed)
	awaitWatch(t, accepted)
	old := dialed.watchSockets()[0]
	old.Close()
	eventually(t, "another watch", func() bool {
		now, there := dialed.watchSockets(), accepted.watchSockets()
		return len(now) == 1 && now[0] != old && len(there) == 1
	})
	pipeBetween(t, dialed, accepted)

	nodes[1].kill()
	awaitDone(t, dialed)
	if err := dialed.Err(); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Err() = %v, want ErrPeerGone", err)
	}
}

// TestWatchLater checks that either side can start to watch at any time.
func TestWatchLater(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1, Watch: func(string) bool { return false }})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	time.Sleep(50 * time.Millisecond)
	if n := len(dialed.watchSockets()) + len(accepted.watchSockets()); n != 0 {
		t.Fatalf("%d watches without a request", n)
	}
	accepted.Watch()
	awaitWatch(t, accepted)
	awaitWatch(t, dialed)
	nodes[0].kill()
	awaitDone(t, accepted)
	if err := accepted.Err(); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Err() = %v, want ErrPeerGone", err)
	}
}

// TestWatchTwice checks that a side opens no watch beside that of the other side.
func TestWatchTwice(t *testing.T) {
	t.Parallel()
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1, Watch: func(string) bool { return false }})
	for _, first := range []int{0, 1} {
		var ends [2]*Conn
		ends[0], ends[1] = connect(t, nodes[0], nodes[1])
		ends[first].Watch()
		awaitWatch(t, ends[0])
		awaitWatch(t, ends[1])
		for _, c := range ends {
			c.Watch()
		}
		time.Sleep(2 * watchDelay)
		for i, c := range ends {
			if n := len(c.watchSockets()); n != 1 {
				t.Errorf("side %d has watched first, and side 0 has dialed: side %d has %d watches, want 1", first, i, n)
			}
		}
	}
}

// TestPeerReplaced checks that another process at the same address does not know the
// connection.
func TestPeerReplaced(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	awaitWatch(t, dialed)
	nodes[1].end.watch.remove(accepted)
	dialed.watchSockets()[0].Close()
	awaitDone(t, dialed)
	if err := dialed.Err(); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Err() = %v, want ErrPeerGone", err)
	}
	// The other side receives the reason.
	awaitDone(t, accepted)
	if err := accepted.Err(); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Err() of the other side = %v, want ErrPeerGone", err)
	}
}

// TestLeave checks that the watch reports that the peer has closed in order if its
// CONNECTION_CLOSE is lost.
func TestLeave(t *testing.T) {
	t.Parallel()
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1, Watch: func(string) bool { return false }})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	here, there := net.Pipe()
	held := make(chan bool)
	go func() { held <- dialed.holdWatch(here) }()
	awaitWatch(t, dialed)
	if _, err := there.Write(accepted.keys.localLeave[:]); err != nil {
		t.Fatal(err)
	}
	if !<-held {
		t.Error("the conn continues after the peer has left")
	}
	if err := dialed.Err(); !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("Err() = %v, want ErrPeerClosed", err)
	}
}

// TestUnauthenticatedWatchers checks that clients that send nothing or garbage neither
// keep a peer from being watched nor learn anything.
func TestUnauthenticatedWatchers(t *testing.T) {
	t.Parallel()
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1, Watch: func(string) bool { return false }})
	var socks []net.Conn
	for range 100 {
		sock, err := net.Dial("tcp", nodes[1].Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
		socks = append(socks, sock)
	}
	socks[0].Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 10))
	dialed, accepted := connect(t, nodes[0], nodes[1])
	hello := watchHello{want: askStay, id: accepted.keys.localID} // without the proof
	socks[1].Write(hello.append(nil))
	var answer watchProof
	socks[1].SetReadDeadline(time.Now().Add(soon))
	if _, err := socks[1].Read(answer[:]); err != nil || answer != (watchProof{}) {
		t.Errorf("the answer to a guess is %x, %v, want zeros", answer, err)
	}
	dialed.Watch()
	awaitWatch(t, dialed)
	eventually(t, "the end of the unauthenticated clients", func() bool {
		s := nodes[1].end.watch
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.open) == 0
	})
	if err := dialed.Err(); err != nil {
		t.Errorf("the conn ended: %v", err)
	}
}

// TestNoTCP checks that a missing TCP port of one side does not end the connection.
func TestNoTCP(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dialing", "accepting"} {
		t.Run(name, func(t *testing.T) {
			ca := testpeer.NewCA(t)
			with := newTestNode(t, Config{Heartbeat: -1}, ca.Node(t, "with"))
			without := newTestNode(t, Config{Heartbeat: -1, NoWatch: true}, ca.Node(t, "without"))
			from, to := with, without
			if name == "accepting" {
				from, to = to, from
			}
			dialed, accepted := connect(t, from, to)
			dialed.Watch()
			accepted.Watch()
			time.Sleep(100 * time.Millisecond)
			pipeBetween(t, dialed, accepted)
		})
	}
}

// TestSelf checks that a node can connect to itself.
func TestSelf(t *testing.T) {
	node := newTestNodes(t, 1, Config{Heartbeat: -1})[0]
	dialed, accepted := connect(t, node, node)
	awaitWatch(t, dialed)
	awaitWatch(t, accepted)
	pipeBetween(t, dialed, accepted)
	dialed.Close()
	awaitDone(t, accepted)
	if err := accepted.Err(); !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("Err() = %v, want ErrPeerClosed", err)
	}
}

func FuzzWatchHello(f *testing.F) {
	f.Add(watchHello{want: askOnce, id: watchID{1}, word: watchProof{2}}.append(nil))
	f.Add([]byte(watchMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readWatchHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		if got := h.append(nil); !bytes.Equal(got, b[:watchHelloBytes]) {
			t.Errorf("%x is read as %x", b, got)
		}
	})
}

// TestDamagedAnswer checks that one damaged answer does not prove that the process of the
// peer was replaced, and that two do.
func TestDamagedAnswer(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Heartbeat: -1})
	dialed, _ := connect(t, nodes[0], nodes[1])
	for damaged, want := range map[int]answer{1: answerKnown, 2: answerUnknown} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			for i := range 2 {
				sock, err := l.Accept()
				if err != nil {
					return
				}
				readWatchHello(sock)
				word := dialed.keys.known
				if i < damaged {
					word[3] ^= 1
				}
				sock.Write(word[:])
				sock.Close()
			}
		}()
		c := &Conn{qc: dialed.qc, end: dialed.end, keys: dialed.keys, remote: l.Addr().String()}
		if got, _ := c.askAgain(askOnce); got != want {
			t.Errorf("after %d damaged answers: %v, want %v", damaged, got, want)
		}
		<-served
		l.Close()
	}
}

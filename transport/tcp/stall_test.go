package tcp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestStallClock checks when a socket without progress has stalled.
func TestStallClock(t *testing.T) {
	fly := func(acked uint64) sample { return sample{queued: 10, acked: acked} }
	full := sample{queued: 10, acked: 1, windowed: true}
	slow := sample{queued: 10, acked: 1, windowed: true, probe: 2 * monitorInterval}
	far := sample{queued: 10, acked: 1, smoothRTT: 500 * time.Millisecond}
	for name, test := range map[string]struct {
		seen []sample // one per monitorInterval
		want []bool
	}{
		"nothing under way":       {[]sample{{}, {}, {}, {}, {}}, []bool{false, false, false, false, false}},
		"no window":               {[]sample{full, full, full, full, full}, []bool{false, false, false, false, false}},
		"a window again":          {[]sample{full, full, fly(1), fly(1), fly(1)}, []bool{false, false, false, false, true}},
		"a probe of 0.5 s":        {[]sample{slow, fly(1), fly(1), fly(1), fly(1), fly(1)}, []bool{false, false, false, false, false, true}},
		"progress":                {[]sample{fly(1), fly(2), fly(3), fly(4), fly(5)}, []bool{false, false, false, false, false}},
		"no acknowledgement":      {[]sample{fly(1), fly(1), fly(1), fly(1), fly(2)}, []bool{false, false, false, true, false}},
		"progress, then none":     {[]sample{fly(1), fly(1), fly(2), fly(2), fly(2), fly(2)}, []bool{false, false, false, false, false, true}},
		"four round trips of 0.5": {[]sample{far, far, far, far, far, far, far, far, far}, []bool{false, false, false, false, false, false, false, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var k stallClock
			now := time.Now()
			for i, p := range test.seen {
				still := k.observe(p, now.Add(time.Duration(i)*monitorInterval))
				if stalled := still > 0; stalled != test.want[i] {
					t.Errorf("sample %d: stalled for %v, want a stall: %t", i, still, test.want[i])
				}
			}
		})
	}
}

// newIdleTransport returns a Transport without sockets.
func newIdleTransport() *Transport { return &Transport{cfg: Config{}.withDefaults()} }

// A simulated socket has the state that a test sets.
type simulated struct {
	readOnly
	state sample
	takes atomic.Int64 // the time that a sample takes
}

func (f *simulated) sample() sample {
	time.Sleep(time.Duration(f.takes.Load()))
	return f.state
}

// A readOnly socket returns prepared bytes.
type readOnly struct {
	socket
	bytes *bytes.Reader
}

func (s readOnly) Read(p []byte) (int, error)       { return s.bytes.Read(p) }
func (readOnly) Write(p []byte) (int, error)        { return len(p), nil }
func (readOnly) Close() error                       { return nil }
func (readOnly) SetWriteDeadline(t time.Time) error { return nil }

// newSampledConn returns a conn with a simulated control socket, and a pipe with another one. No monitor samples them.
func newSampledConn(t *testing.T) (c *conn, control, pipe *simulated, s *sender) {
	t.Helper()
	control, pipe = new(simulated), new(simulated)
	c = &conn{t: newIdleTransport(), sock: control, queued: make(chan struct{}, 1), outgoing: make(map[uint32]*sender), opening: make(map[socket]*openingSocket)}
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	s = &sender{conn: c, id: 4, done: make(chan struct{}), ps: &pipeSocket{socket: pipe}}
	c.outgoing[s.id] = s
	return c, control, pipe, s
}

// TestStallEndsConn checks that a conn ends with a stall of any of its sockets, with a reason that names the socket, the time and the bytes.
func TestStallEndsConn(t *testing.T) {
	for want, stall := range map[string]func(control, pipe *simulated, s *sender){
		"the socket of pipe 4 has stalled: the kernel of the peer has acknowledged none of its 77 bytes for 750ms": func(_, pipe *simulated, s *sender) {
			s.sent, pipe.state.queued = 1, 77
		},
		"the control socket has stalled: the kernel of the peer has acknowledged none of its 13 bytes for 750ms": func(control, _ *simulated, _ *sender) {
			control.state.queued = 13
		},
		"the socket of pipe 6 has stalled: the kernel of the peer has acknowledged none of its 99 bytes for 750ms": func(_, _ *simulated, s *sender) {
			s.conn.beginOpening(6, &simulated{state: sample{queued: 99}})
		},
		"the socket of pipe 6 has stalled: the kernel of the peer has acknowledged none of its 1 bytes for 750ms": func(_, _ *simulated, s *sender) {
			last := &simulated{state: sample{queued: 1}}
			s.conn.beginOpening(6, last)
			s.conn.endOpening(last) // The handshake is over here; its last byte has not arrived.
		},
		"the socket of pipe 4 has stalled: the kernel of the peer has acknowledged none of its 88 bytes for 750ms": func(control, pipe *simulated, s *sender) {
			control.state.smoothRTT = time.Millisecond
			s.sent, pipe.state = 1, sample{queued: 88, young: true, smoothRTT: time.Second} // The handshake has lost a packet.
		},
	} {
		c, control, pipe, s := newSampledConn(t)
		stall(control, pipe, s)
		now := time.Now()
		for i := range 4 {
			if err := c.Err(); err != nil {
				t.Fatalf("the conn has ended before sample %d: %v", i, err)
			}
			if !c.sample(now.Add(time.Duration(i)*monitorInterval), i == 0) {
				t.Errorf("sample %d: no socket is in use", i)
			}
		}
		if err := c.Err(); !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), want) {
			t.Errorf("the conn has ended: %v, want %q", err, want)
		}
	}
}

// TestStallWhileJoining checks that the conn of a process that joins does not end by a stall: nothing would replace it.
func TestStallWhileJoining(t *testing.T) {
	c, control, pipe, s := newSampledConn(t)
	c.t.cfg.Anonymous = true
	s.sent, pipe.state.queued, control.state.queued = 1, 77, 13
	now := time.Now()
	for i := range 10 {
		c.sample(now.Add(time.Duration(i)*monitorInterval), i == 0)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the conn has ended: %v", err)
	}
}

// TestSuspension checks that the time in which this process does not run does not count towards a stall.
func TestSuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control, pipe, s := newSampledConn(t)
		s.sent, pipe.state.queued, control.state.queued = 1, 77, 13
		c.t.conns, c.t.monitoring.wake = map[*conn]struct{}{c: {}}, make(chan struct{}, 1)
		var cancel context.CancelCauseFunc
		c.t.ctx, cancel = context.WithCancelCause(t.Context())
		defer cancel(nil)
		pipe.takes.Store(int64(stallMin))
		go c.t.monitor()
		time.Sleep(time.Minute)
		if err := c.Err(); err != nil {
			t.Fatalf("the conn has ended: %v", err)
		}
		pipe.takes.Store(0)
		select {
		case <-c.Done():
		case <-time.After(3 * stallMin):
			t.Error("the conn has not ended after a stall while this process runs")
		}
	})
}

// TestUnusedSocket checks that time in which a socket is not in use does not count towards a stall.
func TestUnusedSocket(t *testing.T) {
	c, _, pipe, s := newSampledConn(t)
	now := time.Now()
	for range 20 {
		s.sent++
		pipe.state.queued = 1
		c.sample(now, false)
		pipe.state.queued = 0 // All arrives; the next samples do not ask the kernel.
		for range 5 {
			now = now.Add(monitorInterval)
			c.sample(now, false)
		}
	}
	if err := c.Err(); err != nil {
		t.Fatalf("the conn has ended: %v", err)
	}
}

// parked waits until the monitor of a transport waits for a socket in use.
func parked(t *testing.T, node *Transport) {
	t.Helper()
	eventually(t, "the end of samples", node.monitoring.parked.Load)
}

// TestMonitorWithoutTraffic: the monitor of an idle transport waits, and samples a socket that comes into use.
func TestMonitorWithoutTraffic(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	c, _ := connect(t, nodes[0], nodes[1])
	parked(t, c.t)
	pipe, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := pipe.(*sender)
	for range 3 {
		parked(t, c.t)
		if _, err := s.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a sample after the write", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.sampled == s.sent
		})
	}
}

// TestControlSocketIsSampled checks that a message on the control socket wakes the monitor.
func TestControlSocketIsSampled(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	_, from := connect(t, nodes[0], nodes[1])
	parked(t, from.t)
	func() {
		from.t.mu.Lock() // stops the monitor
		defer from.t.mu.Unlock()
		from.send(message{kind: msgDrop, pipe: 77}) // of a pipe that the peer does not know
		eventually(t, "the monitor", func() bool { return !from.t.monitoring.parked.Load() })
	}()
	parked(t, from.t)
	if err := from.Err(); err != nil {
		t.Errorf("the conn has ended: %v", err)
	}
}

// connectTCP returns both ends of a TCP connection.
func connectTCP(t *testing.T) (dialed, accepted *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	return here.(*net.TCPConn), there.(*net.TCPConn)
}

// TestOpeningSocket checks that the socket of a handshake is sampled until the peer has acknowledged its last bytes.
func TestOpeningSocket(t *testing.T) {
	c, _, _, _ := newSampledConn(t)
	sock := &simulated{state: sample{queued: 1}}
	c.beginOpening(6, sock)
	sampled := func() bool { return c.sample(time.Now(), false) }
	for _, step := range []struct {
		when   string
		queued int
		ends   bool
		want   bool
	}{
		{"during the handshake", 0, false, true},
		{"during the handshake, for the second time", 0, false, true},
		{"while the last bytes are under way", 1, true, true},
		{"when all is acknowledged", 0, false, true},
		{"after that", 0, false, false},
	} {
		if sock.state.queued = step.queued; step.ends {
			c.endOpening(sock)
		}
		if got := sampled(); got != step.want {
			t.Errorf("%s: sampled: %t, want %t", step.when, got, step.want)
		}
	}
}

package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport/transporttest"
)

// A blackhole is a socket that accepts all bytes, sends the first ones, and loses the
// rest.
type blackhole struct {
	socket
	raw    syscall.RawConn
	passes int // bytes still to be sent

	mu        sync.Mutex
	swallowed int
	endLost   bool // CloseWrite was called
}

func (h *blackhole) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(len(p), h.passes)
	if n > 0 {
		m, err := h.socket.Write(p[:n])
		if h.passes -= m; err != nil { // a spare subflow may interrupt the Write: the rest of p is not written
			return m, err
		}
	}
	h.swallowed += len(p) - n
	return len(p), nil
}

func (h *blackhole) unacked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, ok := queuedBytes(h.raw)
	if !ok {
		return math.MaxInt32
	}
	return h.swallowed + n
}

// CloseWrite loses the FIN.
func (h *blackhole) CloseWrite() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLost = true
	return nil
}

func (h *blackhole) sample() sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := h.swallowed > 0 || h.endLost
	return sample{inFlight: lost, timedOut: lost}
}

// A noRaw makes all writes of a blackhole use its Write.
type noRaw struct{}

var errNoRaw = errors.New("a blackhole has no file descriptor")

func (noRaw) Control(func(uintptr)) error    { return errNoRaw }
func (noRaw) Read(func(uintptr) bool) error  { return errNoRaw }
func (noRaw) Write(func(uintptr) bool) error { return errNoRaw }

var _ syscall.RawConn = noRaw{}

// blackhole replaces the socket of a pipe by a blackhole when it is idle.
func (s *sender) blackhole(t *testing.T, passes int) {
	t.Helper()
	eventually(t, "the end of the flusher", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		f := s.flow
		if s.flushDone != nil || f.unconfirmed.Load() {
			return false
		}
		s.flow = &subflow{
			sock: &blackhole{socket: f.sock, raw: f.raw, passes: passes}, raw: noRaw{},
			ps: f.ps, serial: f.serial, after: f.after, start: f.start, prover: f.prover,
		}
		return true
	})
}

// TestMigrateFromBlackhole checks that lost bytes arrive on the next socket, once and in
// order, whichever side dials and whether or not pipes are paired.
func TestMigrateFromBlackhole(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		for _, dialer := range []bool{true, false} {
			for _, paired := range []bool{true, false} {
				t.Run(fmt.Sprintf("opened by the dialer: %t, paired: %t", dialer, paired), func(t *testing.T) {
					nodes := newTestNodes(t, 2, cfg)
					for _, n := range nodes {
						n.dropMigrated = func() bool { return rand.N(4) == 0 }
						n.staysLossy = true // a blackhole swallows bytes that need copies, however slow the machine is
					}
					from, to := connect(t, nodes[0], nodes[1])
					if !dialer {
						from, to = to, from
					}
					var s *sender
					var r *receiver
					if paired {
						s = openPaired(t, from, 1)
						r = acceptPipe(t, to, 1)
						openPaired(t, to, 2)
						acceptPipe(t, from, 2)
					} else {
						s, r = pipeBetween(t, from, to)
					}
					testBlackholes(t, from, s, r)
				})
			}
		}
	})
}

func testBlackholes(t *testing.T, c *conn, s *sender, r *receiver) {
	c.lossy.Store(true)
	next, expect := counting(), counting()
	const rounds = 8
	sizes := make([]int, rounds)
	total := 0
	for i := range sizes {
		sizes[i] = 1 + rand.N(100_000)
		total += sizes[i]
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		r.SetReadDeadline(time.Now().Add(rounds * soon))
		n, err := r.ReadFunc(total, func(p []byte) {
			if !bytes.Equal(p, expect(len(p))) {
				t.Error("the bytes are wrong")
			}
		})
		if n != total || err != nil {
			t.Errorf("read %d bytes of %d, %v", n, total, err)
		}
	})
	for _, n := range sizes {
		s.blackhole(t, rand.N(2*n))
		if m, err := s.Write(next(n)); m != n || err != nil {
			t.Fatalf("wrote %d bytes of %d, %v", m, n, err)
		}
		before := s.currentFlow()
		eventually(t, "a migration", func() bool {
			c.migrate(s)
			return s.currentFlow() != before
		})
	}
	reading.Wait()
	if err := c.Err(); err != nil {
		t.Fatalf("the conn has ended: %v", err)
	}
	before := s.currentFlow()
	s.blackhole(t, 0)
	s.Close() // the end must arrive too
	eventually(t, "a migration", func() bool {
		c.migrate(s)
		return s.currentFlow() != before
	})
	r.SetReadDeadline(time.Now().Add(soon))
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("at the end: read %d bytes, %v", n, err)
	}
}

// currentFlow returns the current subflow.
func (s *sender) currentFlow() *subflow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flow
}

// migrateConstantly migrates the pipes of a node all the time, and resends more bytes
// than are unacknowledged.
func migrateConstantly(t testing.TB, node *testNode) {
	node.overstateUnacked = func(unacked, most int) int { return unacked + rand.N(most-min(unacked, most)+1) }
	done := make(chan struct{})
	var all sync.WaitGroup
	t.Cleanup(func() {
		close(done)
		all.Wait()
	})
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(rand.N(4 * time.Millisecond)):
			}
			node.mu.Lock()
			conns := slices.Collect(maps.Keys(node.conns))
			node.mu.Unlock()
			for _, c := range conns {
				c.lossy.Store(true)
				c.mu.Lock()
				senders := slices.Collect(maps.Values(c.outgoing))
				c.mu.Unlock()
				if len(senders) > 0 {
					c.migrate(senders[rand.N(len(senders))])
				}
			}
		}
	})
}

// TestConformanceMigrating checks that pipes that migrate all the time keep the contract.
func TestConformanceMigrating(t *testing.T) {
	for name, cfg := range variants() {
		if testing.Short() && name == "Plain" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(tb testing.TB, n int) transporttest.Cluster {
				ca := newTestCA(tb)
				nodes := make([]*testNode, n)
				for i := range nodes {
					l, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						tb.Fatal(err)
					}
					cfg.Listener = smallBuffers{l}
					nodes[i] = newTestNode(tb, cfg, ca.node(tb, fmt.Sprintf("n%d", i)))
					migrateConstantly(tb, nodes[i])
				}
				made := conforming(nodes)
				if !cfg.Plain {
					for i, of := range made.Transports {
						made.Transports[i] = pairing{of}
					}
				}
				return made
			})
		})
	}
}

// TestMigrateImpostor checks that a process that has seen a claim cannot migrate a pipe,
// and that a modified header is refused.
func TestMigrateImpostor(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	magicAnd := func(c claim) []byte { return c.append([]byte(magicMigrate)) }
	for name, said := range map[string]claim{
		"unknown conn": {pipe: s.id},
		"no proof":     {conn: from.keys.id, pipe: s.id},
	} {
		sock, err := net.Dial("tcp", nodes[1].Addr())
		if err != nil {
			t.Fatal(err)
		}
		sock.SetDeadline(time.Now().Add(soon))
		sock.Write(append(magicAnd(said), make([]byte, 1000)...)) // longer than a proof
		if _, err := io.Copy(io.Discard, sock); isTimeout(err) {
			t.Errorf("%s: the socket stays open", name)
		}
		sock.Close()
	}
	f := &subflow{serial: 2, after: 1, start: 5, prover: &prover{key: from.keys.proof}}
	for i := range headerBytes {
		b := f.header()
		b[i] ^= 1
		got := &subflow{prover: f.prover, sock: readOnly{bytes: bytes.NewReader(b)}}
		if err := got.readHeader(); err == nil {
			t.Errorf("a header with byte %d changed is accepted", i)
		}
	}
	got := &subflow{prover: f.prover, sock: readOnly{bytes: bytes.NewReader(f.header())}}
	if err := got.readHeader(); err != nil || got.serial != 2 || got.after != 1 || got.start != 5 {
		t.Errorf("the header is read as %+v, %v", got, err)
	}
	if _, err := s.Write([]byte("still open")); err != nil {
		t.Fatal(err)
	}
	if n, err := r.ReadFunc(10, func([]byte) {}); n != 10 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
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

// TestMonitorStalls checks when a socket without progress counts as stalled. A closed
// window does not.
func TestMonitorStalls(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	fly := func(acked uint64, timedOut bool) sample {
		return sample{inFlight: true, timedOut: timedOut, acked: acked}
	}
	far := fly(1, true)
	far.minRTT = 200 * time.Millisecond
	for name, test := range map[string]struct {
		seen []sample // one per monitorInterval
		want []bool
	}{
		"nothing under way": {[]sample{{}, {}, {}, {}, {}}, []bool{false, false, false, false, false}},
		"a window that is closed": {
			[]sample{{acked: 1}, {acked: 1}, {acked: 1}, {acked: 1}, {acked: 1}, {acked: 1}},
			[]bool{false, false, false, false, false, false},
		},
		"progress": {
			[]sample{fly(1, false), fly(2, true), fly(3, false), fly(4, true), fly(5, false)},
			[]bool{false, false, false, false, false},
		},
		"retransmissions are lost": {
			[]sample{fly(1, false), fly(1, true), fly(1, true), fly(1, true), fly(9, false)},
			[]bool{false, false, true, true, false},
		},
		"a packet with each timeout": {
			[]sample{fly(1, false), fly(2, true), fly(3, true), fly(4, true), fly(9, false)},
			[]bool{false, false, true, true, false},
		},
		"one long timeout": {
			[]sample{fly(1, false), fly(1, false), fly(1, false), fly(1, false), fly(2, false)},
			[]bool{false, false, false, true, false},
		},
		"far away": {
			[]sample{far, far, far, far, far, far, far, far, far, far},
			[]bool{false, false, false, false, false, false, false, false, false, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m pathMonitor
			for i, p := range test.seen {
				if _, got := m.observe(p, at(250*i)); got != test.want[i] {
					t.Errorf("sample %d: stalled: %t, want %t", i, got, test.want[i])
				}
			}
		})
	}
}

// TestMonitorIdle checks that idle time does not count towards a stall.
func TestMonitorIdle(t *testing.T) {
	s := &sender{flow: new(subflow)}
	began := time.Now()
	s.path.flow = s.flow
	s.path.observe(sample{acked: 1}, began)
	for now := began; now.Sub(began) < time.Minute; now = now.Add(monitorInterval) {
		if _, stalled := s.sample(now); stalled {
			t.Fatal("a socket that is not in use counts as stalled")
		}
	}
	if _, stalled := s.path.observe(sample{inFlight: true, acked: 1}, began.Add(time.Minute)); stalled {
		t.Error("a socket counts as stalled at the first sample after a pause")
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

// TestDeadlineDuringMigration checks that a deadline set before a read has noticed the
// next socket does not keep it on the current one.
func TestDeadlineDuringMigration(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	from, to := connect(t, nodes[0], nodes[1])
	_, r := pipeBetween(t, from, to)
	other, sock := connectTCP(t)
	f := &subflow{sock: sock, serial: 1, start: 1} // after the byte of pipeBetween
	var err error
	if f.raw, err = f.sock.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := r.ReadFunc(5, func([]byte) {})
		read <- err
	}()
	time.Sleep(50 * time.Millisecond) // most likely until it waits
	r.mu.Lock()
	r.next = append(r.next, f)
	r.hasNext.Store(true) // The effect of interrupt is lost by this:
	r.mu.Unlock()
	r.SetReadDeadline(time.Now().Add(soon))
	if _, err := other.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Errorf("the bytes of the new socket: %v", err)
	}
}

// TestManyLostSockets checks that a pipe migrates after any number of sockets that are lost
// before the peer has them.
func TestManyLostSockets(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	var lost atomic.Int64
	nodes[1].dropMigrated = func() bool { return lost.Add(1) <= 2*oldFlowsMax }
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	eventually(t, "a socket that the peer has", func() bool {
		from.migrate(s)
		f := s.currentFlow()
		return f.serial > 0 && !f.unconfirmed.Load()
	})
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	r.SetReadDeadline(time.Now().Add(soon))
	if n, err := r.ReadFunc(5, func([]byte) {}); n != 5 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

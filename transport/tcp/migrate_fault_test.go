package tcp

import (
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// TestLostEnd checks that a pipe migrates when its FIN is lost and nothing else is in
// flight.
func TestLostEnd(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		from, to := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, from, to)
		s.blackhole(t, math.MaxInt32)
		old := s.currentFlow()
		if _, err := s.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := r.ReadFunc(5, func([]byte) {}); n != 5 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		eventually(t, "a sample of the idle socket", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.path.sent == s.sent
		})
		s.Close()
		r.SetReadDeadline(time.Now().Add(soon))
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("at the end: read %d bytes, %v", n, err)
		}
		if s.currentFlow() == old {
			t.Error("the pipe has not migrated")
		}
	})
}

// TestNeedlessMigration checks that a side that cannot dial does not request a socket
// that its pipe cannot use.
func TestNeedlessMigration(t *testing.T) {
	c := &conn{queued: make(chan struct{}, 1)}
	for name, test := range map[string]struct {
		state senderMigration
		asks  bool
	}{
		"a pipe on its first socket":           {senderMigration{}, true},
		"a pipe that waits for another socket": {senderMigration{wantsSpare: true}, true},
		"a pipe with a spare":                  {senderMigration{spare: new(subflow)}, false},
		"a pipe with many old sockets":         {senderMigration{oldFlows: make([]*subflow, oldFlowsMax)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range test.state.oldFlows {
				test.state.oldFlows[i] = new(subflow)
			}
			c.queue = nil
			c.migrate(&sender{conn: c, flow: new(subflow), senderMigration: test.state})
			if asks := len(c.queue) > 0; asks != test.asks {
				t.Errorf("requests a socket: %t, want %t", asks, test.asks)
			}
		})
	}
}

// TestSocketAfterTheEnd checks that a read continues on a later socket when the current
// one has ended while the pipe migrates.
func TestSocketAfterTheEnd(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		nodes[1].causeTimeout = time.Hour // only the new socket can end the read
		from, to := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, from, to)
		read := make(chan error, 1)
		go func() {
			r.SetReadDeadline(time.Now().Add(soon))
			_, err := r.ReadFunc(5, func([]byte) {})
			read <- err
		}()
		old := s.currentFlow()
		s.requestSpareForLong()
		old.sock.CloseWrite() // like a middlebox
		eventually(t, "an answer", func() bool { return to.answered.Load() > 0 })
		eventually(t, "the acknowledgement of the FIN", func() bool { return old.unacked(1) == 0 }) // It has no copy.
		f, err := from.redial(s.id)
		if err != nil {
			t.Fatal(err)
		}
		from.spawn(func() { from.useFlow(s, f) })
		eventually(t, "a migration", func() bool { return s.currentFlow() != old })
		if _, err := s.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Errorf("the bytes of the new socket: %v", err)
		}
	})
}

// requestSpareForLong is requestSpare, and the request does not expire during a test.
func (s *sender) requestSpareForLong() {
	s.requestSpare()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requested = s.requested.Add(time.Hour)
}

// TestWaitSpare checks that a write that waits for a spare subflow returns when there is
// one, and when the pipe fails, is closed or passes its deadline.
func TestWaitSpare(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *sender, spare *subflow)
		want   bool
		after  time.Duration
	}{
		"a spare":         {func(s *sender, spare *subflow) { s.wantsSpare = true; s.setSpare(spare) }, true, 0},
		"the end":         {func(s *sender, _ *subflow) { s.fail(errPipeAbandoned) }, false, 0},
		"Close":           {func(s *sender, _ *subflow) { s.Close() }, false, 0},
		"a past deadline": {func(s *sender, _ *subflow) { s.SetWriteDeadline(past()) }, false, 0},
		"a deadline":      {func(s *sender, _ *subflow) { s.SetWriteDeadline(time.Now().Add(time.Second)) }, false, time.Second},
		"a migration given up": {func(s *sender, _ *subflow) {
			s.flow.unconfirmed.Store(false)
			s.cancelSpareRequest()
		}, false, 0},
		"a request without an answer": {func(s *sender, _ *subflow) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wantsSpare, s.requested = true, time.Now()
			s.flow.unconfirmed.Store(false)
		}, false, requestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				flow := func() *subflow {
					f := &subflow{sock: readOnly{}, prover: new(prover)}
					f.unconfirmed.Store(true)
					return f
				}
				s := &sender{conn: &conn{t: newIdleTransport()}, flow: flow(), done: make(chan struct{}), writing: true}
				s.changed, s.copying = make(chan struct{}, 1), true
				moved := make(chan bool, 1)
				go func() { moved <- s.waitSpare(false) }()
				synctest.Wait()
				began := time.Now()
				test.change(s, flow())
				if got := <-moved; got != test.want || time.Since(began) != test.after {
					t.Errorf("awaitSpare returns %t after %v, want %t after %v", got, time.Since(began), test.want, test.after)
				}
			})
		})
	}
}

// newIdleTransport returns a Transport without sockets.
func newIdleTransport() *Transport { return &Transport{cfg: Config{}.withDefaults()} }

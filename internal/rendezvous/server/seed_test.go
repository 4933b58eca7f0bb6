package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
)

// TestMain lets more tests run in parallel than there are processors, unless a flag says how many: they wait for
// elections and timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	const name = "test.parallel"
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	if !set {
		flag.Set(name, "4")
	}
	goleak.VerifyTestMain(m)
}

// patience bounds the wait of a test for an event that must happen.
const patience = 60 * time.Second

// quick are limits short enough to wait for in a test, and long enough for a busy machine.
var quick = handshake.Limits{
	Hello:   2 * time.Second,
	Step:    10 * time.Second,
	Linger:  2 * time.Second,
	Ping:    50 * time.Millisecond,
	Silence: 10 * time.Second,
}

// A logbook keeps the log, for tests of messages to operators.
type logbook struct{ testlog.Buffer }

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// wait waits until a line of the log contains all parts.
func (l *logbook) wait(t testing.TB, parts ...string) {
	t.Helper()
	until(t, fmt.Sprintf("the log says %q", parts), func() bool {
		for _, line := range strings.Split(l.String(), "\n") {
			ok := true
			for _, p := range parts {
				ok = ok && strings.Contains(line, p)
			}
			if ok {
				return true
			}
		}
		return false
	}, l)
}

func until(t testing.TB, what string, ok func() bool, state fmt.Stringer) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: waiting until %s; state:\n%v", what, state)
		}
	}
}

// A testSeed is a server with its transport, token and log.
type testSeed struct {
	*Server
	addr  string
	token pki.Token
	log   *logbook
	dial  func(ctx context.Context, addr string) (transport.Conn, error)
}

// newSeed starts a seed over TLS and TCP.
func newSeed(t testing.TB, world int, change func(*Config)) *testSeed {
	t.Helper()
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	tr := newTLSTransport(t, joining)
	return serveOver(t, tr, ca, dialTLS, world, change)
}

func newAuthority(t testing.TB) *pki.Authority {
	t.Helper()
	ca, err := pki.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func serveOver(t testing.TB, tr transport.Transport, ca *pki.Authority, dial func(context.Context, string) (transport.Conn, error), world int, change func(*Config)) *testSeed {
	t.Helper()
	s := &testSeed{addr: tr.Addr(), token: pki.NewToken(), log: &logbook{}, dial: dial}
	cfg := Config{Transport: tr, Authority: ca, Token: s.token, World: world, Log: s.log.logger(), Limits: quick}
	if change != nil {
		change(&cfg)
	}
	if cfg.Replication == nil { // The nodes of these tests do not connect again.
		cfg.HasEnded = func(context.Context, membership.Node) bool { return true }
	}
	var err error
	if s.Server, err = Serve(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// request returns the request of the i-th node, on a separate host.
func (s *testSeed) request(i int) client.Request {
	return client.Request{Token: s.token, Host: fmt.Sprintf("host%d", i), Name: fmt.Sprintf("host%d:%d", i, 1000+i),
		Alternates: []string{fmt.Sprintf("10.0.0.%d:7000", i+1)}, Limits: quick}
}

// join joins with a request.
func (s *testSeed) join(t testing.TB, req client.Request) (*client.Session, error) {
	t.Helper()
	conn, err := s.dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.Join(t.Context(), conn, req)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// mustJoin is join of the i-th node, which must succeed.
func (s *testSeed) mustJoin(t testing.TB, i int) *client.Session {
	t.Helper()
	session, err := s.join(t, s.request(i))
	if err != nil {
		t.Fatalf("node %d: %v", i, err)
	}
	return session
}

// form has every session report that it is ready, and wants the world to form.
func (s *testSeed) form(t testing.TB, sessions ...*client.Session) {
	t.Helper()
	var wg sync.WaitGroup
	for i, session := range sessions {
		wg.Go(func() {
			if err := session.Ready(t.Context()); err != nil {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := s.Wait(t.Context()); err != nil {
		t.Errorf("%v", err)
	}
}

// says checks that an error contains all parts, and wraps want unless that is nil.
func says(t testing.TB, err, want error, parts ...string) {
	t.Helper()
	if want != nil && !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %q, want one that says %q", err, p)
		}
	}
}

// A Status describes the world.
type Status struct {
	Phase    membership.Phase
	World    int
	Joined   int             // nodes that have a place
	View     membership.View // empty until the world is full
	Attached int             // nodes that have a connection to this seed
	Deadline time.Time       // zero: none, or past
	Err      error           // why the world did not form
}

// Status returns the state of the world as this seed knows it.
func (s *Server) Status() (st Status) {
	s.read(func() {
		st = Status{World: s.cfg.World, View: s.state.cluster.view, Err: s.state.err}
		if l := s.state.leader; l != nil {
			st.Phase, st.Joined, st.Attached = l.form.Phase(), l.form.Joined(), len(l.nodes)
			if at, ok := l.form.Deadline(); ok {
				st.Deadline = at
			}
		}
	})
	return st
}

package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/transport"
)

// A heldLog is the log of one of two seeds. The test applies the changes that the seed proposes, and calls Lead.
type heldLog struct {
	consensus.StateMachine
	self     uint64
	proposed chan []byte
	done     chan struct{}
	close    func()
}

func (l *heldLog) Propose(_ uint64, change []byte) { l.proposed <- change }
func (l *heldLog) Step(uint64, []byte) error       { return errors.New("no other seed exists") }
func (l *heldLog) Gone(uint64)                     {}
func (l *heldLog) Done() <-chan struct{}           { return l.done }
func (l *heldLog) Err() error                      { return nil }
func (l *heldLog) Close() error                    { l.close(); return nil }

// lead makes the seed the leader of a term.
func (l *heldLog) lead(term uint64) { l.Lead(l.self, term) }

// apply applies the next n changes.
func (l *heldLog) apply(n int) {
	for range n {
		l.Apply(<-l.proposed)
	}
}

// newHeldSeed starts a seed with a heldLog for a world of one node.
func newHeldSeed(t *testing.T, change func(*Config)) (*testSeed, *heldLog) {
	t.Helper()
	l := &heldLog{proposed: make(chan []byte, 100), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	tr := newTLSTransport(t, joining)
	s := serveOver(t, tr, ca, dialTLS, 1, func(cfg *Config) {
		cfg.Replication = &Replication{
			Self: tr.Addr(), Seeds: []string{tr.Addr(), "other:1"}, Dir: t.TempDir(),
			Dial: func(context.Context, string) (transport.Conn, error) {
				return nil, errors.New("the other seed is down")
			},
			Open: func(cfg consensus.Config) (consensus.Log, error) {
				l.StateMachine, l.self = cfg.StateMachine, cfg.Self
				return l, nil
			},
		}
		if change != nil {
			change(cfg)
		}
	})
	return s, l
}

// joinHeld lets a node join at a seed.
func joinHeld(t *testing.T, s *testSeed, req client.Request, dial func(context.Context, string) (transport.Conn, error)) *client.Session {
	t.Helper()
	node, err := client.Seeds{Addrs: []string{s.addr}, Dial: dial, Log: s.log.logger()}.Join(t.Context(), req)
	if err != nil {
		t.Fatalf("%v\n%v", err, s.log)
	}
	t.Cleanup(func() { node.Close() })
	return node
}

// TestClusterGetsItsName: the seeds agree on the authority of the cluster after a node has asked for the name of the cluster, and before
// it sends its request. The node tries again, and the world of one node forms.
func TestClusterGetsItsName(t *testing.T) {
	s, l := newHeldSeed(t, nil)
	req := s.request(0)
	var names []string
	req.Listen = func(_ context.Context, cluster string, _ membership.NodeID) ([]membership.Endpoint, error) {
		if names = append(names, cluster); len(names) == 1 {
			l.lead(1)
			l.apply(1)
		}
		return []membership.Endpoint{{Transport: "own", Addr: "host0:1"}}, nil
	}
	node := joinHeld(t, s, req, dialTLS)
	if want := []string{"", s.cluster()}; !slices.Equal(names, want) {
		t.Errorf("transports were started for the clusters %q, want %q", names, want)
	}
	l.apply(1)
	go l.apply(1)
	s.form(t, node)
}

// TestReconnectBeforeFirstView: the connection of a node ends before the first view, which contains the node, is committed. The node
// connects again, and the world forms.
func TestReconnectBeforeFirstView(t *testing.T) {
	s, l := newHeldSeed(t, nil)
	l.lead(1)
	l.apply(1)
	node := joinHeld(t, s, s.request(0), dialTLS)
	s.conn(node.ID).Close()
	s.log.wait(t, "node is back")
	l.apply(1)
	go l.apply(1)
	s.form(t, node)
}

// TestAnswerIsLost: a seed registers a node, and the connection ends before the answer. The next attempt of the node succeeds: at the same
// seed before and after the first view with the node is committed, and at the leader of the next term.
func TestAnswerIsLost(t *testing.T) {
	for name, meanwhile := range map[string]func(l *heldLog){
		"undecided":   nil,
		"decided":     func(l *heldLog) { l.apply(1) },
		"next leader": func(l *heldLog) { l.apply(1); l.Lead(0, 1); l.lead(2) },
	} {
		t.Run(name, func(t *testing.T) {
			var s *testSeed
			registered := 0
			s, l := newHeldSeed(t, func(cfg *Config) {
				cfg.Log = slog.New(watched{cfg.Log.Handler(), func(event string) { // In the loop, before the answer is written.
					if event != "node joined" {
						return
					}
					registered++
					for _, c := range s.state.leader.nodes {
						c.Close()
					}
				}})
			})
			l.lead(1)
			l.apply(1)
			dials := 0
			node := joinHeld(t, s, s.request(0), func(ctx context.Context, addr string) (transport.Conn, error) {
				if dials++; dials == 2 && meanwhile != nil {
					meanwhile(l)
				}
				return dialTLS(ctx, addr)
			})
			if meanwhile == nil {
				l.apply(1)
			}
			go l.apply(1)
			s.form(t, node)
			if v := node.Newest(); registered != 1 || v.Epoch != 1 || v.Size() != 1 {
				t.Errorf("%d nodes registered, view %v, want one node and view 1 with it", registered, v)
			}
		})
	}
}

// A watched handler calls a function for each event.
type watched struct {
	slog.Handler
	f func(event string)
}

func (w watched) Handle(ctx context.Context, r slog.Record) error {
	w.f(r.Message)
	return w.Handler.Handle(ctx, r)
}

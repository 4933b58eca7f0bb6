package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// lines returns a Logger and a function that returns the lines that contain a text.
func lines() (*slog.Logger, func(text string) []string) {
	var b strings.Builder
	omitTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: omitTime}))
	return log, func(text string) (list []string) {
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, text) {
				list = append(list, line)
			}
		}
		return list
	}
}

// checkIntervals requires lines with the wait times of a reminder.
func checkIntervals(t *testing.T, lines []string, waited ...string) {
	t.Helper()
	if len(lines) != len(waited) {
		t.Fatalf("%d lines, want %d: %q", len(lines), len(waited), lines)
	}
	for i, want := range waited {
		if !strings.Contains(lines[i], " waited="+want+" ") {
			t.Errorf("line %d is %q, want one after %s", i, lines[i], want)
		}
	}
}

// A node that reaches no seed warns after 3 s, and then at growing intervals. Each warning
// contains the attempts, and the reason for each seed.
func TestWarnsOfUnreachableSeed(t *testing.T) {
	for name, dial := range map[string]func(ctx context.Context, addr string) error{
		"refused": func(context.Context, string) error { return syscall.ECONNREFUSED },
		"silent":  func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, warnings := lines()
				d := Seeds{
					Addrs: []string{"127.0.0.1:7946", "127.0.0.2:7946"}, Timeout: 4 * time.Minute, Log: log,
					Dial: func(ctx context.Context, addr string) (transport.Conn, error) { return nil, dial(ctx, addr) },
				}
				if _, err := d.Join(t.Context(), Request{}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want that the time is over", err)
				}
				got := warnings("no seed reached yet")
				checkIntervals(t, got, "3s", "9s", "21s", "45s", "1m33s", "2m33s", "3m33s")
				reason := map[string]string{"refused": "nothing listens there", "silent": "no answer"}[name]
				last := got[len(got)-1]
				if strings.Count(last, reason) != 2 || !strings.Contains(last, "127.0.0.1:7946 (") || !strings.Contains(last, "127.0.0.2:7946 (") {
					t.Errorf("%q: want each seed with %q", last, reason)
				}
			})
		})
	}
}

// Of several processes of a host, one warns that no seed is reached.
func TestOthersWarnOfUnreachableSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, warnings := lines()
		d := Seeds{
			Addrs: []string{"127.0.0.1:7946"}, Timeout: time.Minute, Log: log, OthersWarn: true,
			Dial: func(context.Context, string) (transport.Conn, error) { return nil, syscall.ECONNREFUSED },
		}
		if _, err := d.Join(t.Context(), Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the time is over", err)
		}
		if got := warnings(""); len(got) > 0 {
			t.Errorf("warnings %q", got)
		}
	})
}

// A host with several ports and without an address is named once.
func TestUnknownHostIsNamedOnce(t *testing.T) {
	d := Seeds{Addrs: []string{"pod:1", "pod:2", "127.0.0.1:3"}}
	unknown := fmt.Errorf("dial: %w", &net.DNSError{Err: "no such host", Name: "pod", IsNotFound: true})
	want := []string{"lookup pod: no such host", "127.0.0.1:3 (nothing listens there)"}
	if got := d.tried(t.Context(), []error{unknown, unknown, syscall.ECONNREFUSED}); !slices.Equal(got, want) {
		t.Errorf("tried %q, want %q", got, want)
	}
}

// A node warns, when its seed asks for it, that its world is forming. Each warning names the nodes that are missing.
func TestWarnsOfFormingWorld(t *testing.T) {
	log, warnings := lines()
	s := newSession(nowhere{addr: "10.0.0.9:7946"}, Request{Log: log})
	s.World = 3
	check := func(m wire.JoinProgress, want ...string) {
		t.Helper()
		before := len(warnings(""))
		if err := s.handle(m); err != nil {
			t.Fatal(err)
		}
		got := warnings("")[before:]
		if len(want) == 0 && len(got) == 0 {
			return
		}
		if len(got) != 1 || len(want) == 0 {
			t.Fatalf("after %+v: warnings %q, want one: %v", m, got, len(want) > 0)
		}
		for _, text := range append(want, "seed=10.0.0.9:7946", "world is still forming") {
			if !strings.Contains(got[0], text) {
				t.Errorf("warning %q, want it to contain %s", got[0], text)
			}
		}
	}
	m := wire.JoinProgress{Joined: 1, World: 3, Candidates: []membership.Candidate{{Rank: 2, Name: "a:1", Addr: "10.0.0.1:1"}}}
	check(m)
	m.Waited = 3000
	check(m, "waited=3s", "joined=1", "world=3", `missing="2 (rank 0, 1)"`)

	v := membership.View{Epoch: 1}
	for rank := range 14 {
		v.Nodes = append(v.Nodes, membership.Node{ID: membership.NodeID{byte(rank + 1)}, Name: fmt.Sprintf("h%d:1", rank), Addrs: []string{fmt.Sprintf("10.0.0.%d:1", rank)}})
	}
	s.mu.Lock()
	s.view = v
	s.mu.Unlock()
	var missing []int
	for rank := 2; rank < 14; rank++ {
		missing = append(missing, rank)
	}
	stop := s.WarnOfLinks(v, func() []int { return missing })
	late := wire.JoinProgress{Joined: 12, World: 14, Waited: 9000, Candidates: m.Candidates}
	check(late, "waited=9s", "this node waits for connections", "rank 11 10.0.0.11:1 (h11:1), and 2 more\"")
	missing = missing[:1]
	check(late, "missing=\"rank 2 10.0.0.2:1 (h2:1)\"")
	stop()
	check(late, "other nodes wait for theirs", "waiting=\"rank 2 10.0.0.1:1 (a:1), and 1 more\"")
	if err := s.handle(wire.JoinFormed{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	check(late)
}

// An invited node warns of the nodes that are not connected to it, until the last is.
func TestWarnsOfMissingLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, warnings := lines()
		s := newSession(nowhere{addr: "10.0.0.9:7946"}, Request{Log: log})
		s.invited.Number = 1
		v := membership.View{Nodes: []membership.Node{{ID: membership.NodeID{1}, Name: "h:1", Addrs: []string{"10.0.0.1:1"}}}}
		var connected atomic.Bool
		stop := s.WarnOfLinks(v, func() []int {
			if connected.Load() {
				return nil
			}
			return []int{0}
		})
		time.Sleep(10 * time.Second)
		connected.Store(true)
		time.Sleep(time.Minute)
		connected.Store(false)
		stop()
		time.Sleep(time.Minute)
		got := warnings("this node waits for connections")
		checkIntervals(t, got, "3s", "9s")
		if want := "missing=\"rank 0 10.0.0.1:1 (h:1)\""; !strings.Contains(got[0], want) {
			t.Errorf("warning %q, want it to contain %s", got[0], want)
		}
	})
}

// A newcomer warns, after 3 s and then at growing intervals, that the world has formed without it. It is
// silent while it makes connections, and if it is a spare.
func TestWarnsNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, spare := range []bool{false, true} {
			log, warnings := lines()
			s := newSession(nowhere{addr: "10.0.0.9:7946"}, Request{Log: log, Spare: spare})
			s.World, s.ID = 1, membership.NodeID{2}
			nodes := []membership.Node{{ID: membership.NodeID{1}, Addrs: []string{"a:1"}}, {ID: s.ID, Addrs: []string{"b:1"}}}
			if err := s.handle(wire.JoinInvite{Number: 1, World: 1, Epoch: 3, Nodes: nodes}); err != nil {
				t.Fatal(err)
			}
			_, cancel := s.While(t.Context(), 1)
			time.Sleep(time.Minute)
			cancel()
			if got := warnings(""); len(got) > 0 {
				t.Errorf("warnings while it makes connections: %q", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if _, _, err := s.Begin(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want that the time is over", err)
			}
			cancel()
			got := warnings("world has formed without this node")
			if spare {
				checkIntervals(t, got)
				continue
			}
			checkIntervals(t, got, "3s", "9s", "21s")
			for _, want := range []string{"waits until all nodes of the world call Reconfigure", "nodes=1", "seed=10.0.0.9:7946"} {
				if !strings.Contains(got[0], want) {
					t.Errorf("warning %q, want it to contain %s", got[0], want)
				}
			}
		}
	})
}

// A node that has lost its seed warns in the words of its state.
func TestWarnsOfLostSeed(t *testing.T) {
	for formed, want := range map[bool]string{false: "the world cannot form without one", true: "this node goes on without one until a node fails"} {
		synctest.Test(t, func(t *testing.T) {
			log, warnings := lines()
			s := newSession(nowhere{addr: "127.0.0.1:7946"}, Request{Log: log, seeds: Seeds{
				Addrs: []string{"127.0.0.1:7946"}, Log: log,
				Dial: func(context.Context, string) (transport.Conn, error) { return nil, syscall.ECONNREFUSED },
			}})
			s.formed, s.silent = formed, true
			time.AfterFunc(10*time.Second, s.close)
			if ok, err := s.rejoin(ErrSeedGone); ok || !errors.Is(err, ErrSeedGone) {
				t.Errorf("rejoin: %v, %v", ok, err)
			}
			checkIntervals(t, warnings(want), "3s", "9s")
			if joins := warnings("no seed reached yet"); len(joins) > 0 {
				t.Errorf("formed %v: the words of a node that joins: %q", formed, joins)
			}
		})
	}
}

package client

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
// contains the attempts and the time of the next one.
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
				if strings.Count(last, reason) != 2 || !strings.Contains(last, "127.0.0.1:7946 (") || !strings.Contains(last, "127.0.0.2:7946 (") || !strings.Contains(last, " next=127.0.0.") {
					t.Errorf("%q: want each seed with %q, and the next attempt", last, reason)
				}
			})
		})
	}
}

// A node warns while its world is forming. Each warning contains the number of nodes that have
// joined, and the missing ones.
func TestWarnsOfFormingWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, warnings := lines()
		s := newSession(nowhere{addr: "10.0.0.9:7946"}, Request{Log: log})
		s.World = 3
		s.handle(wire.JoinProgress{Joined: 1, World: 3, Candidates: []membership.Candidate{{Rank: 2, Name: "a:1", Addr: "10.0.0.1:1"}}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, _, err := s.Begin(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want that the time is over", err)
		}
		got := warnings("world is still forming")
		checkIntervals(t, got, "3s", "9s")
		for _, want := range []string{"joined=1", "world=3", `missing="2 (rank 0, 1)"`, "seed=10.0.0.9:7946"} {
			if !strings.Contains(got[0], want) {
				t.Errorf("warning %q, want it to contain %s", got[0], want)
			}
		}
		spare := newSession(nowhere{addr: "10.0.0.9:7946"}, Request{Log: log, Spare: true})
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		spare.Begin(ctx, 0)
		if now := warnings("forming"); len(now) != len(got) {
			t.Errorf("a spare warns: %q", now[len(got):])
		}
	})
}

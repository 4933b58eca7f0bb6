package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
)

// Follow reports each node that joins or leaves, in order, and returns after the last one has
// gone.
func TestFollow(t *testing.T) {
	s := newSeed(t, 2, nil)
	var heard []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Follow(t.Context(), func(e Event) {
			what := "joined"
			if e.Gone && e.Left {
				what = "gone"
			}
			heard = append(heard, fmt.Sprintf("%s %s, rank %d, %d here", e.Node.Name, what, e.Rank, e.Here))
		})
	}()
	rank := 1
	req := s.request(0)
	req.Rank = &rank
	first, err := s.join(t, req)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	until(t, "its rank is free", func() bool { return s.Status().Joined == 0 }, s.log)
	a, b := s.mustJoin(t, 1), s.mustJoin(t, 2)
	s.form(t, a, b)
	b.Close()
	until(t, "one has gone", func() bool { return s.Status().Attached == 1 }, s.log)
	a.Close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("all nodes have gone, and Follow continues")
	}
	want := []string{
		"host0:1000 joined, rank 1, 1 here", "host0:1000 gone, rank 1, 0 here",
		fmt.Sprintf("host1:1001 joined, rank %d, 1 here", membership.AnyRank), "host2:1002 joined, rank 1, 2 here",
		"host2:1002 gone, rank 1, 1 here", "host1:1001 gone, rank 0, 0 here",
	}
	if !slices.Equal(heard, want) {
		t.Errorf("heard\n%q, want\n%q", heard, want)
	}
}

// Follow ends with the context, and with a world that does not form.
func TestFollowEnds(t *testing.T) {
	s := newSeed(t, 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Follow(ctx, nil)

	s = newSeed(t, 2, func(c *Config) { c.FormTimeout = 20 * time.Millisecond })
	s.Follow(t.Context(), func(e Event) { t.Errorf("heard of %+v", e) })
	if err := s.Status().Err; err == nil {
		t.Error("Follow has ended, but the world can still form")
	}
}

// Close is not logged as an error.
func TestCloseLogsNoError(t *testing.T) {
	s := newSeed(t, 2, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.log.wait(t, "level=INFO", "world did not form", "closed")
}

// While a world forms, the seed reports at growing intervals the nodes that it lacks, and lets one node of each host log it: in the end one
// that is not connected.
func TestFormingIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		l := newPipeListener(t, ca)
		defer l.Close()
		s := serveOver(t, l, ca, l.dial, 4, nil)
		defer s.Close()
		var heard []string
		ctx, cancel := context.WithCancel(t.Context())
		var follows sync.WaitGroup
		follows.Go(func() {
			s.Follow(ctx, func(e Event) {
				if e.Forming != "" {
					heard = append(heard, fmt.Sprintf("%v: %s", e.Waited, e.Forming))
				}
			})
		})
		defer follows.Wait()
		defer cancel()
		logs := make([]logbook, 4)
		sessions := make([]*client.Session, 4)
		join := func(rank int) {
			req := s.request(rank)
			req.Rank, req.Log = &rank, logs[rank].logger()
			req.Host, req.Name = fmt.Sprint("host", rank/2), fmt.Sprintf("host%d:%d", rank/2, rank)
			var err error
			if sessions[rank], err = s.join(t, req); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sessions[rank].Close() })
		}
		// logged returns the ranks that have logged a text, each once for each time.
		logged := func(text string) (ranks []int) {
			synctest.Wait()
			for rank := range logs {
				for range strings.Count(logs[rank].String(), text) {
					ranks = append(ranks, rank)
				}
			}
			return ranks
		}
		for _, rank := range []int{1, 0, 3} {
			join(rank)
		}
		time.Sleep(10 * time.Second)
		if got, want := logged("world is still forming"), []int{1, 1, 3, 3}; !slices.Equal(got, want) {
			t.Errorf("ranks %v have said that rank 2 is missing, want %v", got, want)
		}
		if text := logs[3].String(); !strings.Contains(text, `missing="1 (rank 2)"`) {
			t.Errorf("rank 3 has logged\n%s", text)
		}
		join(2)
		for _, session := range sessions {
			if _, err := session.View(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var ready sync.WaitGroup
		for _, rank := range []int{0, 2, 3} {
			ready.Go(func() { sessions[rank].Ready(t.Context()) })
		}
		time.Sleep(4 * time.Second)
		if got, want := logged("other nodes wait for theirs"), []int{1, 2}; !slices.Equal(got, want) {
			t.Errorf("ranks %v have said that rank 1 is not connected, want %v: it, and one of the other host", got, want)
		}
		ready.Go(func() { sessions[1].Ready(t.Context()) })
		ready.Wait()
		time.Sleep(time.Minute)
		cancel()
		follows.Wait()
		want := []string{
			"3s: The world forms: 3 of 4 have joined; rank 2 is missing", "9s: The world forms: 3 of 4 have joined; rank 2 is missing",
			"3s: The world forms: all 4 nodes have joined, and connect to each other; rank 1 on host host0 has not connected to all others",
		}
		if !slices.Equal(heard, want) {
			t.Errorf("heard\n%q, want\n%q", heard, want)
		}
	})
}

package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
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

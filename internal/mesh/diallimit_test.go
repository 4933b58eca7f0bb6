package mesh

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// TestDialsOfHosts: the nodes of a host with few processors have fewer dials in progress, which count for longer.
func TestDialsOfHosts(t *testing.T) {
	for _, c := range []struct {
		near, far, processors, want int
		holds                       time.Duration
	}{
		{1, 0, 1, 4, time.Second}, {4, 0, 2, 4, time.Second}, {16, 0, 2, 2, time.Second}, {32, 0, 2, 1, time.Second},
		{128, 0, 2, 1, 4 * time.Second}, {4, 1000, 2, 4, time.Second}, {128, 0, 64, 4, time.Second}, {1024, 0, 2, 1, 10 * time.Second},
	} {
		if c.processors == 2 && c.near == 1024 {
			l := newDialLimit(4, membership.View{Nodes: make([]membership.Node, c.near)}, "", c.processors, nil)
			if got := l.patience(time.Second); got != 4*time.Second {
				t.Errorf("patience of %v for 1 s, want 4 s", got)
			}
		}
		v := membership.View{Nodes: make([]membership.Node, c.near+c.far)}
		for i := range c.near {
			v.Nodes[i].Host = "a"
		}
		l := newDialLimit(4, v, "a", c.processors, nil)
		if got := cap(l.tokens); got != c.want || l.holds != c.holds {
			t.Errorf("%d nodes on %d processors, %d elsewhere: %d dials that hold tokens for %v, want %d for %v",
				c.near, c.processors, c.far, got, l.holds, c.want, c.holds)
		}
	}
}

// TestDialLimit: an attempt begins when another one has ended, or after attemptMax.
func TestDialLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &dialLimit{make(chan struct{}, 1), attemptMax}
		began := time.Now()
		acquire := func() (release func(), waited time.Duration) {
			release, err := l.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return release, time.Since(began)
		}
		first, waited := acquire()
		if waited != 0 {
			t.Errorf("the first attempt waits for %v", waited)
		}
		second, waited := acquire()
		if waited != attemptMax {
			t.Errorf("an attempt beside one without an end begins after %v, want %v", waited, attemptMax)
		}
		first() // It does not count any more, so this lets no other attempt begin.
		ctx, cancel := context.WithTimeout(t.Context(), attemptMax/2)
		defer cancel()
		if _, err := l.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v of an attempt beyond the limit, want the end of its context", err)
		}
		second()
		third, waited := acquire()
		if want := attemptMax + attemptMax/2; waited != want {
			t.Errorf("an attempt after the end of another one begins after %v, want %v", waited, want)
		}
		third()
		third()
	})
}

// TestDialWaitsForOthers: the time that a dial waits for other dials does not count for its timeout.
func TestDialWaitsForOthers(t *testing.T) {
	onDemand(t, func(w *world) {
		limit := &dialLimit{make(chan struct{}, 1), time.Hour}
		release, err := limit.acquire(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, release)
		began := time.Now()
		if err := w.meshes[0].dial(w.Context(), 4, limit, time.Second); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("the dial took %v beside another one of 10 s", took)
		}
		if got := w.linked(0); !slices.Contains(got, 4) {
			t.Errorf("rank 0 has links to the ranks %v, want one to rank 4", got)
		}
	})
}

// TestLetPeerDial: on a crowded host the node with the smaller NodeID waits for the dial of its peer for a while.
func TestLetPeerDial(t *testing.T) {
	onDemand(t, func(w *world) {
		crowded := &dialLimit{make(chan struct{}, 1), 8 * attemptMax}
		waits := func(rank, peer int, limit *dialLimit) time.Duration {
			m, began := w.meshes[rank], time.Now()
			m.dialer.letPeerDial(w.Context(), idOf(peer), m.peer(peer).link, limit, func() int { return m.peer(peer).accepting })
			return time.Since(began)
		}
		if got := waits(0, 4, crowded); got != peerDialWait {
			t.Errorf("rank 0 waits for rank 4 for %v, want %v", got, peerDialWait)
		}
		if got := waits(4, 0, crowded); got != 0 {
			t.Errorf("rank 4 has the larger NodeID, and waits for rank 0 for %v", got)
		}
		if got := waits(0, 4, &dialLimit{make(chan struct{}, 1), attemptMax}); got != 0 {
			t.Errorf("rank 0 waits for %v although the host is not crowded", got)
		}
		dialed := make(chan error, 1)
		go func() { dialed <- w.meshes[4].dial(w.Context(), 0, nil, time.Second) }()
		if got := waits(0, 4, crowded); got >= peerDialWait {
			t.Errorf("rank 0 waits for %v although rank 4 dials it", got)
		}
		if err := <-dialed; err != nil {
			t.Error(err)
		}
	})
}

// TestDelayWatch: on a crowded host a link for a watch waits until a frame needs it, for some time at most.
func TestDelayWatch(t *testing.T) {
	onDemand(t, func(w *world) {
		crowded := &dialLimit{make(chan struct{}, 1), 2 * attemptMax}
		waits := func(peer int, limit *dialLimit) time.Duration {
			m, began := w.meshes[0], time.Now()
			limit.delayWatch(w.Context(), m.peer(peer).link)
			return time.Since(began)
		}
		if got := waits(4, crowded); got != watchDelay {
			t.Errorf("the link waits for %v, want %v", got, watchDelay)
		}
		if got := waits(4, &dialLimit{make(chan struct{}, 1), attemptMax}); got != 0 {
			t.Errorf("the link waits for %v although the host is not crowded", got)
		}
		time.AfterFunc(time.Second, func() { w.meshes[0].SendView(idOf(4), []byte("a message")) })
		if got := waits(4, crowded); got < time.Second || got > time.Second+acceptingCheck {
			t.Errorf("the link waits for %v, want %v, until a frame needs it", got, time.Second)
		}
	})
}

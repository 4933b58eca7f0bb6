package nexartest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// leavingAfterSend is a world of three, of which rank 0 has sent a message to rank 1.
func leavingAfterSend(t *testing.T, stopped bool) *nexar.Node {
	t.Helper()
	w := nexartest.Cluster{Config: nexar.Config{HeartbeatTimeout: time.Minute}, Link: nexartest.Link{Delay: time.Millisecond}}.New(t, 3)
	if err := nexar.Send(t.Context(), w.Node(0).World(), []int64{1}, 1, 0); err != nil { // connects them
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if stopped {
		w.Stop(1)
		t.Cleanup(func() { w.Resume(1) })
	}
	if err := nexar.Send(t.Context(), w.Node(0).World(), []int64{2}, 1, 0); err != nil {
		t.Fatal(err)
	}
	return w.Node(0)
}

// TestShutdown: without a limit of the context, Shutdown ends as soon as the peers have read everything.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, began := leavingAfterSend(t, false), time.Now()
		if err := errors.Join(n.Shutdown(t.Context()), n.Shutdown(t.Context()), n.Close()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestShutdownOfUnread: if a peer reads nothing, Shutdown waits until its context ends, and names the peer.
func TestShutdownOfUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, began := leavingAfterSend(t, true), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := n.Shutdown(ctx)
		wantUnread(t, err, context.DeadlineExceeded)
		if took := time.Since(began).Round(time.Second); took != 20*time.Second {
			t.Errorf("it took %v, want 20 s", took)
		}
		if err := n.Close(); err != nil {
			t.Errorf("Close after Shutdown: %v", err)
		}
	})
}

// TestCloseDuringShutdown: Close limits the wait of a Shutdown that has begun.
func TestCloseDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, began := leavingAfterSend(t, true), time.Now()
		shut := make(chan error, 1)
		go func() { shut <- n.Shutdown(t.Context()) }()
		time.Sleep(30 * time.Second)
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantUnread(t, <-shut, nexar.ErrClosed)
		if took := time.Since(began).Round(time.Second); took != 35*time.Second {
			t.Errorf("it took %v, want 35 s", took)
		}
	})
}

// wantUnread checks that err says that rank 1 has not read everything, because of cause.
func wantUnread(t *testing.T, err, cause error) {
	t.Helper()
	e, ok := errors.AsType[*nexar.ShutdownError](err)
	if !ok || len(e.Peers) != 1 || e.Peers[0].Rank != 1 || !errors.Is(err, cause) {
		t.Errorf("Shutdown: %v, want a ShutdownError about rank 1 because of %v", err, cause)
	}
}

package clustertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

const (
	// noticeMax is within what time every survivor knows of a killed process.
	noticeMax = time.Second
	// laterMax is how long a call on a world that has failed may take.
	laterMax = 250 * time.Millisecond
)

// A process that is killed takes its TCP sockets with it, and whoever watches
// it tells all others. Whatever a survivor is doing ends with an error that
// names the dead rank.
func TestKill(t *testing.T) {
	const ranks = 6
	tests := []struct {
		what string
		n    int
	}{
		{"all_reduce", 4 << 20}, {"all_reduce", 1}, {"barrier", 0}, {"ring", 2 << 20}, {"ring", 1},
		{"all_reduce", 64 << 10}, {"barrier", 0}, {"all_reduce", 1 << 20}, {"ring", 1000}, {"all_reduce", 5000},
	}
	for i, test := range tests {
		t.Run(fmt.Sprintf("%d/%s-%d", i, test.what, test.n), func(t *testing.T) {
			c := newCrew(t)
			team := c.team(ranks)
			ids := all(team, order{Do: "id"})
			running := make([]<-chan report, ranks)
			for rank, w := range team {
				running[rank] = w.start(order{Do: "loop", What: test.what, N: test.n})
			}
			time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
			victim := rand.IntN(ranks)
			killed := team[victim].kill(os.Kill)
			worst := time.Duration(0)
			for rank, r := range await(team, running) {
				if rank == victim {
					continue
				}
				checkLost(t, rank, r.Failure, victim, ids[victim].Text)
				worst = max(worst, r.At.Sub(killed))
			}
			t.Logf("rank %d was killed; the last survivor knew after %v", victim, worst)
			if worst > noticeMax {
				t.Errorf("the last survivor knew after %v, want at most %v", worst, noticeMax)
			}
			survivors := append(team[:victim:victim], team[victim+1:]...)
			checkAftermath(t, survivors, victim)
		})
	}
}

// checkLost wants a failure that says that a rank has failed, and which node
// that was.
func checkLost(t *testing.T, rank int, f *failure, lost int, node string) {
	t.Helper()
	if f == nil || !f.PeerFailed || f.Rank != lost || f.Left || f.Node != node {
		t.Errorf("rank %d: %v, want the failure of rank %d (%s)", rank, f, lost, node)
	}
}

// checkAftermath wants what survivors call now to fail at once, and them to
// close promptly.
func checkAftermath(t *testing.T, survivors []*worker, lost int) {
	t.Helper()
	for _, r := range all(survivors, order{Do: "later"}) {
		if r.Failure != nil {
			t.Error(r.Failure)
		}
		for _, f := range r.Later {
			if !f.Revoked || !f.PeerFailed || f.Rank != lost {
				t.Errorf("a later call: %v, want a revoked communicator because of rank %d", f, lost)
			}
			if f.Took > laterMax {
				t.Errorf("a later call took %v, want at most %v", f.Took, laterMax)
			}
		}
	}
	for _, r := range all(survivors, order{Do: "close"}) {
		if r.Failure != nil || r.Took > 3*time.Second {
			t.Errorf("close took %v: %v", r.Took, r.Failure)
		}
	}
}

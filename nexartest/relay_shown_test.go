package nexartest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
	"github.com/nexar-go/nexar/trace"
)

// TestRelaysAreShown: in a ring of six nodes, Node.Peers shows the hops, the first relay and the round trip for each other rank, and
// the table of nexar status the number of links over relays, the largest number of hops, and the slowest of the links.
func TestRelaysAreShown(t *testing.T) {
	const n = 6
	sparse(t, "k-regular:2", n, func(t *testing.T, w *nexartest.World) {
		end := make(chan struct{})
		w.Start(func(ctx context.Context, node *nexar.Node) error {
			c := node.World()
			for step := 1; step < n; step++ {
				x, y := []int64{int64(c.Rank())}, []int64{0}
				h := nexar.StartRecv(ctx, c, y, (c.Rank()+n-step)%n, 1)
				if err := nexar.Send(ctx, c, x, (c.Rank()+step)%n, 1); err != nil {
					return err
				}
				if err := h.Wait(); err != nil {
					return err
				}
			}
			<-end
			return nil
		})
		time.Sleep(time.Second)
		var snapshots []trace.Snapshot
		slowest := ""
		longest := time.Duration(0)
		for rank := range n {
			for _, p := range w.Node(rank).Peers() {
				checkPath(t, rank, n, p)
				if p.Delay > longest {
					longest = p.Delay
					slowest = fmt.Sprintf("the slowest, from rank %d to rank %d by rank %d, takes %v there and back", rank, p.Rank, p.Relay, p.Delay.Round(10*time.Microsecond))
				}
			}
			s := w.Node(rank).Trace()
			if s.Relayed == nil || s.Relayed.Forwarded == 0 {
				t.Errorf("rank %d counts the relayed frames %+v, want some forwarded ones", rank, s.Relayed)
			}
			snapshots = append(snapshots, s)
		}
		var table strings.Builder
		if err := trace.WriteTable(&table, snapshots); err != nil {
			t.Error(err)
		}
		if want := "\n18 links go through relays, over up to 3 hops; " + slowest + "\n"; !strings.Contains(table.String(), want) {
			t.Errorf("got the table\n%s\nwant the line %q", table.String(), want)
		}
		close(end)
		wantAll(t, w)
	})
}

// checkPath checks the path that Node.Peers of a rank shows for another one in a ring of n ranks with 1 ms between neighbors.
func checkPath(t *testing.T, rank, n int, p nexar.Peer) {
	t.Helper()
	up := (p.Rank - rank + n) % n
	hops := min(up, n-up)
	var relays []int // the possible first ones
	if up <= n-up {
		relays = append(relays, (rank+1)%n)
	}
	if up >= n-up {
		relays = append(relays, (rank+n-1)%n)
	}
	if hops == 1 {
		if p.Hops != 1 || p.Relay != 0 || p.Delay != 0 || p.Transport == "relay" || p.Addr == "" {
			t.Errorf("rank %d shows for its neighbor %d: %+v", rank, p.Rank, p)
		}
		return
	}
	least := time.Duration(2*hops) * time.Millisecond
	const ackMax = 30 * time.Millisecond // The destination may delay an acknowledgement.
	if p.Hops != hops || !slices.Contains(relays, p.Relay) || p.Transport != "relay" || p.Delay < least || p.Delay > least+ackMax {
		t.Errorf("rank %d shows for rank %d: %+v, want %d hops over one of the relays %v, and a delay of %v to %v", rank, p.Rank, p, hops, relays, least, least+ackMax)
	}
}

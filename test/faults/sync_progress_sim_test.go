package faults

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/nexartest"
)

// TestSyncSaysHowFar: while a Sync copies a large state, each rank that receives it logs after ten seconds, and then at growing
// intervals, how much it has received, and from which rank. The bytes in snapshots grow.
func TestSyncSaysHowFar(t *testing.T) {
	require.NoRace(t, "it moves a long state over a simulated network")
	synctest.Test(t, func(t *testing.T) {
		const size, parts = 40 << 20, 10
		var log testlog.Buffer
		cl := nexartest.Cluster{
			Config: nexar.Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))},
			Link:   nexartest.Link{Delay: time.Millisecond, Rate: 1 << 20},
		}
		w := cl.New(t, 3)
		w.Start(func(ctx context.Context, n *nexar.Node) error {
			state := make([][]byte, parts)
			for i := range state {
				state[i] = make([]byte, size/parts)
			}
			return nexar.Sync(ctx, n.World(), state)
		})
		moved := func(rank int) (bytes int64) {
			for _, o := range w.Node(rank).World().Trace().Operations {
				if o.Op == "sync" && o.Running() {
					bytes += o.Bytes
				}
			}
			return bytes
		}
		time.Sleep(4 * time.Second)
		before := []int64{moved(0), moved(1)}
		time.Sleep(4 * time.Second)
		for rank, before := range before {
			if after := moved(rank); before == 0 || after <= before {
				t.Errorf("a snapshot of rank %d has %d bytes of the sync, and %d four seconds before", rank, after, before)
			}
		}
		for i, err := range w.Wait() {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
		last, count := map[int]int{}, map[int]int{}
		for line := range strings.Lines(log.String()) {
			_, line, is := strings.Cut(line, "msg=\"sync receives a state\" ")
			if !is {
				continue
			}
			var rank, from, received, bytes int
			var waited string
			if _, err := fmt.Sscanf(line, "rank=%d from=%d received=%d bytes=%d waited=%s", &rank, &from, &received, &bytes, &waited); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			if (waited == "10s") != (count[rank] == 0) || from != 0 || bytes != size/parts*parts || received < last[rank] || received > bytes {
				t.Errorf("line %q after %d bytes", line, last[rank])
			}
			if waited == "10s" && rank == 1 && (received < bytes/8 || received > bytes/2) {
				t.Errorf("line %q, want about a quarter", line)
			}
			last[rank], count[rank] = received, count[rank]+1
		}
		if len(last) != 2 || last[1] < size/2 || last[2] == 0 {
			t.Errorf("the last lines of ranks are after %v of %d bytes, want those of ranks 1 and 2:\n%s", last, size, log.String())
		}
	})
}

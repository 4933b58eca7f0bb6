package faults

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// viewLog is a slog.Handler that keeps the senders of the views of a node.
type viewLog struct {
	mu   sync.Mutex
	from []string
}

func (l *viewLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *viewLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *viewLog) WithGroup(string) slog.Handler            { return l }

func (l *viewLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "world has changed" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "from" {
			l.from = append(l.from, a.Value.String())
		}
		return true
	})
	return nil
}

// TestViewsFromNodes: nodes crash one after the other and two at the same time. All
// others get each view, most of them from another node and not from the seed, and compute with each other.
func TestViewsFromNodes(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	const n = 20
	logs := make([]*viewLog, n)
	for rank := range logs {
		logs[rank] = new(viewLog)
	}
	config := func(rank int) nexar.Config {
		cfg := simConfig(nexar.Automatic, &rank)
		cfg.Log = slog.New(logs[rank])
		return cfg
	}
	simNodesOf(t, n, config, func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node) {
		crashes := [][]int{{7}, {3, 12}, {0}}
		for i, victims := range crashes {
			time.AfterFunc(time.Duration(i+1)*10*time.Second, func() {
				for _, v := range victims {
					w.Network.Crash(simHost(v))
				}
			})
		}
		crashed := slices.Concat(crashes...)
		err := worldtest.ForEach(n, func(i int) error {
			if slices.Contains(crashed, i) {
				return nil
			}
			for c, err := range nodes[i].Epochs(ctx) {
				if err != nil {
					return fmt.Errorf("node %d: %w", i, err)
				}
				if c.Size() == n-len(crashed) {
					x := []int64{1}
					if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
						return fmt.Errorf("node %d: %w", i, err)
					}
					if x[0] != int64(c.Size()) {
						return fmt.Errorf("node %d: the sum is %d, want %d", i, x[0], c.Size())
					}
					return nil
				}
				_ = sumUntilFailure(ctx, c)
			}
			return fmt.Errorf("node %d: its epochs have ended", i)
		})
		if err != nil {
			t.Error(err)
		}
		fromNodes, views := 0, 0
		for i, l := range logs {
			if slices.Contains(crashed, i) {
				continue
			}
			l.mu.Lock()
			for _, from := range l.from {
				views++
				if !strings.Contains(from, ":") { // The seed has an address.
					fromNodes++
				}
			}
			l.mu.Unlock()
		}
		// At least three views, each to 8 roots at most and 16 nodes in all at least.
		if fromNodes < views/3 || views < 3*(n-len(crashed)) {
			t.Errorf("%d of %d views come from nodes, want a third of 48", fromNodes, views)
		}
	})
}
